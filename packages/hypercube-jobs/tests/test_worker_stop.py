"""How a worker ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Constant, Worker, current_attempt
from hypercube_queue_memory import MemoryQueue

SHORT = timedelta(seconds=0.1)
LONG = timedelta(minutes=5)


@dataclass
class Note:
    """The job of these tests."""

    text: str


class NoRelease(MemoryQueue):
    """A driver without the capability Releaser."""

    release = None


def test_what_runs_may_end_and_what_waits_goes_back(box: Any) -> None:
    """At once, and without using an attempt."""
    go = threading.Event()
    numbers = []

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        numbers.append(current_attempt().number)
        if job.text == "long":
            go.wait()

    for _ in range(50):
        box.jobs.dispatch(Note("short"))
    box.drain()  # so that run times are known to nobody: each worker learns its own
    for number in range(600):
        box.jobs.dispatch(Note("long" if number == 150 else "short"))
    running = box.start()
    box.until(lambda: len(numbers) == 50 + 151)
    running.stop()
    box.until(lambda: box.counts()[2] == 1, "only the running one is held")
    assert box.counts() == (449, 0, 1, 0)
    assert not running.ended
    go.set()
    running.end()

    assert box.counts() == (449, 0, 0, 0)
    box.drain()
    assert set(numbers) == {1}
    assert len(numbers) == 650


def test_without_release_what_waits_goes_back_as_a_free_delivery(box: Any) -> None:
    """ATT-1: the number of free deliveries is in the record, and handlers do not see them."""
    box.on(NoRelease())
    go = threading.Event()
    numbers = []

    @box.jobs.handler("note", retries=0)
    def handle(job: Note) -> None:
        numbers.append((current_attempt().number, current_attempt().last))
        if job.text == "long":
            go.wait()

    for number in range(400):
        box.jobs.dispatch(Note("long" if number == 100 else "short"))
    running = box.start()
    box.until(lambda: len(numbers) == 101)
    running.stop()
    box.until(lambda: box.counts()[2] == 1)
    go.set()
    running.end()
    messages = box.queue.pop("default", 1_000)
    free = [json.loads(message.extra).get("free", 0) for message in messages]
    assert len(messages) == 299
    assert max(free) >= 1
    assert all(message.attempt == 1 + count for message, count in zip(messages, free, strict=True))
    box.queue.release = lambda *some: MemoryQueue.release(box.queue, *some)
    box.queue.release(*messages)
    box.drain()

    assert set(numbers) == {(1, True)}
    assert box.counts() == (0, 0, 0, 0)


def test_finished_jobs_are_settled_before_the_end(box: Any) -> None:
    """However long they might have waited for others."""

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        running.stop()

    running = box.start(settle_after=LONG)
    box.jobs.dispatch(Note("x"))
    running.end()

    assert box.counts() == (0, 0, 0, 0)


def test_a_worker_that_was_stopped_before_it_ran_does_nothing(box: Any) -> None:
    """A stop may come from anywhere at any time."""
    box.jobs.declare("note", Note)
    box.jobs.dispatch(Note("x"))
    worker = Worker(box.jobs)
    worker.stop()
    worker.run()

    assert box.counts() == (1, 0, 0, 0)


def test_after_its_stop_timeout_it_cancels_asynchronous_handlers(box: Any) -> None:
    """They go back at no cost, and are ready at once."""
    cancelled = []

    @box.jobs.handler("note", retries=0)
    async def handle(job: Note) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(current_attempt().number)
            raise

    for _ in range(3):
        box.jobs.dispatch(Note("x"))
    running = box.start(concurrency=3, stop_timeout=SHORT)
    box.until(lambda: box.counts() == (0, 0, 3, 0))
    time.sleep(0.05)
    running.stop()
    running.end()

    assert cancelled == [1, 1, 1]
    assert box.counts() == (3, 0, 0, 0)
    assert box.recorder.steps().count("interrupted") == 3
    for message in box.queue.pop("default", 3):
        record = json.loads(message.extra)
        assert (record["free"], record["interrupted"], message.attempt) == (1, 1, 2)


def test_three_interruptions_in_a_row_are_free_and_later_ones_are_not(box: Any) -> None:
    """A job that outlasts every deploy must come to an end."""
    numbers = []

    @box.jobs.handler("note", retries=1, backoff=Constant(timedelta(0)))
    async def handle(job: Note) -> None:
        numbers.append((current_attempt().number, current_attempt().last))
        await asyncio.sleep(60)

    box.jobs.dispatch(Note("x"))
    steps = []
    for shutdown in range(1, 6):
        running = box.start()
        box.until(lambda shutdown=shutdown: len(numbers) == shutdown)
        running.stop(now=True)
        running.end()
        steps.append(box.recorder.steps()[-1])

    assert numbers == [(1, False)] * 3 + [(1, False), (2, True)]
    assert steps == ["interrupted"] * 3 + ["failed"] * 2
    assert box.counts() == (0, 0, 0, 1)
    assert "hypercube_jobs.Interrupted" in box.jobs.failed()[0].reason


def test_a_failure_between_makes_the_next_interruption_the_first_in_a_row(box: Any) -> None:
    """Only shutdowns in a row count."""
    numbers = []

    @box.jobs.handler("note", backoff=Constant(timedelta(0)))
    async def handle(job: Note) -> None:
        numbers.append(current_attempt().number)
        if len(numbers) == 3:
            raise ValueError("no")
        await asyncio.sleep(60)

    box.jobs.dispatch(Note("x"))
    for runs in (1, 2, 4):
        running = box.start()
        box.until(lambda runs=runs: len(numbers) == runs)
        running.stop(now=True)
        running.end()

    (message,) = box.queue.pop("default")
    record = json.loads(message.extra)
    assert (record["interrupted"], record["free"], record["failures"]) == (1, 3, 1)
    assert numbers == [1, 1, 1, 2]


def test_an_error_of_its_own_while_being_interrupted_is_a_failure(box: Any) -> None:
    """Only the cancellation itself is nobody's fault."""
    began = threading.Event()

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("half done") from None

    box.jobs.dispatch(Note("x"))
    running = box.start()
    began.wait()
    running.stop(now=True)
    running.end()

    assert box.recorder.steps() == ["dispatched", "failed"]
    assert box.counts() == (0, 1, 0, 0)


def test_a_synchronous_handler_is_waited_for(box: Any) -> None:
    """Nothing can end a thread, so stop_timeout cannot shorten it."""
    began = threading.Event()
    go = threading.Event()

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        began.set()
        go.wait()

    box.jobs.dispatch(Note("x"))
    running = box.start(stop_timeout=SHORT)
    began.wait()
    running.stop()
    time.sleep(0.5)
    assert not running.ended
    go.set()
    running.end()

    assert box.counts() == (0, 0, 0, 0)


def test_now_leaves_synchronous_handlers_alone(box: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Their jobs come back when their leases end, as after a crash."""
    began = threading.Event()
    go = threading.Event()

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        began.set()
        go.wait()

    box.jobs.dispatch(Note("x"), id="one")
    running = box.start()
    began.wait()
    running.stop(now=True)
    running.end()
    go.set()

    assert box.counts() == (0, 0, 1, 0)
    assert "1 jobs are still running and cannot be ended (one)" in caplog.text


def test_what_waiting_pops_still_bring_goes_back(box: Any) -> None:
    """A worker with several queues waits at all of them when it is told to stop."""

    @box.jobs.handler("note")
    def handle(job: Note) -> None: ...

    running = box.start(queues=["a", "b"], sleep=timedelta(seconds=1))
    time.sleep(0.2)
    running.stop()
    for queue in "ab":
        box.jobs.dispatch(Note("x"), queue=queue)
    running.end()

    assert (box.counts("a"), box.counts("b")) == ((1, 0, 0, 0), (1, 0, 0, 0))


def test_handlers_can_stop_their_worker(box: Any) -> None:
    """From a synchronous and from an asynchronous one."""
    box.jobs.declare("a", Note)
    box.jobs.declare("b", Note)

    @box.jobs.handler("a")
    def handle(job: Note) -> None:
        running.stop()

    @box.jobs.handler("b")
    async def handle_async(job: Note) -> None:
        running.stop()

    for kind in "ab":
        running = box.start()
        box.jobs.dispatch_kind(kind, Note("x"))
        running.end()

    assert box.counts() == (0, 0, 0, 0)


def test_what_asynchronous_handlers_leave_on_the_loop_is_cancelled(box: Any) -> None:
    """Like asyncio.run does."""
    ended = []
    tasks = []

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        async def background() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)

        tasks.append(asyncio.create_task(background()))
        await asyncio.sleep(0)

    box.jobs.dispatch(Note("x"))
    box.drain()

    assert ended == [True]


def test_no_thread_is_left(box: Any) -> None:
    """Applications start and stop workers, and so do tests."""
    before = set(threading.enumerate())
    box.jobs.declare("a", Note)
    box.jobs.declare("b", Note)

    @box.jobs.handler("a")
    def handle(job: Note) -> None: ...

    @box.jobs.handler("b")
    async def handle_async(job: Note) -> None: ...

    for number in range(40):
        box.jobs.dispatch_kind("ab"[number % 2], Note("x"), queue="xy"[number % 2])
    running = box.start(queues=["x", "y"], concurrency=5)
    box.until(lambda: len(box.recorder.of("processed")) == 40)
    running.stop()
    running.end()

    box.until(lambda: set(threading.enumerate()) <= before)


PROGRAM = """
import asyncio, logging, sys, threading, time
from dataclasses import dataclass
from datetime import timedelta
from hypercube_jobs import Jobs, Observer, Worker
from hypercube_queue import open_queue

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")

@dataclass
class Note:
    text: str

jobs = Jobs(open_queue("memory://"))

@jobs.handler("sync")
def handle(job: Note) -> None:
    print("began", flush=True)
    time.sleep(float(job.text))
    print("finished", flush=True)

jobs.declare("async", Note)

@jobs.handler("async")
async def handle_async(job: Note) -> None:
    print("began", flush=True)
    await asyncio.sleep(float(job.text))
    print("finished", flush=True)

jobs.dispatch_kind(sys.argv[1], Note(sys.argv[2]))
Worker(jobs, sleep=timedelta(seconds=0.1)).run()
print("run returned", jobs.queue.stats("default"), flush=True)
"""


def program(*args: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed(process, "began")
    return process


def printed(process: subprocess.Popen[str], text: str) -> None:
    """Wait for a line with this text."""
    while text not in (line := process.stdout.readline()):
        assert line, f"it ended and had not said {text!r}"


def rest(process: subprocess.Popen[str]) -> str:
    """What else it prints until it ends."""
    # `communicate` would lose what reading lines has read ahead.
    watch = threading.Timer(20, process.kill)
    watch.start()
    with process:
        output = process.stdout.read()
    watch.cancel()
    return output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_signal_lets_running_jobs_end(kind: str, number: int) -> None:
    """And run returns, with everything settled."""
    process = program(kind, "0.5")
    process.send_signal(number)
    output = rest(process)

    assert "finished" in output
    assert f"{signal.Signals(number).name}: stopping once what runs has ended" in output
    assert "run returned QueueStats(name='default', ready=0, delayed=0, in_flight=0" in output
    assert process.returncode == 0


@pytest.mark.parametrize(("kind", "left"), [("sync", "in_flight=1"), ("async", "ready=1")])
def test_a_second_signal_interrupts(kind: str, left: str) -> None:
    """An asynchronous job is back in its queue; a synchronous one is left to its lease."""
    process = program(kind, "60")
    process.send_signal(signal.SIGTERM)
    printed(process, "stopping once what runs has ended")
    process.send_signal(signal.SIGTERM)
    output = rest(process)

    assert "stopping now" in output
    assert "finished" not in output
    assert left in output
    assert process.returncode == 0


def test_a_third_signal_means_what_it_meant_before() -> None:
    """Whoever presses Ctrl-C three times wants out."""
    code = PROGRAM.replace("await asyncio.sleep(float(job.text))", STUBBORN)
    process = subprocess.Popen(
        [sys.executable, "-c", code, "async", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed(process, "began")
    for answer in ("stopping once what runs has ended", "stopping now"):
        process.send_signal(signal.SIGINT)
        printed(process, answer)
    process.send_signal(signal.SIGINT)
    output = rest(process)

    assert "KeyboardInterrupt" in output


STUBBORN = """
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
"""


def test_signal_handlers_are_put_back() -> None:
    """They are the application's."""
    former = signal.getsignal(signal.SIGTERM)
    from hypercube_jobs import Jobs

    Worker(Jobs(MemoryQueue()), stop_when_empty=True).run()

    assert signal.getsignal(signal.SIGTERM) is former


def test_outside_the_main_thread_no_signal_handler_is_installed(box: Any) -> None:
    """It could not be."""
    former = signal.getsignal(signal.SIGTERM)
    running = box.start()
    time.sleep(0.1)

    assert signal.getsignal(signal.SIGTERM) is former
    running.stop()
    running.end()
    assert os.getpid() > 0
    assert logging.getLogger("hypercube_jobs").handlers == []
