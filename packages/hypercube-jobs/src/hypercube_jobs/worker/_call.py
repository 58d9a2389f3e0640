"""Running the attempt of a delivery, in the context that is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

from hypercube_jobs import _attempt, _call
from hypercube_jobs._errors import UnknownKind
from hypercube_jobs._middleware import processing
from hypercube_jobs._registry import Handler
from hypercube_jobs.worker._held import Held
from hypercube_queue.checks import safe_repr


def call(held: Held) -> None:
    """Run a synchronous handler to its end. Raises what it raises."""
    _attempt.running.set(held)
    if held.middleware:
        with processing(held.attempt, held.middleware):
            _call.call(*_handler_and_job(held))
    else:
        _call.call(*_handler_and_job(held))


async def call_async(held: Held) -> None:
    """Run an asynchronous handler to its end. Raises what it raises."""
    _attempt.running.set(held)
    if held.cause is not None:
        raise asyncio.CancelledError  # a task cannot be cancelled before its first step
    if held.middleware:
        with processing(held.attempt, held.middleware):
            handler, job = _handler_and_job(held)
            await cast("Awaitable[object]", handler(job))
    else:
        handler, job = _handler_and_job(held)
        await cast("Awaitable[object]", handler(job))


def _handler_and_job(held: Held) -> tuple[Handler, object]:
    kind = held.kind
    if kind is None:
        raise held.unknown or UnknownKind(
            f"no kind {safe_repr(held.attempt.kind)} is declared here"
        )
    handler = _call.handler_of(kind)
    try:
        job = kind.codec.decode(held.message.payload)
    except BaseException:
        held.unreadable = True
        raise
    held.began = True
    return handler, job
