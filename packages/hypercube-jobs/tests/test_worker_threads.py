"""The threads of a worker: none of them ends or hangs without a word."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import (
    Constant,
    Every,
    Jobs,
    Observer,
    Retry,
    Scheduler,
    Worker,
    WorkerFailed,
    current_attempt,
    process,
)
from hypercube_jobs._command._schedule import scheduling
from hypercube_jobs.worker import _execution, _watch
from hypercube_jobs.worker._event_loop import EventLoop
from hypercube_jobs.worker._execution import Execution
from hypercube_jobs.worker._leases import Leases
from hypercube_jobs.worker._settlement import Settlement
from hypercube_queue import open_queue
from hypercube_queue_memory import MemoryQueue

AT_ONCE = Constant(timedelta(0))


@dataclass
class Note:
    """The job of these tests."""

    text: str


async def exits() -> None:
    await asyncio.sleep(0)
    sys.exit(3)


async def exits_at_once() -> None:
    sys.exit(3)


async def is_interrupted() -> None:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


class LoudText(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit(3)


class LoudRepr(LoudText):
    """Nor can anything else."""

    def __repr__(self) -> str:
        raise SystemExit(3)

    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise SystemExit(3)


class Homeless(Exception):
    """Of no module, as some that are made by C code or by metaclasses."""


Homeless.__module__ = None  # type: ignore[assignment]


class LoudType(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise SystemExit(3)


class OfLoudType(Exception, metaclass=LoudType):
    pass


class LoudRetry(Retry):
    def __init__(self) -> None:
        pass

    @property
    def delay(self) -> timedelta:  # type: ignore[override]
        raise SystemExit(3)


class Word(str):
    """A str with ideas of its own."""

    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit(3)

    __format__ = __getitem__ = __len__  # type: ignore[assignment]


class OddText(Exception):
    def __str__(self) -> str:
        return Word("odd")


ERRORS: list[Callable[[], BaseException]] = [
    LoudText,
    LoudRepr,
    Homeless,
    OfLoudType,
    LoudRetry,
    OddText,
    GeneratorExit,
    SystemExit,
    KeyboardInterrupt,
    lambda: ExceptionGroup("several", [LoudText(), Homeless(), OfLoudType()]),
    lambda: BaseExceptionGroup("several", [GeneratorExit(), SystemExit()]),
]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("make", ERRORS, ids=lambda make: getattr(make, "__qualname__", "?"))
def test_whatever_a_handler_raises_is_a_failed_attempt(
    box: Any, make: Callable[[], BaseException], *, is_async: bool
) -> None:
    """Recorded and logged; the worker goes on with the next job, on the same slot."""
    done: list[str] = []

    def run(job: Note) -> None:
        if job.text == "good":
            done.append(job.text)
            return
        raise make()

    if is_async:

        @box.jobs.handler("note", retries=1, backoff=AT_ONCE)
        async def handle_async(job: Note) -> None:
            await asyncio.sleep(0)
            run(job)

    else:

        @box.jobs.handler("note", retries=1, backoff=AT_ONCE)
        def handle(job: Note) -> None:
            run(job)

    box.jobs.dispatch(Note("bad"))
    box.drain()
    box.jobs.dispatch(Note("good"))
    box.drain()

    assert done == ["good"]
    assert box.counts() == (0, 0, 0, 1)
    (failed,) = box.jobs.failed()
    assert failed.attempt == 2
    assert [event.final for event in box.recorder.of("failed")] == [False, True]


@pytest.mark.parametrize("make", ERRORS, ids=lambda make: getattr(make, "__qualname__", "?"))
def test_an_asynchronous_handler_may_raise_anything_before_it_waits(
    box: Any, make: Callable[[], BaseException]
) -> None:
    """Its first step is taken by the event loop itself."""

    @box.jobs.handler("note", retries=0)
    async def handle(job: Note) -> None:
        raise make()

    box.jobs.dispatch(Note("a"))
    box.jobs.dispatch(Note("b"))
    box.drain()

    assert box.counts() == (0, 0, 0, 2)


@pytest.mark.parametrize("make", ERRORS[:6], ids=lambda make: getattr(make, "__qualname__", "?"))
def test_a_loop_of_ones_own_records_whatever_is_raised(
    box: Any, make: Callable[[], BaseException]
) -> None:
    """`process` does as a worker does."""

    @box.jobs.handler("note", retries=0)
    def handle(job: Note) -> None:
        raise make()

    box.jobs.dispatch(Note("a"))
    [message] = box.queue.pop("default")
    process(box.jobs, message)

    assert box.counts() == (0, 0, 0, 1)


@pytest.mark.parametrize("sub", [exits, exits_at_once, is_interrupted])
@pytest.mark.parametrize("time_", range(10))
def test_an_exit_in_a_task_of_a_handler_ends_no_event_loop(
    url_of_threads: str, box: Any, caplog: pytest.LogCaptureFixture, sub: Any, time_: int
) -> None:
    """The attempt that waits for the task has failed, and all other jobs go on."""
    done: list[str] = []
    waiting = asyncio.Event()

    with open_queue(url_of_threads) as queue:
        jobs: Jobs = box.on(queue)

        @jobs.handler("note", retries=0)
        async def handle(job: Note) -> None:
            if job.text == "exit":
                await asyncio.gather(sub())
            elif job.text == "long":
                await waiting.wait()
            else:
                waiting.set()
            done.append(job.text)

        jobs.dispatch(Note("long"))
        running = box.start(concurrency=4)
        box.until(lambda: queue.stats("default").in_flight == 1)
        jobs.dispatch(Note("exit"))
        box.until(lambda: queue.stats("default").dead == 1, "the exit is no failed attempt")
        jobs.dispatch(Note("after"))
        box.until(lambda: sorted(done) == ["after", "long"], "the event loop is dead")
        running.stop()
        running.end()

        [failed] = jobs.failed()
        assert failed.failure.type in {"SystemExit", "KeyboardInterrupt"}
        assert box.counts() == (0, 0, 0, 1)
    assert "on the event loop of the asynchronous handlers, which goes on" in caplog.text


def test_a_callback_of_the_event_loop_may_exit_as_well(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It belongs to no job, so it is only told."""
    done = []

    @box.jobs.handler("note", retries=0)
    async def handle(job: Note) -> None:
        loop = asyncio.get_running_loop()
        if job.text == "exit":
            loop.call_soon(sys.exit)
        elif job.text == "stop":
            loop.stop()
        await asyncio.sleep(0.01)
        done.append(job.text)

    for text in ("exit", "stop", "after"):
        box.jobs.dispatch(Note(text))
    box.drain()

    assert done == ["exit", "stop", "after"]
    assert "SystemExit was raised on the event loop" in caplog.text
    assert "a handler has stopped the event loop" in caplog.text


def test_an_observer_that_exits_stops_no_settlement(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What an observer raises is logged and changes nothing, whatever it is."""

    class Exits(Observer):
        def processed(self, event: Any) -> None:
            raise {"exit": SystemExit, "interrupt": KeyboardInterrupt}[event.id](3)

    box.jobs.add_observer(Exits())
    box.jobs.handler("note")(handle_nothing)
    for id in ("exit", "interrupt"):
        box.jobs.dispatch(Note("x"), id=id)
    running = box.start()
    box.until(lambda: box.counts() == (0, 0, 0, 0))
    running.stop()
    running.end()

    assert "the observer Exits raised when job exit was processed" in caplog.text
    assert "cannot be told; it is done all the same" in caplog.text


def test_a_handler_of_the_log_that_fails_costs_no_settlement(
    box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of its batch are settled, and not only those before it."""

    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("disk full")

    handler = Broken()
    log = logging.getLogger("hypercube_jobs.worker.jobs")
    box.jobs.handler("note", retries=0)(handle_nothing)
    box.jobs.dispatch_kind("note", Note("x"))
    monkeypatch.setattr(log, "propagate", False)
    log.addHandler(handler)
    try:
        box.drain()
    finally:
        log.removeHandler(handler)

    assert box.counts() == (0, 0, 0, 0)


def handle_nothing(job: Note) -> None: ...


def fails(*_args: object, **_options: object) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("part", "method", "thread"),
    [
        (Settlement, "_next_batch", "hypercube-settle"),
        (Leases, "_extend_due", "hypercube-leases"),
        (Execution, "next_due", "hypercube-watch"),
        (Execution, "_begin_sync", "hypercube-job"),
        (Execution, "begin_async", "the event loop"),
        (EventLoop, "_run_until_stopped", "hypercube-event-loop"),
        (asyncio.Runner, "get_loop", "hypercube-event-loop"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_thread_that_dies_ends_the_worker(
    box: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: Any,
    method: str, thread: str,
) -> None:  # fmt: skip
    """With an error, for whoever starts processes; and what has been popped is still there."""
    box.on(MemoryQueue(visibility_timeout=timedelta(seconds=1)))
    box.jobs.handler("note")(handle_nothing)

    @box.jobs.handler("note_async")
    async def handle_async(job: Note) -> None:
        await asyncio.sleep(0)

    kind = "note_async" if "loop" in thread else "note"
    with monkeypatch.context() as patch:
        patch.setattr(part, method, fails)
        running = box.start()
        box.jobs.dispatch_kind(kind, Note("x"))
        with pytest.raises(WorkerFailed, match=f"{thread} has died of SystemExit: 3"):
            running.end()
    assert f"{thread} has died of SystemExit; the worker lets running jobs end" in caplog.text

    box.until(lambda: box.counts()[0] == 1 or box.counts() == (0, 0, 0, 0))
    box.drain()
    assert box.counts() == (0, 0, 0, 0)


def test_an_event_loop_that_breaks_fails_what_runs_on_it(
    box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else could ever end these attempts."""
    broken = threading.Event()

    @box.jobs.handler("note", retries=1, backoff=AT_ONCE)
    async def handle(job: Note) -> None:
        if current_attempt().number > 1:
            return
        if job.text == "break":
            loop = asyncio.get_running_loop()
            selector = loop._selector  # type: ignore[attr-defined]
            monkeypatch.setattr(selector, "select", raise_os_error)
            broken.set()
        await asyncio.sleep(60)

    def raise_os_error(_timeout: object = None) -> Any:
        raise OSError("Bad file descriptor")

    for text in ("a", "b", "break"):
        box.jobs.dispatch(Note(text))
    running = box.start(concurrency=3)
    assert broken.wait(30)
    with pytest.raises(WorkerFailed, match="hypercube-event-loop has died of OSError: Bad file"):
        running.end()
    assert len(box.recorder.of("failed")) == 3
    box.drain(concurrency=3)
    assert box.counts() == (0, 0, 0, 0)


def test_a_pop_that_exits_ends_the_worker(box: Any) -> None:
    """With one queue and with several, where pops wait in threads of their own."""

    class Exits(MemoryQueue):
        def pop(self, *args: Any, wait: timedelta | None = None) -> Any:
            if wait:
                raise SystemExit(3)
            return super().pop(*args, wait=wait)

    box.on(Exits())
    box.jobs.handler("note")(handle_nothing)
    for queues in (["default"], ["default", "other"]):
        with pytest.raises(WorkerFailed, match="the worker has died of SystemExit"):
            box.start(queues=queues).end()


def test_a_backoff_that_exits_is_replaced_by_the_default(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that raises anything else."""

    @box.jobs.handler("note", retries=1, backoff=fails)
    def handle(job: Note) -> None:
        raise ValueError

    box.jobs.dispatch(Note("x"))
    running = box.start()
    box.until(lambda: box.counts()[1] == 1)
    running.stop()
    running.end()
    assert "raised SystemExit: 3 after failure 1; the default is used" in caplog.text


def test_a_scheduler_that_dies_ends_its_worker(
    box: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else nothing would be scheduled any more, and nobody would know."""
    box.jobs.handler("note")(handle_nothing)
    box.jobs.schedule("often", Every(timedelta(minutes=1)), Note("x"))
    monkeypatch.setattr(Scheduler, "look", fails)
    worker = Worker(box.jobs)
    with (
        pytest.raises(WorkerFailed, match="the scheduler has died of SystemExit"),
        scheduling(Scheduler(box.jobs), worker.stop),
    ):
        worker.run()
    assert "hypercube-scheduler has died; the worker stops" in caplog.text


def test_a_periodic_job_whose_function_exits_stops_no_others(box: Any) -> None:
    """It is logged as any other error of the application's."""
    box.jobs.declare("note", Note)
    box.jobs.schedule("exits", Every(timedelta(seconds=20)), fails)
    box.jobs.schedule("good", Every(timedelta(seconds=20)), Note("x"))
    Scheduler(box.jobs).look()
    assert box.counts()[1] > 0


def test_a_thread_that_hangs_is_told_of(
    box: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here an observer keeps settlements from getting on; the log says where it is."""
    monkeypatch.setattr(_watch, "_STUCK", 0.2)
    monkeypatch.setattr(_execution, "_LOOK", 0.05)
    caplog.set_level("INFO")
    go = threading.Event()

    class Hangs(Observer):
        def processed(self, event: Any) -> None:
            go.wait()  # the line that hangs

    box.jobs.add_observer(Hangs())
    box.jobs.handler("note")(handle_nothing)
    box.jobs.dispatch(Note("x"))
    running = box.start()
    try:
        box.until(lambda: "has not got on for 0 s, and this worker cannot go on" in caplog.text)
        assert "go.wait()  # the line that hangs" in caplog.text
    finally:
        go.set()
    box.until(lambda: "settling jobs, or an observer that is told of them, gets on" in caplog.text)
    running.stop()
    running.end()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (0, "hypercube-job has died of RuntimeError: can't start new thread"),
        (2, "so fewer jobs run at once: 2 instead of 5"),
    ],
)
def test_a_system_without_threads_is_told_of(
    box: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: int,
    text: str,
) -> None:  # fmt: skip
    """With some of them it goes on, without any it cannot."""
    start = threading.Thread.start
    left = [None] * given

    def scarce(thread: threading.Thread) -> None:
        if thread.name == "hypercube-job" and (not left or left.pop()):
            raise RuntimeError("can't start new thread")
        start(thread)

    done: list[str] = []
    together = threading.Barrier(max(given, 1))

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        together.wait(30)
        done.append(job.text)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    for _ in range(4):
        box.jobs.dispatch(Note("x"))
    running = box.start(concurrency=5)
    if given:
        box.until(lambda: len(done) == 4)
        running.stop()
        running.end()
        assert text in caplog.text
    else:
        with pytest.raises(WorkerFailed, match=text):
            running.end()
        assert box.counts() == (4, 0, 0, 0)
