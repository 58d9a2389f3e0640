"""Counting and forgetting the jobs of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Jobs, NotSupported, _failed_jobs
from hypercube_queue import Message
from hypercube_queue_memory import MemoryQueue

AT_ONCE = timedelta(0)


@dataclass
class Note:
    """A job."""

    text: str


def on(queue: Any) -> Jobs:
    jobs = Jobs(queue)
    jobs.declare("note", Note)
    return jobs


def kill(queue: MemoryQueue, count: int) -> None:
    queue.push(*(Message("default") for _ in range(count)))
    MemoryQueue.dead_letter(queue, *queue.pop("default", count, wait=AT_ONCE))


def test_pending_counts_what_is_to_be_done() -> None:
    """Ready, delayed and running; not the dead, nor other queues."""
    jobs = on(MemoryQueue())
    kill(jobs.queue, 1)
    jobs.dispatch(Note("running"))
    jobs.queue.pop("default")
    jobs.dispatch(Note("ready"))
    jobs.dispatch(Note("delayed"), delay=timedelta(hours=1))
    jobs.dispatch(Note("elsewhere"), queue="other")

    assert (jobs.pending(), jobs.pending("other"), jobs.pending("none")) == (3, 1, 0)


def test_all_failed_jobs_of_a_queue_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page; what dies meanwhile stays, or it might never end."""
    monkeypatch.setattr(_failed_jobs, "_PAGE", 2)

    class Deadly(MemoryQueue):
        def forget(self, queue_name: str, *ids: str) -> int:
            kill(self, 1)
            return super().forget(queue_name, *ids)

    jobs = on(Deadly())
    kill(jobs.queue, 5)

    assert jobs.forget_all() == 5
    assert jobs.queue.stats("default").dead == 3
    assert jobs.forget_all("other") == 0


def test_a_driver_that_cannot_says_so() -> None:
    """With what to use in its place."""

    class Blind(MemoryQueue):
        stats = None
        dead_letters = None

    jobs = on(Blind())
    with pytest.raises(NotSupported, match="cannot count its messages"):
        jobs.pending()
    with pytest.raises(NotSupported, match="cannot look into its dead letters"):
        jobs.forget_all()
