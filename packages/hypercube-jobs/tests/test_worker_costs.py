"""What a worker costs: nothing while it waits, and no more memory for more jobs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from tools.script import started

from hypercube_queue import Message
from hypercube_queue_memory import MemoryQueue

#: How many jobs show that memory stays flat; a million in the nightly run.
MANY = 1_000_000 if os.environ.get("HYPERCUBE_TEST_ALL") == "1" else 30_000


#: So many idle workers in one process; prints what part of a core each uses, again and again.
IDLE = """
import sys, threading, time
from contextlib import ExitStack
from dataclasses import dataclass
from hypercube_jobs import Jobs, Worker
from hypercube_queue import open_queue

url, count = sys.argv[1], int(sys.argv[2])

@dataclass
class Note:
    number: int

def noted(job: Note) -> None: ...

def measure():
    while True:
        begun, spent = time.monotonic(), time.process_time()
        time.sleep(2)
        share = (time.process_time() - spent) / (time.monotonic() - begun)
        print(share / count, flush=True)

with ExitStack() as stack:
    workers, threads = [], []
    for _ in range(count):
        jobs = Jobs(stack.enter_context(open_queue(url)))
        jobs.handler("note")(noted)
        workers.append(Worker(jobs))
        threads.append(threading.Thread(target=workers[-1].run))
        threads[-1].start()
    time.sleep(4)  # until they have connected and come to rest
    threading.Thread(target=measure, daemon=True).start()
    sys.stdin.readline()
    for worker in workers:
        worker.stop()
    for thread in threads:
        thread.join()
"""


def test_an_idle_worker_uses_less_than_a_hundredth_of_a_core(url_of_each: str) -> None:
    """With default settings, by the time that the processor spends on it.

    One of twenty, because a core that has slept runs its first instructions at a tenth of its
    speed, and a worker alone would be measured by that. And the least of several measurements,
    since other processes slow the cores down, too.
    """
    shares: list[float] = []
    with started(IDLE, url_of_each, "20") as script:
        while len(shares) < 5 and min(shares, default=1) >= 0.01:
            shares.append(float(script.line()))
        script.tell("")
        script.rest(60)

    assert min(shares) < 0.01, shares


@dataclass
class Note:
    """The job of these tests."""

    number: int


PROGRAM = """
import gc, logging, resource, sys, threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from hypercube_jobs import Constant, Jobs, Worker, current_attempt
from hypercube_queue import open_queue

logging.disable(logging.CRITICAL)

@dataclass
class Note:
    number: int
    text: str = "x" * 100

queue = open_queue("memory://")
jobs = Jobs(queue)
jobs.declare("sync", Note, backoff=Constant(timedelta(0)))
jobs.declare("async", Note, backoff=Constant(timedelta(0)))

def run(job):
    if job.number % 50 == 0 and current_attempt().number == 1:
        raise ValueError("once")

@jobs.handler("sync")
def handle(job):
    run(job)

@jobs.handler("async")
async def handle_async(job):
    run(job)

def work(count):
    worker = Worker(jobs, concurrency=4)
    thread = threading.Thread(target=worker.run)
    thread.start()
    for first in range(0, count, 1_000):
        queue.push(*(
            jobs.message(Note(number), kind="sync" if number % 20 else "async")
            for number in range(first, first + 1_000)
        ))
        while queue.stats("default").ready > 2_000:
            threading.Event().wait(0.001)
    while queue.queues():
        threading.Event().wait(0.01)
    taken = rss()
    worker.stop()
    thread.join()
    return taken

def rss():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6

first = work(10_000)
print(work(int(sys.argv[1])) - first)
"""


def test_memory_does_not_grow_with_the_jobs_that_were_run() -> None:
    """With failures and both sorts of handlers among them."""
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(MANY)], capture_output=True, text=True, check=True
    ).stdout
    assert float(output) < 10, "megabytes more than after the first ten thousand"


class SlowAcks(MemoryQueue):
    """A queue whose acknowledgements wait."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.asked = threading.Event()

    def ack(self, *messages: Message) -> None:
        self.asked.set()
        self.go.wait(10)
        super().ack(*messages)


@pytest.mark.parametrize("seconds", [None, 0.01])
def test_the_task_of_a_job_that_has_ended_does_not_wait_for_its_settlement(
    box: Any, seconds: float | None
) -> None:
    """Objects that live for that long cost whole garbage collections."""
    queue = SlowAcks()
    box.on(queue)
    box.jobs.declare("note", Note)
    tasks: list[weakref.ref[asyncio.Task[Any]]] = []

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(weakref.ref(task))
        if seconds is not None:
            await asyncio.sleep(seconds)

    box.jobs.dispatch(Note(1))
    running = box.start()
    assert queue.asked.wait(10)
    # The loop has let go of it when it has had another turn.
    box.until(lambda: tasks[0]() is None)
    queue.go.set()
    running.stop()
    running.end()
