"""Cutting a batch into what one request may carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def chunked(
    items: Iterable[T],
    max_items: int,
    *,
    max_bytes: int | None = None,
    size: Callable[[T], int] = lambda _item: 0,
) -> Iterator[list[T]]:
    """Lists of up to `max_items` items whose sizes add up to at most `max_bytes`, in order.

    An item larger than `max_bytes` comes alone: whether it can be sent at all is not decided
    here.
    """
    chunk: list[T] = []
    filled = 0
    for item in items:
        weight = size(item)
        over = max_bytes is not None and filled + weight > max_bytes
        if chunk and (over or len(chunk) >= max_items):
            yield chunk
            chunk, filled = [], 0
        chunk.append(item)
        filled += weight
    if chunk:
        yield chunk
