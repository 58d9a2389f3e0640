"""Calling a handler."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import cast

from hypercube_jobs._errors import UnknownKind
from hypercube_jobs._registry import Handler, Kind
from hypercube_queue.driver import shown


def handler_of(kind: Kind) -> Handler:
    """The handler of a kind. Raises UnknownKind if it has none here."""
    if kind.handler is None:
        raise UnknownKind(f"the kind {shown(kind.name)} has no handler here")
    return kind.handler


def call(handler: Handler, job: object) -> None:
    """Run a synchronous handler to its end. Raises what it raises."""
    result = handler(job)
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            "the handler is no async function but returned an awaitable, which nobody awaits; "
            "declare it with `async def`"
        )


async def call_async(handler: Handler, job: object) -> None:
    """Run an asynchronous handler to its end. Raises what it raises."""
    await cast("Awaitable[object]", handler(job))
