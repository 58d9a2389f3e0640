"""Many threads on one store, counted exactly."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from hypercube_queue import Message, QueueClosed, QueueStats
from hypercube_queue_memory import MemoryQueue, MemoryStore

_THREADS = 8
_EACH = 1_000


def test_every_message_is_processed_once_and_the_store_is_empty():
    """Eight threads push and eight work, with retries and releases on the way."""
    store = MemoryStore()
    queue = MemoryQueue(store)
    done: list[str] = []

    def produce(number):
        for start in range(0, _EACH, 10):
            queue.push(*(Message("q", id=f"{number}.{n}") for n in range(start, start + 10)))

    def work():
        while len(done) < _THREADS * _EACH:
            for delivery in queue.pop("q", 16, wait=timedelta(milliseconds=20)):
                if delivery.attempt == 1 and delivery.id.endswith("3"):
                    queue.retry(delivery)
                else:
                    queue.ack(delivery)
                    done.append(delivery.id)

    with ThreadPoolExecutor(2 * _THREADS) as threads:
        futures = [threads.submit(produce, number) for number in range(_THREADS)]
        futures += [threads.submit(work) for _ in range(_THREADS)]
        for future in futures:
            future.result()
    counts = Counter(done)
    assert len(counts) == _THREADS * _EACH
    assert set(counts.values()) == {1}
    assert store.queues == {}


def test_dying_and_coming_back_loses_nothing():
    """Threads that dead-letter and redrive the same messages at once keep every one."""
    queue = MemoryQueue()
    queue.push(*(Message("q", id=str(n)) for n in range(200)))
    stop = threading.Event()

    def kill():
        while not stop.is_set():
            queue.dead_letter(*queue.pop("q", 20, wait=timedelta(0)))

    def redrive():
        moved = 0
        while moved < 5_000:
            moved += queue.redrive("q", 7)
            moved += queue.redrive_ids("q", *(str(n) for n in range(5)))
        stop.set()

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(each) for each in (kill, kill, redrive, kill)]:
            future.result()
    stats = queue.stats("q")
    assert stats == QueueStats("q", 200 - stats.dead, 0, 0, stats.dead)
    assert queue.redrive("q", 1_000) == stats.dead
    assert {each.id for each in queue.pop("q", 1_000)} == {str(n) for n in range(200)}


def test_closing_among_working_threads_ends_all_of_them():
    """Each call works or raises QueueClosed; none hangs, and nothing is lost."""
    store = MemoryStore()
    queue = MemoryQueue(store)
    queue.push(*(Message("q") for _ in range(2_000)))
    acked: list[str] = []

    def work():
        while True:
            for delivery in queue.pop("q", 3, wait=timedelta(seconds=10)):
                queue.ack(delivery)
                acked.append(delivery.id)
            if len(acked) > 500:
                queue.close()

    with ThreadPoolExecutor(_THREADS) as threads:
        working = [threads.submit(work) for _ in range(_THREADS)]
        ends = [future.exception(20) for future in working]
    assert [type(end) for end in ends] == [QueueClosed] * _THREADS
    assert len(store.queues["q"].entries) == 2_000 - len(acked)
