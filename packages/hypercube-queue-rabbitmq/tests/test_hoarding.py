"""What a pop did not return stays for others, with its attempts untouched."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from tools.backends.instance import Server

from hypercube_queue import Message
from hypercube_queue_rabbitmq import RabbitMQQueue

pytestmark = pytest.mark.server("rabbitmq")

_MESSAGES = 3000


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_thousands_of_pops_under_concurrent_pushes_take_each_message_once(
    url: str, open_: Callable[[str], RabbitMQQueue], queue_type: str
) -> None:
    """One consumer checks, one waits, both ask for more than is there; every attempt is 1."""
    pushing, *consuming = (open_(f"{url}&queue_type={queue_type}") for _ in range(3))
    received: list[Message] = []
    pops = Counter[int]()

    def push() -> None:
        for start in range(0, _MESSAGES, 3):
            pushing.push(*(Message("work", id=str(start + n)) for n in range(3)))

    def pop(number: int, wait: timedelta) -> None:
        while len(received) < _MESSAGES:
            deliveries = consuming[number].pop("work", 7, wait=wait)
            pops[number] += 1
            received.extend(deliveries)
            consuming[number].ack(*deliveries)

    threads = [
        threading.Thread(target=push),
        threading.Thread(target=pop, args=(0, timedelta(0))),
        threading.Thread(target=pop, args=(1, timedelta(milliseconds=3))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert sorted(int(each.id) for each in received) == list(range(_MESSAGES))
    assert {each.attempt for each in received} == {1}
    assert min(pops.values()) > 100


def test_what_one_pop_leaves_another_object_gets_at_once(
    url: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """Nothing is prefetched, before a pop, during it, or behind it."""
    first, second = open_(url), open_(url)
    first.push(*(Message("work", b"%d" % n) for n in range(100)))

    assert len(first.pop("work", 30)) == 30
    assert len(second.pop("work", 100, wait=timedelta(0))) == 70


def test_a_waiting_pop_keeps_nothing_when_it_is_over(
    url: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """Its consumer is gone before it returns."""
    first, second = open_(url), open_(url)
    for n in range(20):
        assert first.pop("work", 10, wait=timedelta(milliseconds=5)) == []
        second.push(Message("work", b"%d" % n))
        [delivery] = second.pop("work", wait=timedelta(0))
        assert (delivery.payload, delivery.attempt) == (b"%d" % n, 1)
        second.ack(delivery)


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_an_idle_pop_costs_the_broker_no_traffic(
    shared: Server, url: str, open_: Callable[[str], RabbitMQQueue], queue_type: str
) -> None:
    """Between its first and its last moment nothing is sent and nothing comes.

    Quorum queues before 4.3 are looked at: ten times a second, fifty bytes or so each time.
    """
    queue = open_(f"{url}&queue_type={queue_type}")
    queue.pop("work", wait=timedelta(0))
    raw = queue._client._consuming._raw
    counts: list[int] = []
    timers = [
        threading.Timer(seconds, lambda: counts.append(raw.bytes_sent + raw.bytes_received))
        for seconds in (0.4, 1.4)
    ]
    for timer in timers:
        timer.start()
    assert queue.pop("work", 10, wait=timedelta(seconds=2)) == []

    looks = queue_type == "quorum" and shared.version < "4.3"
    before, after = counts
    assert after - before <= (12 * 150 if looks else 0)


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_a_large_pop_takes_all_that_is_ready(
    url: str, open_: Callable[[str], RabbitMQQueue], queue_type: str
) -> None:
    """Also what the broker does not deliver in one go (POP-1), and in order."""
    queue = open_(f"{url}&queue_type={queue_type}")
    queue.push(*(Message("work", b"%d" % n) for n in range(3000)))

    received = queue.pop("work", 2900, wait=timedelta(0))
    assert [int(each.payload) for each in received] == list(range(2900))
    assert len(queue.pop("work", 10_000, wait=timedelta(0))) == 100
