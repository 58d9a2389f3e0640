"""Counting attempts when workers crash: ATT-1 to ATT-4 of the contract."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hypercube_jobs import Constant, Jobs, Worker, current_attempt
from hypercube_jobs.worker._bell import Bell
from hypercube_queue import Guarantees, Message, QueueClosed, open_queue
from hypercube_queue_memory import MemoryQueue

AT_ONCE = Constant(timedelta(0))
LEASE = timedelta(seconds=0.05)


@dataclass
class Note:
    """The job of these tests."""

    text: str


def crash(box: Any, count: int = 1) -> None:
    """What a worker does to `count` messages that dies with them in its hands."""
    other = MemoryQueue(box.queue._store, visibility_timeout=LEASE)
    assert len(other.pop("default", count)) == count
    box.until(lambda: box.counts()[2] == 0)


class Unreleasable(MemoryQueue):
    """A driver without the capability Releaser."""

    release = None


class Crash(BaseException):
    """Ends a worker's process, as far as its queue can see."""


class Mortal(MemoryQueue):
    """A queue that answers no more once its process has died."""

    dead = False

    def _check(self) -> None:
        if self.dead:
            raise QueueClosed("the process is dead")

    def pop(self, *args: Any, **options: Any) -> list[Message]:
        self._check()
        return super().pop(*args, **options)

    def retry(self, *messages: Message) -> None:
        self._check()
        super().retry(*messages)

    def dead_letter(self, *messages: Message) -> None:
        self._check()
        super().dead_letter(*messages)


def crash_alone(box: Any, handlers: dict[str, Any]) -> None:
    """A worker whose process dies in the first run of a job."""
    queue = Mortal(box.queue._store, visibility_timeout=LEASE)
    jobs = Jobs(queue)

    def die(job: Any) -> None:
        queue.dead = True
        raise Crash

    for kind, type in handlers.items():
        jobs.declare(kind, type)
        jobs.handler(kind)(die)
    with pytest.raises(QueueClosed):
        Worker(jobs, stop_when_empty=True).run()
    assert queue.dead
    box.until(lambda: box.counts()[2] == 0)


class Together:
    """How many jobs ran at once with each job."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[str] = set()
        self.beside: dict[str, int] = {}

    def run(self, text: str, seconds: float) -> None:
        with self.lock:
            self.running.add(text)
            for each in self.running:
                self.beside[each] = max(self.beside.get(each, 0), len(self.running) - 1)
        time.sleep(seconds)
        with self.lock:
            self.running.remove(text)


def test_after_a_crash_its_jobs_run_alone(box: Any) -> None:
    """ATT-3: each of them while the process holds no other job; the rest runs as ever."""
    together = Together()
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: together.run(job.text, 0.02))
    for number in range(5):
        box.jobs.dispatch(Note(f"crashed {number}"))
    crash(box, 5)
    for number in range(20):
        box.jobs.dispatch(Note(f"other {number}"))
    box.drain(concurrency=4)

    assert {text: n for text, n in together.beside.items() if text.startswith("crashed")} == {
        f"crashed {number}": 0 for number in range(5)
    }
    assert max(together.beside.values()) == 3
    assert len(box.recorder.of("processed")) == 25
    assert box.counts() == (0, 0, 0, 0)


def test_without_release_a_crashed_job_still_gets_its_turn(box: Any) -> None:
    """Sent to the end of a queue that never empties, it would never be alone."""
    box.on(Unreleasable())
    together = Together()
    order = []
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        together.run(job.text, 0.002)
        order.append((job.text, current_attempt().number))
        if len(order) < 900:
            box.jobs.dispatch(Note(f"other {len(order)}"))

    for number in range(3):
        box.jobs.dispatch(Note(f"crashed {number}"))
    crash(box, 3)
    for number in range(300):
        box.jobs.dispatch(Note(f"first {number}"))
    box.drain(concurrency=4)

    for number in range(3):
        assert together.beside[f"crashed {number}"] == 0
        assert order.index((f"crashed {number}", 2)) < 900
    assert max(together.beside.values()) == 3
    assert box.counts() == (0, 0, 0, 0)


def test_a_long_lone_run_keeps_no_processor_busy(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It outlasts the time for which its like are expected; the worker sleeps until it ends."""
    waits = []

    def wait(bell: Bell, seconds: float | None = None, original: Any = Bell.wait) -> None:
        waits.append(seconds)
        original(bell, seconds)

    monkeypatch.setattr(Bell, "wait", wait)
    monkeypatch.setattr("hypercube_jobs.worker._intake._EXPECTED_WITHIN", 0.05)
    box.on(Unreleasable())
    box.jobs.declare("note", Note)
    running, may_end = threading.Event(), threading.Event()

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        running.set()
        assert may_end.wait(30)

    box.jobs.dispatch(Note("slow"))
    crash(box)
    worker = box.start(stop_when_empty=True)
    assert running.wait(30)
    time.sleep(0.1)  # over the time set above
    before = len(waits)
    time.sleep(0.2)
    woken = len(waits) - before
    may_end.set()
    worker.end()

    assert woken < 10


@pytest.mark.parametrize("queue", [MemoryQueue, Unreleasable])
def test_a_job_that_hangs_does_not_stop_the_rest_for_one_that_has_to_be_alone(
    box: Any, monkeypatch: pytest.MonkeyPatch, queue: type[MemoryQueue]
) -> None:
    """Nothing can end its thread, so the other is put off, for as long as it hangs."""
    monkeypatch.setattr("hypercube_jobs.worker._coordinator._PUT_OFF", timedelta(seconds=0.2))
    box.on(queue())
    go = threading.Event()
    together = Together()
    hung = []
    box.jobs.declare("hung", Note, timeout=timedelta(seconds=0.1), retries=0, queue="hung")
    box.jobs.declare("note", Note)

    @box.jobs.handler("hung")
    def hang(job: Note) -> None:
        hung.append(job)
        go.wait()

    box.jobs.handler("note")(lambda job: together.run(job.text, 0))
    box.jobs.dispatch_kind("note", Note("crashed"))
    crash(box)
    box.jobs.dispatch_kind("hung", Note("x"))
    running = box.start(queues=["hung", "default"], concurrency=4)
    box.until(lambda: hung)
    for number in range(20):
        box.jobs.dispatch_kind("note", Note(f"other {number}"))
    box.until(lambda: len(together.beside) == 20)
    assert "crashed" not in together.beside

    go.set()
    box.until(lambda: "crashed" in together.beside)
    assert together.beside["crashed"] == 0
    running.stop()
    running.end()


def test_who_waits_to_be_alone_is_not_held(box: Any) -> None:
    """A worker that is busy with a long job leaves it to others, and pops nothing meanwhile."""
    go = threading.Event()
    seen = []
    box.jobs.declare("long", Note, queue="long")
    box.jobs.declare("note", Note)
    box.jobs.handler("long")(lambda job: go.wait())
    box.jobs.handler("note")(lambda job: seen.append(current_attempt().number))
    box.jobs.dispatch_kind("note", Note("x"))
    crash(box)
    box.jobs.dispatch_kind("long", Note("x"))
    busy = box.start(queues=["long", "default"], concurrency=4)
    box.until(lambda: box.counts("long")[2] == 1)
    time.sleep(0.2)
    assert (box.counts(), seen) == ((1, 0, 0, 0), [])

    box.drain()
    assert seen == [2]
    go.set()
    busy.stop()
    busy.end()
    assert box.counts("long") == (0, 0, 0, 0)


def test_a_loss_costs_no_retry_the_first_time(box: Any) -> None:
    """It may have been a batch-mate's fault; handlers see that there was an attempt."""
    seen = []
    box.jobs.declare("note", Note, retries=1, backoff=AT_ONCE)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        attempt = current_attempt()
        seen.append((attempt.number, attempt.last))
        raise ValueError("no")

    box.jobs.dispatch(Note("x"))
    crash(box)
    box.drain()

    assert seen == [(2, False), (3, True)]
    assert box.counts() == (0, 0, 0, 1)


def test_a_job_whose_runs_are_all_lost_ends_in_the_dead_letters(box: Any) -> None:
    """After one run among others and as many alone as it has attempts; redriven it is at 1."""
    seen = []
    box.jobs.declare("note", Note, retries=2)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        seen.append((job.text, current_attempt().number, current_attempt().last))

    box.jobs.dispatch(Note("survivor"))
    for _ in range(3):
        crash_alone(box, {"note": Note})
    box.drain()
    box.jobs.dispatch(Note("killer"), id="killer")
    for _ in range(4):
        crash_alone(box, {"note": Note})
    box.drain()

    assert seen == [("survivor", 4, True)]
    (failed,) = box.jobs.failed()
    assert (failed.id, failed.attempt) == ("killer", 4)
    assert failed.failure.type == "hypercube_jobs.WorkerLost"
    assert "in 3 runs of this job without any other" in failed.failure.text
    assert box.recorder.of("failed")[0].final
    box.jobs.retry("killer")
    box.drain()
    assert seen[1:] == [("killer", 1, False)]


def test_where_the_count_is_not_exact_the_record_is_the_basis(box: Any) -> None:
    """ATT-4: a broker's approximate number is a suspicion, and uses up no retries."""

    class Approximate(MemoryQueue):
        @property
        def guarantees(self) -> Guarantees:
            return replace(super().guarantees, exact_attempts=False)

    box.on(Approximate())
    seen = []
    box.jobs.declare("note", Note, retries=2, backoff=AT_ONCE)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        seen.append(current_attempt().number)
        raise ValueError("no")

    box.jobs.dispatch(Note("x"))
    for _ in range(10):
        crash(box)
    box.drain()

    assert seen == [1, 2, 3]
    assert box.counts() == (0, 0, 0, 1)


PROGRAM = """
import os, sqlite3, sys
from dataclasses import dataclass
from datetime import timedelta
from hypercube_jobs import Jobs, Worker
from hypercube_queue import open_queue

@dataclass
class Work:
    number: int

url, log, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3])
jobs = Jobs(open_queue(url))
done = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@jobs.handler("work", retries=2)
def work(job: Work) -> None:
    if job.number == 500:
        os.write(done, b"killer\\n")
        os._exit(9)
    os.write(done, b"%d\\n" % job.number)

Worker(jobs, concurrency=concurrency, stop_when_empty=True).run()
"""


def test_a_job_that_kills_its_process_dies_alone(tmp_path: Path) -> None:
    """Of 1,000 jobs in one queue 999 are done and one is dead; its batch-mates lose nothing."""
    url = f"sqlite:///{tmp_path}/jobs.db?visibility_timeout=1"
    log = tmp_path / "done"
    script = tmp_path / "worker.py"
    script.write_text(PROGRAM)
    with open_queue(url) as queue:

        @dataclass
        class Work:
            number: int

        jobs = Jobs(queue)
        jobs.declare("work", Work, retries=2)
        queue.push(*(jobs.message(Work(number)) for number in range(1_000)))
        crashes = 0
        while (stats := queue.stats("default")).ready + stats.delayed + stats.in_flight:
            worker = [sys.executable, str(script), url, str(log), "4"]
            code = subprocess.run(worker, check=False, timeout=60).returncode
            assert code in {0, 9}
            crashes += code == 9
            assert crashes < 10
            if not code:
                time.sleep(0.1)

        lines = log.read_text().split()
        assert {int(line) for line in lines if line != "killer"} == set(range(1_000)) - {500}
        # Once among others, then alone: as often as it has attempts.
        assert lines.count("killer") == crashes == 4
        assert queue.stats("default").dead == 1
        (failed,) = jobs.failed(payloads=True)
        assert failed.payload == b'{"number":500}'
        assert failed.failure.type == "hypercube_jobs.WorkerLost"
