"""Waiting pops: what wakes them, how soon, and what it costs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from redis import Redis
from tools.backends import exclusive, server

from hypercube_queue import Message, QueueClosed, open_queue
from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_redis import RedisQueue

pytestmark = pytest.mark.server("redis")

_NOW = timedelta(0)
_LONG = timedelta(seconds=20)
#: A pop that only looked once a second would need half of one in the middle of several tries.
_AT_ONCE_SECONDS = 0.25
#: A second is promised where a wake-up is lost; the rest is for a busy machine.
_SLICE_SECONDS = 1.0 + 1.0


@contextmanager
def waiting(queue: RedisQueue) -> Iterator[Callable[[], float]]:
    """A pop that waits for a message of queue `q`; gives what tells when it got one."""

    def pop() -> float:
        [delivery] = queue.pop("q", wait=_LONG)
        arrived = time.monotonic()
        queue.ack(delivery)
        return arrived

    with ThreadPoolExecutor(1) as threads:
        popping = threads.submit(pop)
        while not queue._waiters.counts():
            time.sleep(0.002)
        time.sleep(0.02)  # from there to the server
        yield lambda: popping.result(_LONG.total_seconds())


def _is_blocked(client: Redis, name: str) -> bool:
    """Whether the client of this name waits on the server."""
    return any(each["name"] == name and each["cmd"] == "blpop" for each in client.client_list())


@pytest.mark.parametrize("how", ["push", "retry", "release", "redrive", "redrive_ids"])
def test_a_waiting_pop_is_woken_at_once(queue: RedisQueue, url: str, how: str) -> None:
    """By everything that makes a message ready, through another object (POP-7)."""
    took = []
    with open_queue(url) as other:
        assert isinstance(other, RedisQueue)
        for _ in range(5):
            held = []
            if how != "push":
                other.push(Message("q", visibility_timeout=timedelta(hours=1)))
                held = other.pop("q", wait=_NOW)
            if how.startswith("redrive"):
                other.dead_letter(*held)
            with waiting(queue) as arrived:
                begun = time.monotonic()
                if how == "push":
                    other.push(Message("q"))
                elif how == "redrive":
                    other.redrive("q", 1)
                elif how == "redrive_ids":
                    other.redrive_ids("q", held[0].id)
                else:
                    getattr(other, how)(*held)
                took.append(arrived() - begun)
    assert statistics.median(took) < _AT_ONCE_SECONDS


def test_a_close_wakes_the_pops_of_its_object_at_once(url: str) -> None:
    """And of its object only (LIFE-1)."""
    took = []
    with open_queue(url) as other, ThreadPoolExecutor(1) as threads:
        staying = threads.submit(other.pop, "q", wait=_LONG)
        for _ in range(5):
            queue = open_queue(url)
            with ThreadPoolExecutor(3) as own:
                popping = [own.submit(queue.pop, "q", wait=_LONG) for _ in range(3)]
                time.sleep(0.1)
                begun = time.monotonic()
                queue.close()
                for each in popping:
                    assert isinstance(each.exception(20), QueueClosed)
                took.append(time.monotonic() - begun)
        assert not staying.done()
        other.push(Message("q"))
        assert len(staying.result(20)) == 1
    assert statistics.median(took) < _AT_ONCE_SECONDS


@pytest.mark.parametrize("kind", ["delay", "retry", "lease", "extension"])
def test_what_becomes_due_is_noticed_on_time(queue: RedisQueue, url: str, kind: str) -> None:
    """Also by a pop that has waited since before anybody knew of it (POP-7)."""
    took = []
    due = timedelta(milliseconds=300)
    with open_queue(url) as other:
        assert isinstance(other, RedisQueue)
        for _ in range(5):
            held = []
            if kind != "delay":
                lease = due if kind == "lease" else timedelta(hours=1)
                other.push(Message("q", visibility_timeout=lease))
                held = other.pop("q", wait=_NOW)
            begun = time.monotonic()
            with waiting(queue) as arrived:
                if kind != "lease":
                    begun = time.monotonic()
                if kind == "delay":
                    other.push(Message("q", delay=due))
                elif kind == "retry":
                    held[0].delay = due
                    other.retry(*held)
                elif kind == "extension":
                    other.extend_visibility(due, *held)
                took.append(arrived() - begun)
    if kind != "lease":  # which began a little before
        assert min(took) >= due.total_seconds()
    assert statistics.median(took) < due.total_seconds() + _AT_ONCE_SECONDS


def test_a_waiter_that_dies_with_the_token_delays_the_others_by_a_second(
    queue: RedisQueue, client: Redis, prefix: str
) -> None:
    """Others look once a second, whether there is a token or not (POP-7)."""
    place = server("redis")
    wake = queue_keys(prefix, "q").wake
    with Redis(host=place.host, port=place.port, client_name=prefix) as dying:
        # It stands in line before the other, so that it gets the token.
        thief = threading.Thread(target=dying.blpop, args=([wake], 20))
        thief.start()
        while not _is_blocked(client, prefix):
            time.sleep(0.002)
        with waiting(queue) as arrived:
            begun = time.monotonic()
            queue.push(Message("q"))
            thief.join(20)
            took = arrived() - begun
    assert not thief.is_alive()
    assert took < _SLICE_SECONDS


def test_one_push_wakes_one_waiter_and_what_it_leaves_wakes_the_next(
    queue: RedisQueue, url: str
) -> None:
    """Ten waiters share ten messages that came at once, by one token that they hand on."""
    with ThreadPoolExecutor(10) as threads, open_queue(url) as other:
        popping = [threads.submit(queue.pop, "q", wait=_LONG) for _ in range(10)]
        time.sleep(0.2)
        other.push(*(Message("q") for _ in range(10)))
        received = [each for future in popping for each in future.result(20)]
    assert len({each.id for each in received}) == 10


def test_an_idle_worker_costs_two_commands_a_second() -> None:
    """Counted by the server, for four waiting pops on four queues (POP-7)."""
    pops, seconds = 4, 3
    with (
        exclusive("redis") as place,
        open_queue(place.url("redis", "0", prefix="idle")) as queue,
        Redis(host=place.host, port=place.port) as client,
        ThreadPoolExecutor(pops) as threads,
    ):
        for number in range(pops):  # connections and scripts are there already
            threads.submit(queue.pop, f"q{number}", wait=timedelta(seconds=0.2)).result(20)
        client.config_resetstat()
        popping = [
            threads.submit(queue.pop, f"q{number}", wait=timedelta(seconds=seconds))
            for number in range(pops)
        ]
        assert [each.result(20) for each in popping] == [[]] * pops
        calls = {name: each["calls"] for name, each in client.info("commandstats").items()}
    sent = {name: calls.get(f"cmdstat_{name}", 0) for name in ("evalsha", "eval", "blpop", "ping")}
    # One look more, with which each pop begins.
    assert sum(sent.values()) <= pops * (2 * seconds + 1)
    assert sent["blpop"] >= pops * seconds * 0.8


def test_sixteen_queues_are_waited_for_at_once(queue: RedisQueue, url: str) -> None:
    """Each by a pop of its own, and each is picked up at once."""
    arrivals: dict[str, float] = {}

    def pop(name: str) -> None:
        queue.ack(*queue.pop(name, wait=_LONG))
        arrivals[name] = time.monotonic()

    names = [f"q{number}" for number in range(16)]
    took = []
    with ThreadPoolExecutor(16) as threads, open_queue(url) as other:
        popping = [threads.submit(pop, name) for name in names]
        time.sleep(0.5)
        for name, future in zip(names, popping, strict=True):
            begun = time.monotonic()
            other.push(Message(name))
            future.result(20)
            took.append(arrivals[name] - begun)
    # Fifty milliseconds on a machine that has nothing else to do.
    assert statistics.median(took) < _AT_ONCE_SECONDS
