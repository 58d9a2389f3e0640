"""Keeping deliveries while handlers take their time."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import current_attempt
from hypercube_queue import BackendError, Guarantees, Message
from hypercube_queue_memory import MemoryQueue

LEASE = timedelta(seconds=0.6)


@dataclass
class Note:
    """The job of these tests."""

    text: str


class Extended(MemoryQueue):
    """Notes extensions as `(moment, extension, ids)`, and may refuse them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"visibility_timeout": LEASE, **options})
        self.extensions: list[tuple[float, timedelta, list[str]]] = []
        self.troubles = 0

    def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        self.extensions.append((time.monotonic(), extension, [each.id for each in messages]))
        if self.troubles:
            self.troubles -= 1
            raise BackendError("away")
        super().extend_visibility(extension, *messages)


def steal(queue: MemoryQueue) -> None:
    """End all leases of the queue, as a clock that jumps does."""
    clock = queue._store._clock
    queue._store._clock = lambda: clock() + 3600


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_job_longer_than_its_lease_runs_once(box: Any, kind: str) -> None:
    """Its lease is extended at a third of its length."""
    queue = Extended()
    box.on(queue)
    runs = []
    box.jobs.declare("sync", Note)
    box.jobs.declare("async", Note)

    @box.jobs.handler("sync")
    def handle(job: Note) -> None:
        runs.append(time.monotonic())
        time.sleep(1.5)

    @box.jobs.handler("async")
    async def handle_async(job: Note) -> None:
        runs.append(time.monotonic())
        await asyncio.sleep(1.5)

    box.jobs.dispatch_kind(kind, Note("x"))
    box.start()
    box.start()
    box.until(lambda: box.recorder.of("processed"))

    assert len(runs) == 1
    assert box.counts() == (0, 0, 0, 0)
    assert 4 <= len(queue.extensions) <= 8
    assert {extension for _, extension, _ in queue.extensions} == {LEASE}


def test_short_jobs_cost_no_extension(box: Any) -> None:
    """They end long before a third of the lease has passed."""
    queue = Extended(visibility_timeout=timedelta(seconds=30))
    box.on(queue)
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: None)
    for _ in range(500):
        box.jobs.dispatch(Note("x"))
    box.drain()

    assert queue.extensions == []


def test_leases_are_kept_to_the_end_of_the_drain(box: Any) -> None:
    """A worker that is to stop still owns what it runs."""
    box.on(Extended())
    began = threading.Event()
    runs = []
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        runs.append(job)
        began.set()
        time.sleep(1.5)

    box.jobs.dispatch(Note("x"))
    running = box.start()
    began.wait()
    running.stop()
    box.start()
    running.end()

    assert len(runs) == 1
    assert box.counts() == (0, 0, 0, 0)


def test_the_lease_of_the_message_wins(box: Any) -> None:
    """Producers may ask for a lease of their own."""
    queue = Extended(visibility_timeout=timedelta(hours=1))
    box.on(queue)
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: time.sleep(1))
    message = box.jobs.message(Note("x"))
    message.visibility_timeout = LEASE
    queue.push(message)
    box.drain()

    assert {extension for _, extension, _ in queue.extensions} == {LEASE}
    assert box.recorder.steps() == ["processed"]


def test_many_leases_are_extended_in_one_call(box: Any) -> None:
    """Not one by one."""
    queue = Extended()
    box.on(queue)
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        await asyncio.sleep(0.5)

    queue.push(*(box.jobs.message(Note("x")) for _ in range(100)))
    box.drain(concurrency=100)

    assert max(len(ids) for _, _, ids in queue.extensions) > 50


def test_no_extension_goes_beyond_what_the_backend_allows(box: Any) -> None:
    """It counts from the pop; when nothing is left, the lease runs out."""

    class Limited(Extended):
        @property
        def guarantees(self) -> Guarantees:
            return replace(super().guarantees, max_visibility=timedelta(seconds=2))

    queue = Limited()
    box.on(queue)
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: time.sleep(1.6))
    box.jobs.dispatch(Note("x"))
    began = time.monotonic()
    running = box.start()
    box.until(lambda: box.recorder.of("processed") or box.recorder.of("lost"))
    running.stop()

    for moment, extension, _ in queue.extensions:
        assert moment - began + extension.total_seconds() < 2


def test_a_lost_lease_cancels_an_asynchronous_handler(box: Any) -> None:
    """Somebody else may run the job by now; the result is dropped."""
    box.on(Extended())
    seen = []
    began = threading.Event()
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        began.set()
        if current_attempt().number > 1:
            return
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(current_attempt().lost)

    box.jobs.dispatch(Note("x"))
    running = box.start()
    began.wait()
    steal(box.queue)
    box.until(lambda: box.recorder.of("processed"))
    running.stop()
    running.end()

    assert seen == [True]
    assert box.recorder.steps() == ["dispatched", "lost", "processed"]
    assert box.counts() == (0, 0, 0, 0)


def test_a_lost_lease_is_told_to_a_synchronous_handler(box: Any) -> None:
    """By a flag, since nothing can end a thread."""
    box.on(Extended())
    seen = []
    began = threading.Event()
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        attempt = current_attempt()
        began.set()
        if attempt.number > 1:
            return
        while not attempt.lost:
            time.sleep(0.01)
        seen.append(attempt.lost)

    box.jobs.dispatch(Note("x"))
    running = box.start()
    began.wait()
    steal(box.queue)
    box.until(lambda: box.recorder.of("processed"))
    running.stop()
    running.end()

    assert seen == [True]
    assert box.recorder.steps() == ["dispatched", "lost", "processed"]


def test_the_result_of_a_lost_attempt_is_dropped_also_when_it_failed(box: Any) -> None:
    """No failure is recorded in a message that is somebody else's."""
    box.on(Extended())
    began = threading.Event()
    box.jobs.declare("note", Note, retries=0)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        attempt = current_attempt()
        began.set()
        while attempt.number == 1 and not attempt.lost:
            time.sleep(0.01)
        if attempt.number == 1:
            raise ValueError("no")

    box.jobs.dispatch(Note("x"))
    running = box.start()
    began.wait()
    steal(box.queue)
    box.until(lambda: box.recorder.of("processed"))
    running.stop()
    running.end()

    assert box.counts() == (0, 0, 0, 0)
    assert box.recorder.of("failed") == []


def test_trouble_with_extensions_is_waited_out_while_leases_last(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again soon, and logged once."""
    queue = Extended()
    box.on(queue)
    queue.troubles = 4
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: time.sleep(1.2))
    box.jobs.dispatch(Note("x"))
    box.drain()

    assert box.recorder.steps() == ["dispatched", "processed"]
    assert caplog.text.count("leases cannot be extended: away") == 1


def test_a_lease_that_could_not_be_extended_in_time_is_lost(box: Any) -> None:
    """Nobody knows whose the message is, so nothing is done with the result."""
    queue = Extended()
    box.on(queue)
    queue.troubles = 10_000
    began = threading.Event()
    cancelled = threading.Event()
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    box.jobs.dispatch(Note("x"))
    running = box.start()
    began.wait()
    assert cancelled.wait(5)
    running.stop()
    box.until(lambda: box.recorder.of("lost"))


def test_without_extensions_a_long_job_is_noticed_as_lost_when_it_settles(box: Any) -> None:
    """The driver says so; the job runs again."""

    class Fixed(MemoryQueue):
        extend_visibility = None

    box.on(Fixed())
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: time.sleep(0.4))
    message = box.jobs.message(Note("x"))
    message.visibility_timeout = timedelta(seconds=0.2)
    box.queue.push(message)
    running = box.start(max_jobs=1)
    running.end()

    assert box.recorder.steps() == ["lost"]
