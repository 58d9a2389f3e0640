"""A clock that is moved by hand: waiting pops follow it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from hypercube_queue import Message, QueueStats
from hypercube_queue_memory import MemoryQueue, MemoryStore

_NOW = timedelta(0)
_PATIENCE = timedelta(seconds=10)


class _Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return _Clock()


@pytest.fixture
def queue(clock):
    with MemoryQueue(MemoryStore(clock=clock)) as queue:
        yield queue


def test_a_delay_ends_at_the_very_microsecond(clock, queue):
    """Not a microsecond earlier, and not one later."""
    queue.push(Message("q", delay=timedelta(seconds=1)))
    clock.seconds += 0.999999
    assert queue.pop("q", wait=_NOW) == []
    clock.seconds = 1001.0
    assert len(queue.pop("q", wait=_NOW)) == 1


def test_a_lease_ends_at_the_very_microsecond(clock, queue):
    """Until then the delivery can be settled; from then on the message is ready."""
    queue.push(*(Message("q", visibility_timeout=timedelta(seconds=1)) for _ in range(2)))
    first, second = queue.pop("q", 2, wait=_NOW)
    clock.seconds += 0.999999
    queue.ack(first)
    clock.seconds = 1001.0
    with pytest.raises(ExceptionGroup):
        queue.ack(second)
    assert queue.stats("q") == QueueStats("q", ready=1, delayed=0, in_flight=0, dead=0)


def test_moving_the_clock_wakes_a_waiting_pop(clock, queue):
    """A pop that waits in real time looks at the clock again and again."""
    queue.push(Message("q", b"due in an hour", delay=timedelta(hours=1)))
    with ThreadPoolExecutor() as threads:
        popping = threads.submit(queue.pop, "q", wait=_PATIENCE)
        time.sleep(0.05)
        assert not popping.done()
        clock.seconds += 3600
        assert [each.payload for each in popping.result(10)] == [b"due in an hour"]


def test_time_that_stands_still_ends_no_lease(queue):
    """However long the test takes."""
    queue.push(Message("q", visibility_timeout=timedelta(milliseconds=1)))
    [delivery] = queue.pop("q", wait=_NOW)
    time.sleep(0.02)
    assert queue.pop("q", wait=timedelta(milliseconds=20)) == []
    queue.ack(delivery)
