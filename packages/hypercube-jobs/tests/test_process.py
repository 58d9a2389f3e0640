"""Running one delivery without a worker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Constant, PermanentError, current_attempt, process
from hypercube_queue import BackendError, Message, NotFound
from hypercube_queue_memory import MemoryQueue

SOON = timedelta(milliseconds=20)


@dataclass
class Note:
    """A job."""

    text: str


def pop(box: Any) -> Message:
    (message,) = box.queue.pop("default", wait=timedelta(0))
    return message


def test_a_delivery_is_run_here_and_settled(box: Any) -> None:
    """Synchronous ones in this thread, asynchronous ones on a loop of their own."""
    seen = []

    @box.jobs.handler("sync")
    def sync(job: Note) -> None:
        seen.append((job.text, current_attempt().number, threading.current_thread()))

    @box.jobs.handler("async")
    async def asynchronous(job: Note) -> None:
        await asyncio.sleep(0)
        seen.append((job.text, current_attempt().number, threading.current_thread()))

    box.jobs.dispatch_kind("sync", Note("a"))
    box.jobs.dispatch_kind("async", Note("b"))
    process(box.jobs, pop(box))
    process(box.jobs, pop(box))

    here = threading.current_thread()
    assert seen == [("a", 1, here), ("b", 1, here)]
    assert box.counts() == (0, 0, 0, 0)
    assert box.recorder.steps() == ["dispatched", "dispatched", "processed", "processed"]
    assert current_attempt() is None


def test_a_failure_is_recorded_and_not_raised(box: Any) -> None:
    """With its retries and its end among the dead, as a worker does it."""

    @box.jobs.handler("note", retries=1, backoff=Constant(timedelta(0)))
    def note(job: Note) -> None:
        if job.text == "never":
            raise PermanentError("gone")
        if job.text == "exit":
            raise SystemExit(3)
        raise ValueError("no")

    box.jobs.dispatch(Note("x"))
    process(box.jobs, pop(box))
    process(box.jobs, pop(box))
    box.jobs.dispatch(Note("never"))
    process(box.jobs, pop(box))
    box.jobs.dispatch(Note("exit"), retries=0)
    process(box.jobs, pop(box))

    assert [(event.attempt, event.final) for event in box.recorder.of("failed")] == [
        (1, False),
        (2, True),
        (1, True),
        (1, True),
    ]
    reasons = [failed.reason for failed in box.jobs.failed()]
    assert reasons == ["SystemExit: 3", "hypercube_jobs.PermanentError: gone", "ValueError: no"]


@pytest.mark.parametrize("kind", ["sync", "async", "stubborn"])
def test_an_attempt_over_its_time_out_has_failed(box: Any, kind: str) -> None:
    """Asynchronous ones are cancelled, and whatever returns late has failed."""

    @box.jobs.handler("sync", timeout=SOON, retries=0)
    def sync(job: Note) -> None:
        time.sleep(0.1)

    @box.jobs.handler("async", timeout=SOON, retries=0)
    async def asynchronous(job: Note) -> None:
        await asyncio.sleep(60)

    @box.jobs.handler("stubborn", timeout=SOON, retries=0)
    async def stubborn(job: Note) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    box.jobs.dispatch_kind(kind, Note("x"))
    process(box.jobs, pop(box))

    (failed,) = box.jobs.failed()
    assert failed.reason.startswith("hypercube_jobs.TimeLimitExceeded: the attempt took longer")


def test_the_lease_is_extended_meanwhile(box: Any) -> None:
    """A job may take longer than its lease."""
    jobs = box.on(MemoryQueue(visibility_timeout=timedelta(milliseconds=300)))

    @jobs.handler("note")
    def note(job: Note) -> None:
        time.sleep(1)

    jobs.dispatch(Note("x"))
    process(jobs, pop(box))

    assert box.recorder.steps() == ["dispatched", "processed"]


def test_a_lost_lease_is_told_and_the_result_dropped(box: Any) -> None:
    """Somebody else may be running the job by now."""

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        box.queue.ack(message)

    box.jobs.dispatch(Note("x"))
    message = pop(box)
    with pytest.raises(NotFound):
        process(box.jobs, message)

    assert box.recorder.steps() == ["dispatched", "lost"]


def test_what_the_settlement_raises_is_raised(box: Any) -> None:
    """Plainly; the job comes back when its lease ends."""

    class Down(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            raise BackendError("the server is away", outcome_unknown=True)

    jobs = box.on(Down())
    jobs.declare("note", Note)
    jobs.handler("note")(lambda job: None)
    jobs.dispatch(Note("x"))
    with pytest.raises(BackendError, match="the server is away"):
        process(jobs, pop(box))

    assert box.recorder.steps() == ["dispatched"]


def test_a_keyboard_interrupt_settles_nothing(box: Any) -> None:
    """The user wants out, and the job is not to blame."""

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        raise KeyboardInterrupt

    box.jobs.dispatch(Note("x"))
    with pytest.raises(KeyboardInterrupt):
        process(box.jobs, pop(box))

    assert box.counts() == (0, 0, 1, 0)


def test_a_job_that_always_ends_its_process_is_dead(box: Any) -> None:
    """Deliveries that left no record count, as in a worker: first as a suspicion only."""
    box.on(MemoryQueue(visibility_timeout=SOON))
    box.jobs.declare("note", Note, retries=0)
    ran = []
    box.jobs.handler("note")(ran.append)
    box.jobs.dispatch(Note("x"))
    for _ in range(3):
        pop(box)
        time.sleep(0.05)
    process(box.jobs, pop(box))
    assert (ran, box.counts()) == ([], (1, 0, 0, 0))
    pop(box)
    time.sleep(0.05)
    process(box.jobs, pop(box))

    (failed,) = box.jobs.failed()
    assert "WorkerLost" in failed.reason
