"""Calling the handler of a delivery, in the context that is its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import cast

from hypercube_jobs import _attempt
from hypercube_jobs._errors import UnknownKind
from hypercube_jobs._registry import Handler
from hypercube_jobs.worker._held import Held
from hypercube_queue.driver import shown


def call(held: Held) -> None:
    """Run a synchronous handler to its end. Raises what it raises."""
    _attempt.running.set(held.attempt)
    handler, job = _handler_and_job(held)
    held.began = True
    result = handler(job)
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            "the handler is no async function but returned an awaitable, which nobody awaits; "
            "declare it with `async def`"
        )


async def call_async(held: Held) -> None:
    """Run an asynchronous handler to its end. Raises what it raises."""
    _attempt.running.set(held.attempt)
    if held.cause is not None:
        raise asyncio.CancelledError  # a task cannot be cancelled before its first step
    handler, job = _handler_and_job(held)
    held.began = True
    await cast("Awaitable[object]", handler(job))


def _handler_and_job(held: Held) -> tuple[Handler, object]:
    kind = held.kind
    if kind is None:
        raise held.unknown or UnknownKind(f"no kind {shown(held.attempt.kind)} is declared here")
    if kind.handler is None:
        raise UnknownKind(f"the kind {shown(kind.name)} has no handler in this worker")
    return kind.handler, kind.codec.decode(held.message.payload)
