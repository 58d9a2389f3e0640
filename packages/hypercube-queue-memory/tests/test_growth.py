"""What the store keeps, and how much of it an operation looks at."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from hypercube_queue import Message
from hypercube_queue_memory import MemoryQueue, MemoryStore
from hypercube_queue_memory._queue_state import QueueState

_NOW = timedelta(0)


class _CountingDict(dict):
    """Counts how often it was asked, and how many it was asked about at once."""

    def __init__(self, *args):
        super().__init__(*args)
        self.asked = 0

    def __contains__(self, key):
        self.asked += 1
        return super().__contains__(key)

    def __getitem__(self, key):
        self.asked += 1
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.asked += 1
        return super().get(key, default)

    def __iter__(self):
        self.asked += len(self)
        return super().__iter__()


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def queue(store):
    with MemoryQueue(store) as queue:
        yield queue


def test_settled_leases_do_not_pile_up(store, queue):
    """Over 100,000 deliveries with an hour's lease, hardly more is kept than is in flight."""
    queue.push(Message("q", b"held", visibility_timeout=timedelta(hours=1)))
    [held] = queue.pop("q", wait=_NOW)
    largest = 0
    for _ in range(1_000):
        queue.push(*(Message("q", visibility_timeout=timedelta(hours=1)) for _ in range(100)))
        for _ in range(2):
            queue.ack(*queue.pop("q", 50, wait=_NOW))
        largest = max(largest, len(store.queues["q"].leases))
    assert largest <= 300
    queue.ack(held)


def test_extending_a_lease_again_and_again_does_not_pile_up(store, queue):
    """One delivery that is kept alive for long keeps few old deadlines."""
    queue.push(Message("q"))
    [delivery] = queue.pop("q", wait=_NOW)
    for _ in range(10_000):
        queue.extend_visibility(timedelta(hours=1), delivery)
    assert len(store.queues["q"].leases) <= 100


def test_queues_of_the_past_leave_nothing(store, queue):
    """Neither emptied queues nor names that were only asked for are kept."""
    for number in range(1_000):
        name = f"q{number}"
        queue.push(Message(name))
        queue.ack(*queue.pop(name, wait=_NOW))
        asked = f"asked{number}"
        queue.pop(asked, wait=_NOW)
        queue.stats(asked)
        queue.redrive(asked, 1)
        queue.dead_letters(asked, 1)
        queue.forget(asked, "id")
        queue.redrive_ids(asked, "id")
    assert store.queues == {}


def test_stale_settlements_leave_nothing(store, queue):
    """Nor does a settlement of what is long gone bring a name back."""
    queue.push(Message("q"))
    [delivery] = queue.pop("q", wait=_NOW)
    queue.ack(delivery)
    for settle in (queue.ack, queue.retry, queue.dead_letter, queue.release):
        with pytest.raises(ExceptionGroup):
            settle(delivery)
    assert store.queues == {}


def test_redriving_one_by_one_looks_at_each_death_a_few_times(store, queue):
    """20,000 dead messages redriven singly cost some 20,000 looks, not their square."""
    count = 20_000
    queue.push(*(Message("q") for _ in range(count)))
    for _ in range(2):
        queue.dead_letter(*queue.pop("q", count // 2, wait=_NOW))
    index = store.queues["q"].dead
    index._deaths = counting = _CountingDict(index._deaths)
    for _ in range(count):
        assert queue.redrive("q", 1) == 1
    assert counting.asked <= 10 * count
    assert len(queue.pop("q", 10_000, wait=_NOW)) == 10_000


@pytest.mark.parametrize("newest_first", [True, False])
def test_forgetting_one_by_one_looks_at_each_death_a_few_times(store, queue, newest_first):
    """From either end, and paging through them in between."""
    count = 10_000
    queue.push(*(Message("q", id=f"{n:05}") for n in range(count)))
    queue.dead_letter(*queue.pop("q", count, wait=_NOW))
    index = store.queues["q"].dead
    index._deaths = counting = _CountingDict(index._deaths)
    for number in range(count):
        id = f"{count - 1 - number if newest_first else number:05}"
        assert queue.forget("q", id) == 1
    assert counting.asked <= 10 * count
    assert store.queues == {}


def test_a_push_wakes_one_waiting_pop_and_not_all(store, queue, monkeypatch):
    """Of twenty waiters one looks and takes the message; the others sleep on."""
    looks = 0
    promote = QueueState.promote

    def counted(state, now):
        nonlocal looks
        looks += 1
        promote(state, now)

    queue.push(Message("q"))
    held = queue.pop("q", wait=_NOW)  # so that all know of a lease that ends first
    with ThreadPoolExecutor(20) as threads:
        waiters = [threads.submit(queue.pop, "q", wait=timedelta(seconds=20)) for _ in range(20)]
        while store.queues["q"].waiting < 20:
            time.sleep(0.005)
        monkeypatch.setattr(QueueState, "promote", counted)
        queue.push(Message("q"))
        while not any(waiter.done() for waiter in waiters):
            time.sleep(0.005)
        time.sleep(0.05)
        assert looks == 1
        queue.push(*(Message("q") for _ in range(19)))
        assert sum(len(waiter.result(20)) for waiter in waiters) == 20
    queue.ack(*held)
