"""Attempts on quorum queues are exact, whatever way a delivery came back."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from pika import ConnectionParameters

from hypercube_queue import BatchError, Message, NotFound, open_queue
from hypercube_queue_rabbitmq import RabbitMQQueue

pytestmark = pytest.mark.server("rabbitmq")


def _take_and_die(url: str) -> None:
    queue = open_queue(url)
    assert queue.pop("work", 10, wait=timedelta(seconds=10))
    os._exit(0)


def test_closes_crashes_and_retries_count_one_each(
    url: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """Alone and in every order."""
    queue = open_(url)
    queue.push(Message("work", b"0"))
    spawn = multiprocessing.get_context("spawn")
    attempt = 0
    for way in ("close", "retry", "crash", "crash", "retry", "close", "retry"):
        if way == "crash":
            process = spawn.Process(target=_take_and_die, args=(url,))
            process.start()
            process.join(30)
            assert process.exitcode == 0
            attempt += 1
            continue
        holder = open_(url)
        [delivery] = holder.pop("work", wait=timedelta(seconds=10))
        attempt += 1
        assert (way, delivery.attempt) == (way, attempt)
        if way == "retry":
            holder.retry(delivery)
        holder.close()
    assert queue.pop("work", wait=timedelta(seconds=10))[0].attempt == attempt + 1


def test_what_an_interrupted_pop_would_have_got_comes_to_the_next(
    queue: RabbitMQQueue, open_: Callable[[str], RabbitMQQueue], url: str
) -> None:
    """Handed back at once by a driver without leases (ERR-5)."""
    queue.pop("work", wait=timedelta(0))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        queue.pop("work", 10, wait=timedelta(seconds=30))
    other = open_(url)
    other.push(*(Message("work", b"%d" % n) for n in range(5)))
    received: list[Message] = []
    while len(received) < 5:
        received += other.pop("work", 5, wait=timedelta(seconds=5))

    assert sorted(each.payload for each in received) == [b"%d" % n for n in range(5)]


@pytest.mark.parametrize("verb", ["ack", "retry", "dead_letter"])
def test_a_stale_settlement_is_sent_nowhere_and_harms_no_other_delivery(
    queue: RabbitMQQueue, verb: str
) -> None:
    """A tag that is acknowledged twice would cost its channel, and every delivery on it."""
    queue.push(*(Message("work", b"%d" % n) for n in range(4)))
    first, second, third, fourth = queue.pop("work", 4)
    queue.ack(second)
    channel = first.driver_data.channel  # type: ignore[union-attr]
    for _ in range(2):
        with pytest.raises(BatchError) as caught:
            getattr(queue, verb)(second)
        assert [type(each.error) for each in caught.value.failed] == [NotFound]

    assert channel.is_open
    queue.ack(fourth, first)
    queue.retry(third)
    assert [(each.payload, each.attempt) for each in queue.pop("work", 4)] == [(b"2", 2)]


def test_acks_in_any_order_remove_what_they_name(
    queue: RabbitMQQueue, open_: Callable[[str], RabbitMQQueue], url: str
) -> None:
    """Several are named at once where the broker's protocol allows it, and no more than those."""
    queue.push(*(Message("work", b"%d" % n) for n in range(12)))
    deliveries = queue.pop("work", 12)
    for indexes in ((3, 1), (0,), (2, 5, 4), (9,), (11, 6)):
        queue.ack(*(deliveries[index] for index in indexes))
    queue.close()

    left = open_(url).pop("work", 12, wait=timedelta(seconds=5))
    assert sorted(int(each.payload) for each in left) == [7, 8, 10]


def test_more_pops_than_channels_share_them(parameters: ConnectionParameters, prefix: str) -> None:
    """A worker that holds very many single deliveries does not run into the broker's limit."""
    parameters.channel_max = 8
    with RabbitMQQueue(parameters, prefix=prefix) as queue:
        queue.push(*(Message("work", b"%d" % n) for n in range(20)))
        held = [queue.pop("work", 1)[0] for _ in range(20)]
        assert len({id(each.driver_data.channel) for each in held}) < 8  # type: ignore[union-attr]
        queue.ack(*held[::2])

    with RabbitMQQueue(parameters, prefix=prefix) as queue:
        left = queue.pop("work", 20, wait=timedelta(seconds=5))
    assert sorted(int(each.payload) for each in left) == list(range(1, 20, 2))
