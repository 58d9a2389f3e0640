"""Tasks that take their first step at once are tasks like all others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from hypercube_jobs.worker._first_step import started

_SEEN: ContextVar[str] = ContextVar("seen", default="")


def start(attempt: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return started(attempt, asyncio.get_running_loop(), copy_context())


def running(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """The test on an event loop, from a callback and from within a task."""

    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@running
async def test_the_first_step_is_taken_at_once() -> None:
    """Whoever never waits has ended when `started` returns, in a context of its own."""
    steps: list[object] = []

    async def attempt() -> None:
        _SEEN.set("attempt")
        steps.append(asyncio.current_task())

    outer = asyncio.current_task()
    task = start(attempt())
    assert steps == [task]
    assert asyncio.current_task() is outer
    assert _SEEN.get() == ""
    await task
    assert task.exception() is None


@running
async def test_it_begins_outside_of_any_task_as_well() -> None:
    """As the callbacks of an event loop do."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def attempt() -> None:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        done.set_result(first is asyncio.current_task())

    asyncio.get_running_loop().call_soon(lambda: start(attempt()))
    assert await done


@running
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

    task = start(attempt())
    await task
    assert tasks == [task] * 5


@running
async def test_a_time_out_that_begins_in_the_first_step_ends_it() -> None:
    """It remembers the task that it began in, and cancels that one."""

    async def attempt() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)

    task = start(attempt())
    await task
    assert not task.cancelling()


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_cancelling_reaches_what_it_waits_for(passes: int) -> None:
    """Before the task had its turn on the loop, and afterwards."""

    async def test() -> None:
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

        task = start(attempt())
        for _ in range(passes):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert inner.cancelled()
        assert ends == ["cancelled", "cleaned up"]

    asyncio.run(test())


@running
async def test_cancelling_before_its_turn_what_waits_for_nothing() -> None:
    """It is told where it waits, and may end all the same."""

    async def attempt() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)

    task = start(attempt())
    task.cancel()
    await asyncio.wait([task])
    assert task.exception() is None


@running
async def test_cancelling_what_has_ended_with_its_first_step_changes_nothing() -> None:
    """It has ended, even if its task has not noticed."""

    async def attempt() -> None:
        pass

    task = start(attempt())
    task.cancel()
    await asyncio.wait([task])
    assert not task.cancelled()


@running
async def test_a_shielded_wait_lets_the_cancelled_one_go_and_the_shielded_one_be() -> None:
    """What is cancelled is the shield."""
    inner = asyncio.ensure_future(asyncio.sleep(0.05, "done"))

    async def attempt() -> None:
        await asyncio.shield(inner)

    task = start(attempt())
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await inner == "done"
