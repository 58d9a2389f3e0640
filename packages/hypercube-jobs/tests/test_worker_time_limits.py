"""Attempts that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Constant, TimeLimitExceeded, current_attempt
from hypercube_queue_memory import MemoryQueue

AT_ONCE = Constant(timedelta(0))
SHORT = timedelta(seconds=0.1)


@dataclass
class Note:
    """The job of these tests."""

    text: str


def test_an_asynchronous_handler_is_cancelled(box: Any) -> None:
    """It may clean up; the attempt has failed, and the next one comes."""
    seen = []

    @box.jobs.handler("note", timeout=SHORT, retries=1, backoff=AT_ONCE)
    async def handle(job: Note) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(current_attempt().number)

    box.jobs.dispatch(Note("x"))
    box.drain()

    assert seen == [1, 2]
    assert box.counts() == (0, 0, 0, 1)
    (failed,) = box.jobs.failed()
    assert failed.reason.endswith("took longer than its time-out, 0:00:00.100000")
    assert "await asyncio.sleep(60)" in failed.failure.traceback
    assert isinstance(box.recorder.of("failed")[0].error, TimeLimitExceeded)


def test_the_time_out_of_the_dispatch_wins(box: Any) -> None:
    """It travelled with the job."""

    @box.jobs.handler("note", timeout=timedelta(minutes=1), retries=0)
    async def handle(job: Note) -> None:
        await asyncio.sleep(60)

    box.jobs.dispatch(Note("x"), timeout=SHORT)
    box.drain()

    assert box.counts() == (0, 0, 0, 1)


def test_what_a_cancelled_handler_raises_is_the_cause(box: Any) -> None:
    """The time-out is still the reason."""

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    async def handle(job: Note) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("while cleaning up") from None

    box.jobs.dispatch(Note("x"))
    box.drain()

    (event,) = box.recorder.of("failed")
    assert isinstance(event.error, TimeLimitExceeded)
    assert "OSError: while cleaning up" in box.jobs.failed()[0].failure.traceback


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handler_that_returns_after_its_time_out_has_failed(box: Any, kind: str) -> None:
    """A function and a coroutine alike, also one that goes on in spite of being cancelled."""

    @box.jobs.handler("sync", timeout=SHORT, retries=0)
    def handle(job: Note) -> None:
        time.sleep(0.3)

    @box.jobs.handler("async", timeout=SHORT, retries=0)
    async def handle_async(job: box.Note) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    box.jobs.dispatch_kind(kind, Note("x") if kind == "sync" else box.Note("x"))
    box.drain()

    assert box.recorder.steps() == ["dispatched", "failed"]
    assert isinstance(box.recorder.of("failed")[0].error, TimeLimitExceeded)


def test_a_cancelled_handler_may_use_time_limits_of_its_own(box: Any) -> None:
    """asyncio.timeout within a handler is an ordinary failure, and ours is not mistaken for it."""

    @box.jobs.handler("note", retries=0)
    async def handle(job: Note) -> None:
        async with asyncio.timeout(0.05):
            await asyncio.sleep(60)

    box.jobs.dispatch(Note("x"))
    box.drain()

    (event,) = box.recorder.of("failed")
    assert type(event.error) is TimeoutError


def test_an_overdue_thread_keeps_its_job_until_it_has_ended(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The attempt has failed, but its retry waits: a job never overlaps itself."""
    lock = threading.Lock()
    go = threading.Event()
    overlaps = []
    numbers = []

    @box.jobs.handler("note", timeout=SHORT, retries=1, backoff=AT_ONCE)
    def handle(job: Note) -> None:
        overlaps.append(not lock.acquire(blocking=False))
        numbers.append(current_attempt().number)
        if numbers == [1]:
            go.wait()
        lock.release()

    box.jobs.dispatch(Note("x"))
    running = box.start(concurrency=4)
    box.until(lambda: "is over its time-out of 0.1 s" in caplog.text)
    time.sleep(0.3)

    assert numbers == [1]
    assert box.counts() == (0, 0, 1, 0)
    go.set()
    box.until(lambda: box.recorder.of("processed"))
    running.stop()
    running.end()

    assert (numbers, overlaps) == ([1, 2], [False, False])
    assert box.recorder.steps() == ["dispatched", "failed", "processed"]


def test_the_record_of_an_overdue_thread_says_where_it_was(box: Any) -> None:
    """It has raised nothing, so its place is all there is to go by."""

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    def handle(job: Note) -> None:
        time.sleep(0.5)  # this line

    box.jobs.dispatch(Note("x"))
    box.drain()

    (failed,) = box.jobs.failed()
    assert "this line" in failed.failure.traceback
    assert failed.failure.type.endswith("TimeLimitExceeded")


def test_an_overdue_thread_occupies_its_slot(box: Any) -> None:
    """With one slot nothing else runs, with two the other one goes on."""
    go = threading.Event()
    done = []

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    def handle(job: Note) -> None:
        if job.text == "hang":
            go.wait()
        done.append(job.text)

    box.jobs.dispatch(Note("hang"))
    one = box.start(concurrency=1)
    box.until(lambda: box.counts()[2] == 1)
    box.jobs.dispatch(Note("a"))
    time.sleep(0.4)
    assert done == []

    two = box.start(concurrency=1)
    box.until(lambda: done == ["a"])
    go.set()
    for running in (one, two):
        running.stop()
        running.end()


@pytest.mark.parametrize(
    "limits",
    [{"max_visibility": timedelta(hours=12)}, {"leases": False, "max_hold": timedelta(minutes=30)}],
)
def test_a_time_out_that_the_backend_cannot_keep_is_warned_about(
    box: Any, caplog: pytest.LogCaptureFixture, limits: dict[str, Any]
) -> None:
    """Before it has run twice."""

    class Limited(MemoryQueue):
        guarantees = dataclasses.replace(MemoryQueue().guarantees, **limits)

    box.on(Limited())

    @box.jobs.handler("long", timeout=timedelta(hours=13))
    def long(job: Note) -> None: ...

    @box.jobs.handler("short", timeout=timedelta(minutes=30))
    def short(job: box.Note) -> None: ...

    box.drain()

    warnings = [each.getMessage() for each in caplog.records if each.name.startswith("hypercube")]
    assert len(warnings) == 1
    assert warnings[0].startswith("jobs of the kind long may take 13:00:00, but the backend takes")


def test_time_limits_hold_for_many_at_once(box: Any) -> None:
    """Each by its own start, and the ones in time are untouched."""

    @box.jobs.handler("note", timeout=timedelta(seconds=0.4), retries=0)
    async def handle(job: Note) -> None:
        await asyncio.sleep(float(job.text))

    for number in range(60):
        box.jobs.dispatch(Note("0.05" if number % 2 else "60"))
    box.drain(concurrency=10)

    assert box.counts() == (0, 0, 0, 30)
    assert len(box.recorder.of("processed")) == 30
