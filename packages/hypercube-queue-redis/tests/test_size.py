"""Many messages, large ones, and what they cost the server."""

from __future__ import annotations

import os
import statistics
import time
from datetime import timedelta

import pytest
from redis import Redis
from tools.backends import exclusive

from hypercube_queue import Message, QueueStats, open_queue
from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_redis import RedisQueue

_NOW = timedelta(0)
#: A million is stored by the nightly run; a fifth of it takes a few seconds.
_MANY = 1_000_000 if os.environ.get("HYPERCUBE_TEST_ALL") == "1" else 200_000
_MEGABYTE = 1024 * 1024


@pytest.mark.server("redis")
def test_ten_thousand_leases_end_at_once(queue: RedisQueue) -> None:
    """They count as ready at once, and one pop gets them all back, each once."""
    count = 10_000
    for _ in range(count // 1000):
        queue.push(*(Message("q", visibility_timeout=timedelta(hours=1)) for _ in range(1000)))
    held = queue.pop("q", count, wait=_NOW)
    first = {each.id for each in held}
    assert len(first) == count
    queue.extend_visibility(timedelta(milliseconds=1), *held)
    time.sleep(0.1)
    assert queue.stats("q") == QueueStats("q", count, 0, 0, 0)
    again = queue.pop("q", count, wait=_NOW)
    assert {each.id for each in again} == first
    assert {each.attempt for each in again} == {2}


@pytest.mark.server("redis")
def test_a_script_moves_a_bounded_number_of_what_is_due(
    queue: RedisQueue, client: Redis, prefix: str
) -> None:
    """One message comes of thousands that are due, and the server does not move them all for it."""
    queue.push(*(Message("q", delay=timedelta(milliseconds=1)) for _ in range(3000)))
    time.sleep(0.1)
    assert len(queue.pop("q", wait=_NOW)) == 1
    assert client.llen(queue_keys(prefix, "q").all[3]) == 255


@pytest.mark.server("redis")
def test_large_bodies_come_and_go_as_they_are(queue: RedisQueue) -> None:
    """Ten megabytes each: pushed, popped two at once, retried, dead-lettered and looked at."""
    bodies = [bytes([number]) * (10 * _MEGABYTE) for number in range(3)]
    queue.push(*(Message("q", body) for body in bodies))
    received = queue.pop("q", 10, wait=_NOW) + queue.pop("q", 10, wait=_NOW)
    assert [each.payload for each in received] == bodies
    for each in received:
        each.payload = each.payload[::-1] + b"."
    queue.retry(*received)
    received = queue.pop("q", 10, wait=_NOW) + queue.pop("q", 10, wait=_NOW)
    assert [each.payload for each in received] == [body + b"." for body in bodies]
    queue.dead_letter(*received)
    dead = queue.dead_letters("q", 10)
    assert [each.message.payload for each in dead] == [body + b"." for body in bodies[::-1]]
    assert queue.forget("q", *(each.message.id for each in dead)) == 3


@pytest.mark.server("redis")
def test_a_full_batch_beside_large_bodies_is_full(queue: RedisQueue) -> None:
    """A pop of many small and some large ones gets all (POP-1)."""
    queue.push(*(Message("q", bytes(number % 50 // 49 * _MEGABYTE)) for number in range(500)))
    assert len(queue.pop("q", 500, wait=_NOW)) == 500


@pytest.mark.server("redis")
def test_a_backlog_costs_a_pop_nothing() -> None:
    """A pop of sixteen beside hundreds of thousands is as fast as beside a thousand (POP-9).

    And a waiting message of a hundred bytes takes 350 bytes of the server's memory at most.
    """
    with (
        exclusive("redis") as place,
        open_queue(place.url("redis", "0", prefix="backlog", operation_timeout=60)) as queue,
        Redis(host=place.host, port=place.port) as client,
    ):
        # Nothing of this has to survive, and a disk that is slow is not what is measured.
        client.config_set("appendonly", "no")
        try:
            before = client.info("memory")["used_memory"]
            _fill(queue, "few", 1000)
            _fill(queue, "many", _MANY)
            taken = client.info("memory")["used_memory"] - before
            few, many = _pops(queue, "few"), _pops(queue, "many")
        finally:
            client.flushall()
            client.config_set("appendonly", "yes")
    assert taken / (_MANY + 1000) <= 350
    # Single pops are noisy; one that looked at the backlog would be slower by far.
    assert statistics.median(many) <= 3 * statistics.median(few)


def _fill(queue: object, name: str, count: int) -> None:
    for start in range(0, count, 5000):
        size = min(5000, count - start)
        queue.push(*(Message(name, b"x" * 100) for _ in range(size)))


def _pops(queue: object, name: str) -> list[float]:
    took = []
    for _ in range(50):
        begun = time.perf_counter()
        deliveries = queue.pop(name, 16, wait=_NOW)
        took.append(time.perf_counter() - begun)
        assert len(deliveries) == 16
        queue.release(*deliveries)
    return took
