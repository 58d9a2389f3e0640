"""Tasks that take their first step at once are tasks like all others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from hypercube_jobs.worker._first_step import FirstSteps

_SEEN: ContextVar[str] = ContextVar("seen", default="")


async def start(attempt: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """As a callback of the event loop starts it."""
    loop = asyncio.get_running_loop()
    started: asyncio.Future[asyncio.Task[None]] = loop.create_future()
    loop.call_soon(lambda: started.set_result(FirstSteps(loop).start(attempt, copy_context())))
    return await started


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@on_a_loop
async def test_the_first_step_is_taken_at_once() -> None:
    """Whoever never waits has ended when it has been started, in a context of its own."""
    loop = asyncio.get_running_loop()
    ends: asyncio.Future[tuple[object, ...]] = loop.create_future()
    steps: list[object] = []

    async def attempt() -> None:
        _SEEN.set("attempt")
        steps.append(asyncio.current_task())

    def begin() -> None:
        task = FirstSteps(loop).start(attempt(), copy_context())
        ends.set_result((task, task.done(), asyncio.current_task(), _SEEN.get()))

    loop.call_soon(begin)
    task, done, current, seen = await ends
    assert steps == [task]
    assert (done, current, seen) == (True, None, "")


@on_a_loop
async def test_what_else_asks_the_loop_meanwhile_is_called_later() -> None:
    """The loop's own way to call things soon is its own again when the first step is taken."""
    calls: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def attempt() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(calls.append, "soon")
        tasks.append(loop.create_task(other()))
        calls.append("first step")

    async def other() -> None:
        calls.append("other task")

    await start(attempt())
    await tasks[0]
    assert calls == ["first step", "soon", "other task"]


@on_a_loop
async def test_every_kind_of_wait_goes_on_in_the_same_task_and_context() -> None:
    """A bare yield, a timer, a future that is done, a failed one, a time-out, a group."""
    tasks: list[object] = []

    def note() -> None:
        tasks.append(asyncio.current_task())
        assert _SEEN.get() == "attempt"

    async def attempt() -> None:
        _SEEN.set("attempt")
        note()
        await asyncio.sleep(0)
        note()
        await asyncio.sleep(0.01)
        note()
        done = asyncio.get_running_loop().create_future()
        done.set_result(3)
        assert await done == 3
        failed = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failed.set_exception, ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await failed
        note()
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.01))
        note()

    task = await start(attempt())
    await task
    assert tasks == [task] * 5


@on_a_loop
async def test_a_time_out_that_begins_in_the_first_step_ends_it() -> None:
    """It remembers the task that it began in, and cancels that one."""

    async def attempt() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)

    task = await start(attempt())
    await task
    assert not task.cancelling()


@on_a_loop
async def test_cancelling_reaches_what_it_waits_for() -> None:
    """And it may clean up."""
    inner = asyncio.ensure_future(asyncio.sleep(10))
    ends: list[str] = []

    async def attempt() -> None:
        try:
            await inner
        except asyncio.CancelledError:
            ends.append("cancelled")
            await asyncio.sleep(0.01)
            ends.append("cleaned up")
            raise

    task = await start(attempt())
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert inner.cancelled()
    assert ends == ["cancelled", "cleaned up"]
