"""Tasks that take their first step at once, which Python has from 3.12 on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any


def started(
    attempt: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context
) -> asyncio.Task[None]:
    """A task of its own for an attempt, whose first step is taken here and now.

    A pass through the event loop costs several times as much as a short handler.
    """
    if sys.version_info >= (3, 12):
        return asyncio.Task(attempt, loop=loop, context=context, eager_start=True)
    steps = _steps(attempt)
    # Up to 3.11 a task takes a generator, which unlike a coroutine may have begun before.
    task = asyncio.Task(steps, loop=loop, context=context)
    outer = asyncio.current_task(loop)
    if outer is not None:
        asyncio.tasks._leave_task(loop, outer)
    asyncio.tasks._enter_task(loop, task)
    try:
        context.run(next, steps)
    finally:
        asyncio.tasks._leave_task(loop, task)
        if outer is not None:
            asyncio.tasks._enter_task(loop, outer)
    return task


def _steps(attempt: Coroutine[Any, Any, None]) -> Generator[Any, None, None]:
    """The steps of an attempt: the first one for whoever begins, the others for its task.

    The task is scheduled by then, and what it does first is to wait for what the first step
    waits for.
    """
    waits_for: asyncio.Future[Any] | None = None
    ended = False
    try:
        waits_for = attempt.send(None)
    except StopIteration:
        ended = True
    try:
        yield
    except asyncio.CancelledError as error:
        # Cancelled before it had its turn; that is for what it waits for, if for anything.
        if not ended and (waits_for is None or not waits_for.cancel()):
            try:
                waits_for = attempt.throw(error)
            except StopIteration:
                ended = True
    while not ended:
        raised: BaseException | None = None
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001  # the attempt deals with it
            raised = error
        try:
            waits_for = attempt.send(None) if raised is None else attempt.throw(raised)
        except StopIteration:
            ended = True
