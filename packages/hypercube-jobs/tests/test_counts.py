"""Counting and forgetting the jobs of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from hypercube_jobs import Jobs, NotSupported, _failed_jobs
from hypercube_queue import DeadLetter, InvalidArgument, Message
from hypercube_queue_memory import MemoryQueue, MemoryStore

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

    counts = [jobs.pending(name) for name in ("default", "other", "none", None)]
    assert counts == [3, 1, 0, 4]


def test_all_failed_jobs_of_a_queue_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page; what dies meanwhile stays, or it might never end."""
    monkeypatch.setattr(_failed_jobs, "_FIRST_READ", 2)
    monkeypatch.setattr(_failed_jobs, "_LONGEST_READ", 2)

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
        jobs.forget_all("default")


# All queues, or one


def fail(jobs: Jobs, queue: str, id: str, payload: bytes = b"{}") -> None:
    jobs.queue.push(Message(queue, payload, "note", id=id))
    jobs.queue.dead_letter(*jobs.queue.pop(queue, wait=AT_ONCE))


@pytest.fixture
def several() -> Jobs:
    """Five failed jobs in three queues, the last one of which died last."""
    now = iter(range(1000))
    jobs = on(MemoryQueue(MemoryStore(clock=lambda: float(next(now)))))
    for number, queue in enumerate(["default", "mail", "mail", "bulk", "default"], 1):
        fail(jobs, queue, f"id-{number}")
    return jobs


def test_without_a_queue_the_failed_jobs_of_all_are_listed(several: Jobs) -> None:
    """Newest first; with one only its own."""
    assert [(job.id, job.queue) for job in several.failed()] == [
        ("id-5", "default"),
        ("id-4", "bulk"),
        ("id-3", "mail"),
        ("id-2", "mail"),
        ("id-1", "default"),
    ]
    assert [job.id for job in several.failed("mail")] == ["id-3", "id-2"]


@pytest.mark.parametrize("queue", [None, "mail"])
def test_lists_are_read_page_by_page(several: Jobs, queue: str | None) -> None:
    """Nothing is skipped or repeated."""
    found: list[str] = []
    before = None
    while page := several.failed(queue, limit=1, before=before):
        [job] = page
        found.append(job.id)
        before = job.cursor

    assert found == [job.id for job in several.failed(queue)]


@pytest.mark.parametrize("before", ["7", "nonsense", "[]", '{"mail": 7}', 7])
def test_the_cursor_of_another_list_is_refused(several: Jobs, before: Any) -> None:
    """It would begin anywhere."""
    with pytest.raises(InvalidArgument, match="is no cursor of a list of all queues"):
        several.failed(before=before)


@pytest.mark.parametrize("limit", [0, -1, 10_001, "5"])
def test_a_limit_is_a_positive_number(several: Jobs, limit: Any) -> None:
    """As for drivers."""
    for queue in (None, "mail"):
        with pytest.raises(InvalidArgument, match="limit"):
            several.failed(queue, limit=limit)


def test_without_a_queue_ids_are_looked_for_in_all(several: Jobs) -> None:
    """With one only there."""
    assert several.retry("id-1", "id-3", queue="mail") == 1
    assert several.retry("id-1", "id-2", "unknown") == 2
    assert several.forget("id-4", queue="mail") == 0
    assert several.forget("id-4") == 1
    assert [job.id for job in several.failed()] == ["id-5"]
    assert several.pending() == 3


def test_without_a_queue_all_are_retried_or_forgotten(several: Jobs) -> None:
    """With one only its own."""
    assert several.retry_all("mail") == 2
    assert several.retry_all() == 3
    for queue in ("mail", "mail", "bulk"):
        several.queue.dead_letter(*several.queue.pop(queue, wait=AT_ONCE))
    assert several.forget_all("bulk") == 1
    assert several.forget_all() == 2
    assert several.failed() == []


def test_a_driver_that_cannot_list_its_queues_asks_for_one() -> None:
    """As those of SQS and RabbitMQ; nothing is done to any queue meanwhile."""

    class Unlisted(MemoryQueue):
        queues = None

    jobs = on(Unlisted())
    fail(jobs, "default", "id-1")
    for call in (jobs.failed, jobs.retry_all, jobs.forget_all, jobs.retry, jobs.forget):
        with pytest.raises(NotSupported, match='cannot list its queues; name one, as queue="defa'):
            call()
    assert [job.id for job in jobs.failed("default")] == ["id-1"]
    assert jobs.retry_all("default") == 1


# Memory


def test_payloads_are_given_only_to_those_who_ask(several: Jobs) -> None:
    """They can be large, and may hold secrets."""
    fail(several, "default", "large", b"x" * 100)

    assert {job.payload for job in several.failed()} == {None}
    assert several.failed(payloads=True)[0].payload == b"x" * 100


@pytest.mark.parametrize("queue", [None, "default"])
def test_large_payloads_of_failed_jobs_do_not_fill_the_memory(queue: str | None) -> None:
    """However many are listed, forgotten or looked for, a few are read at a time."""

    class Watched(MemoryQueue):
        read: ClassVar[list[int]] = []

        def dead_letters(
            self, queue_name: str, limit: int, before: str | None = None
        ) -> list[DeadLetter]:
            page = super().dead_letters(queue_name, limit, before)
            self.read.append(sum(len(letter.message.payload) for letter in page))
            return page

    jobs = on(Watched())
    payload = b"x" * 1_000_000
    for number in range(100):
        fail(jobs, "default", f"id-{number}", payload)

    assert len(jobs.failed(queue, limit=1)) == 1
    assert len(jobs.failed(queue, limit=100)) == 100
    assert jobs.forget_all(queue) == 100
    assert max(Watched.read) <= 8 * len(payload)
