"""The jobs that workers are measured with."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from hypercube_jobs import Jobs, Worker
from hypercube_queue import Queue


@dataclass
class Noop:
    """A job whose payload has about 100 bytes, like a real one's references."""

    number: int
    text: str = "x" * 75


def noop_jobs(queue: Queue, kind: str) -> Jobs:
    """Jobs whose handler does nothing, as a function or a coroutine."""
    jobs = Jobs(queue)
    if kind == "sync":
        jobs.handler("noop")(_noop)
    else:
        jobs.handler("noop")(_async_noop)
    return jobs


def dispatch_many(jobs: Jobs, count: int) -> None:
    """In batches of 1,000."""
    for first in range(0, count, 1_000):
        numbers = range(first, min(first + 1_000, count))
        jobs.queue.push(*(jobs.message(Noop(number)) for number in numbers))


def drain(jobs: Jobs) -> None:
    """Run a worker with default settings until nothing is left."""
    Worker(jobs, stop_when_empty=True).run()


def _noop(_job: Noop) -> None: ...


async def _async_noop(_job: Noop) -> None: ...


# One line per job is what a terminal can show, not the worker.
logging.getLogger("hypercube_jobs").setLevel(logging.WARNING)
