"""Cutting batches."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercube_queue.driver import chunked


@pytest.mark.parametrize(
    ("items", "expected"),
    [([], []), ([1], [[1]]), ([1, 2], [[1, 2]]), ([1, 2, 3, 4, 5], [[1, 2], [3, 4], [5]])],
)
def test_a_chunk_holds_so_many_items(items: list[int], expected: list[list[int]]) -> None:
    """In order, and no chunk is empty."""
    assert list(chunked(items, 2)) == expected


def test_a_chunk_holds_so_many_bytes() -> None:
    """Up to the limit; what is larger by itself comes alone."""
    chunks = chunked([3, 7, 1, 99, 1, 1], 10, max_bytes=10, size=lambda item: item)

    assert list(chunks) == [[3, 7], [1], [99], [1, 1]]


def test_both_limits_hold_together() -> None:
    """Whichever is reached first."""
    chunks = chunked([1, 1, 1, 5, 5], 2, max_bytes=6, size=lambda item: item)

    assert list(chunks) == [[1, 1], [1, 5], [5]]


@given(st.lists(st.integers(0, 20)), st.integers(1, 5), st.integers(1, 30))
def test_nothing_is_lost_or_moved_and_no_chunk_could_have_taken_more(
    items: list[int], count: int, limit: int
) -> None:
    """For any sizes and limits."""
    chunks = list(chunked(items, count, max_bytes=limit, size=lambda item: item))

    assert [item for chunk in chunks for item in chunk] == items
    for chunk in chunks:
        assert len(chunk) == 1 or (len(chunk) <= count and sum(chunk) <= limit)
    for chunk, following in itertools.pairwise(chunks):
        assert len(chunk) == count or sum(chunk) + following[0] > limit
