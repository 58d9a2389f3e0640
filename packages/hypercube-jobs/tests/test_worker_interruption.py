"""Synchronous handlers that are interrupted, and such that are left behind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Constant, Ending, ThreadInterrupt, TimeLimitExceeded, current_attempt
from hypercube_jobs.worker import _interruption
from hypercube_jobs.worker._interruption import Interruption, Turn
from hypercube_queue_memory import MemoryQueue

AT_ONCE = Constant(timedelta(0))
SHORT = timedelta(seconds=0.1)


@dataclass
class Note:
    """The job of these tests."""

    text: str


def spin(seconds: float = 30.0) -> None:
    """Take some time between steps of Python, where an interruption can come up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.001)


def test_a_thread_over_its_time_out_is_interrupted(box: Any) -> None:
    """It may clean up; the attempt has failed, and the next one gets the same thread."""
    seen = []

    @box.jobs.handler("note", timeout=SHORT, retries=1, backoff=AT_ONCE)
    def handle(job: Note) -> None:
        try:
            spin()
        finally:
            seen.append((current_attempt().number, threading.get_ident()))

    box.jobs.dispatch(Note("x"))
    box.drain(interrupt_threads=True)

    assert [number for number, _ in seen] == [1, 2]
    assert len({thread for _, thread in seen}) == 1
    (failed,) = box.jobs.failed()
    assert failed.reason.endswith("took longer than its time-out, 0:00:00.100000")
    assert "in spin" in failed.failure.traceback
    assert isinstance(box.recorder.of("failed")[0].error, TimeLimitExceeded)


def test_an_interruption_is_no_exception_to_swallow(box: Any) -> None:
    """A loop that tries again after every Exception still comes to its end."""
    tries = []

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    def handle(job: Note) -> None:
        for _ in range(50):
            tries.append(1)
            try:
                spin()
            except Exception:  # noqa: BLE001  # as such loops do
                continue

    box.jobs.dispatch(Note("x"))
    box.drain(interrupt_threads=True)

    assert len(tries) == 1
    assert box.counts() == (0, 0, 0, 1)


def test_after_its_stop_timeout_a_worker_interrupts_threads(box: Any) -> None:
    """At no cost, as with asynchronous handlers."""
    began = threading.Event()

    @box.jobs.handler("note", retries=0)
    def handle(job: Note) -> None:
        began.set()
        spin()

    box.jobs.dispatch(Note("x"))
    running = box.start(interrupt_threads=True, stop_timeout=SHORT)
    began.wait()
    running.stop()
    running.end()

    assert box.recorder.steps() == ["dispatched", "interrupted"]
    (message,) = box.queue.pop("default")
    record = json.loads(message.extra)
    assert (record["free"], record["interrupted"], message.attempt) == (1, 1, 2)


def test_a_lost_lease_interrupts_a_thread(box: Any) -> None:
    """What it still did would be done twice."""

    class Loses(MemoryQueue):
        def extend_visibility(self, extension: timedelta, *messages: Any) -> None:
            others = MemoryQueue(visibility_timeout=SHORT)
            others.extend_visibility(extension, *messages)

    box.on(Loses(visibility_timeout=timedelta(seconds=0.3)))
    ends = []

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        try:
            if not ends:
                spin()
        except ThreadInterrupt:
            ends.append(current_attempt().lost)
            raise

    box.jobs.dispatch(Note("x"))
    running = box.start(interrupt_threads=True)
    box.until(lambda: box.recorder.of("processed"))
    running.stop()
    running.end()

    assert ends == [True]
    assert box.recorder.steps() == ["dispatched", "lost", "processed"]


def test_an_interruption_never_hits_the_job_after_it() -> None:
    """Whenever it comes up: in the handler, behind it, or not at all."""
    interruption = Interruption()
    attempts = [Attempt(seconds=number % 20 / 10_000) for number in range(400)]
    survived: list[Attempt] = []
    stray: list[BaseException] = []

    def handle(held: Attempt) -> None:
        end = time.perf_counter() + held.seconds
        while time.perf_counter() < end:
            pass

    def serve() -> None:
        try:
            for held in attempts:
                interruption.run(held, contextvars.copy_context(), handle)
                spin(0.0002)
                survived.append(held)
        except ThreadInterrupt as error:
            stray.append(error)

    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        thread = threading.Thread(target=serve)
        thread.start()
        while thread.is_alive():
            for held in list(interruption._turns):
                time.sleep(0.0005)
                interruption.interrupt(held)
    finally:
        sys.setswitchinterval(former)

    assert (stray, survived) == ([], attempts)
    assert {type(held.error) for held in attempts} == {type(None), ThreadInterrupt}


def test_an_interruption_that_comes_too_late_changes_nothing() -> None:
    """The handler has returned, so its job is done."""
    interruption = Interruption()
    held = Attempt(seconds=0)

    class Late(dict[Attempt, Turn]):
        """Lets the interruption come up on the way out of the handler."""

        def pop(self, key: Attempt, default: Any = None) -> Any:
            turn = super().pop(key, default)
            _interruption._raise_in(threading.get_ident(), ThreadInterrupt)
            turn.interrupted = True
            spin(1)

    returned: list[Attempt] = []
    interruption._turns = Late()
    interruption.run(held, contextvars.copy_context(), returned.append)
    spin(0.01)

    assert (returned, held.error, interruption._turns) == ([held], None, {})


@dataclass(eq=False)
class Attempt:
    """All of a delivery that an interruption needs."""

    seconds: float
    error: BaseException | None = None


def test_a_promised_end_of_the_process_lets_a_thread_be_left(box: Any) -> None:
    """After its stop_timeout the job is back at no cost, but not before the process has gone."""
    go = threading.Event()
    began = threading.Event()

    @box.jobs.handler("note", retries=0)
    def handle(job: Note) -> None:
        began.set()
        go.wait()

    box.jobs.dispatch(Note("x"))
    running = box.start(process_ends=True, stop_timeout=SHORT)
    began.wait()
    running.stop()
    running.end()

    assert running.worker.abandoned == 1
    assert box.counts() == (0, 1, 0, 0)
    assert box.recorder.steps() == ["dispatched", "interrupted"]
    go.set()
    box.until(lambda: not _handlers())
    assert box.counts() == (0, 1, 0, 0), "what the thread came to is of no interest any more"
    box.until(lambda: box.counts() == (1, 0, 0, 0))
    (message,) = box.queue.pop("default")
    assert json.loads(message.extra)["interrupted"] == 1


@pytest.mark.parametrize("reason", ["time-out", "shutdown"])
@pytest.mark.parametrize("kind", ["sync", "blocks", "swallows"])
def test_what_is_abandoned_is_never_done(
    box: Any, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    """Whatever keeps it from ending: it is tried again, after its process has gone."""
    monkeypatch.setattr("hypercube_jobs.worker._coordinator.CLEAN_UP", 0.2)
    began = threading.Event()
    go = threading.Event()
    limit = timedelta(seconds=0.1 if reason == "time-out" else 60)
    box.jobs.declare("job", Note, timeout=limit, retries=1)
    if kind == "sync":

        @box.jobs.handler("job")
        def sync(job: Note) -> None:
            began.set()
            go.wait()

    elif kind == "blocks":

        @box.jobs.handler("job")
        async def blocks(job: Note) -> None:
            began.set()
            go.wait()

    else:

        @box.jobs.handler("job")
        async def swallows(job: Note) -> None:
            began.set()
            while not go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)

    box.jobs.dispatch(Note("x"))
    running = box.start(process_ends=True)
    began.wait()
    running.stop(now=reason == "shutdown")
    running.end()
    go.set()

    assert running.worker.abandoned == 1
    assert box.counts() == (0, 1, 0, 0)
    outcome = "failed" if reason == "time-out" else "interrupted"
    assert box.recorder.steps() == ["dispatched", outcome]
    box.until(lambda: not _handlers())


def test_an_overrun_ends_a_worker_that_may_be_replaced(box: Any) -> None:
    """It pops no more, lets the others end, and records the attempt as failed."""
    go = threading.Event()
    ended = []

    @box.jobs.handler("note", timeout=timedelta(seconds=0.3), retries=1, backoff=AT_ONCE)
    def handle(job: Note) -> None:
        go.wait()

    @box.jobs.handler("other")
    def other(job: box.Note) -> None:
        time.sleep(0.8)
        ended.append(job.text)

    box.jobs.dispatch(Note("x"))
    box.jobs.dispatch(box.Note("other"))
    running = box.start(concurrency=2, process_ends=True, end_on_overrun=True)
    running.end()

    assert running.returned is Ending.OVERRUN
    assert ended == ["other"]
    assert running.worker.abandoned == 1
    assert box.counts() == (0, 1, 0, 0)
    (event,) = box.recorder.of("failed")
    assert isinstance(event.error, TimeLimitExceeded)
    go.set()
    box.until(lambda: not _handlers())
    box.jobs.dispatch(box.Note("next"))
    assert box.counts() == (1, 1, 0, 0), "a worker that has ended pops nothing"


def test_a_last_attempt_that_overruns_is_dead(box: Any) -> None:
    """With the place where it hung."""
    go = threading.Event()

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    def handle(job: Note) -> None:
        go.wait()  # here

    box.jobs.dispatch(Note("x"))
    running = box.start(process_ends=True, end_on_overrun=True)
    running.end()
    go.set()

    assert box.counts() == (0, 0, 0, 1)
    assert "# here" in box.jobs.failed()[0].failure.traceback


def test_who_can_be_interrupted_is_not_left_behind(box: Any) -> None:
    """The process ends only for a thread that goes on nevertheless."""

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    def handle(job: Note) -> None:
        spin()

    box.jobs.dispatch(Note("x"))
    running = box.start(
        interrupt_threads=True, process_ends=True, end_on_overrun=True, stop_when_empty=True
    )
    running.end()

    assert (running.returned, running.worker.abandoned) == (Ending.EMPTY, 0)
    assert box.counts() == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        ({"stop_when_empty": True}, Ending.EMPTY),
        ({"max_jobs": 1}, Ending.MAX_JOBS),
    ],
)
def test_a_worker_says_why_it_has_ended(box: Any, options: dict[str, Any], ending: Ending) -> None:
    """A program that started it may want to go on or not."""

    @box.jobs.handler("note")
    def handle(job: Note) -> None: ...

    box.jobs.dispatch(Note("x"))
    running = box.start(**options)
    running.end()
    assert running.returned is ending

    stopped = box.start()
    stopped.stop()
    stopped.end()
    assert stopped.returned is Ending.STOPPED


def _handlers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hypercube-job"]
