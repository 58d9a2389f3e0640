"""Putting another queue in the place of an application's, for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypercube_jobs._clock import Clock
from hypercube_jobs._inline import InlineQueue
from hypercube_jobs._jobs import Jobs
from hypercube_jobs.testing._fake_queue import FakeQueue


@contextmanager
def fake(jobs: Jobs) -> Iterator[FakeQueue]:
    """Within it, `jobs` are stored in a FakeQueue, whose time is their clock.

        with fake(jobs) as queue:
            client.post("/orders")
        assert queue.dispatched(SendInvoice) == [SendInvoice(order_id=1)]

    It holds for all threads. What was stored before, and workers that were made before, keep
    the queue they had.
    """
    queue = FakeQueue()
    with queue, _instead(jobs, queue, queue.now):
        yield queue


@contextmanager
def inline(jobs: Jobs) -> Iterator[InlineQueue]:
    """Within it, `jobs` run where they are dispatched; see InlineQueue."""
    queue = InlineQueue()
    with queue, _instead(jobs, queue, jobs.clock):
        yield queue


@contextmanager
def _instead(jobs: Jobs, queue: FakeQueue | InlineQueue, clock: Clock) -> Iterator[None]:
    dispatcher = jobs._dispatcher
    former = dispatcher.queue, dispatcher.clock
    queue.attach(jobs)
    dispatcher.use(queue)
    dispatcher.clock = clock
    try:
        yield
    finally:
        dispatcher.use(former[0])
        dispatcher.clock = former[1]
