"""Deliveries that are held for longer than the broker allows."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from hypercube_queue import BatchError, Message, NotFound, QueueError
from hypercube_queue_rabbitmq import RabbitMQQueue
from hypercube_queue_rabbitmq._consuming import ConsumingChannel

pytestmark = pytest.mark.server("rabbitmq")

#: The broker looks at each channel this often, and a queue waits for its own turn.
_PATIENCE = timedelta(seconds=25)


@pytest.fixture
def impatient(broken: Any, rabbitmqctl: Callable[..., str]) -> Iterator[Any]:
    """A broker that lets a delivery be held for a second."""

    def set_limits(milliseconds: int, tick: int) -> None:
        rabbitmqctl(
            broken,
            "eval",
            f"application:set_env(rabbit, consumer_timeout, {milliseconds}), "
            f"application:set_env(rabbit, channel_tick_interval, {tick}).",
        )

    set_limits(1000, 500)
    yield broken
    set_limits(1_800_000, 60_000)


@pytest.mark.nightly
def test_a_delivery_that_the_broker_takes_away_is_lost_and_the_driver_works_on(
    impatient: Any, prefix: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """The broker closes its channel. Its settlement is NotFound, and no other delivery suffers."""
    queue = open_(impatient.url("amqp", prefix=prefix))
    queue.push(Message("work", b"slow"), Message("other", b"quick"))
    [slow] = queue.pop("work")
    again: list[Message] = []
    end = time.monotonic() + _PATIENCE.total_seconds()
    while not again and time.monotonic() < end:
        again = queue.pop("work", wait=timedelta(milliseconds=200))
    [quick] = queue.pop("other")

    assert [each.payload for each in again] == [b"slow"]
    assert _failed(queue.ack, slow, quick) == [(0, NotFound)]
    queue.ack(*again)
    queue.push(Message("work", b"next"))
    queue.ack(*queue.pop("work"))
    assert queue.pop("work", wait=timedelta(0)) == []


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_a_delivery_held_for_max_hold_is_given_back_and_counts(
    url: str,
    open_: Callable[[str], RabbitMQQueue],
    queue_type: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The driver does it before the broker would. A batch popped later is held on."""
    queue = open_(f"{url}&queue_type={queue_type}&max_hold=1")
    assert queue.guarantees.max_hold == timedelta(seconds=1)
    queue.push(Message("work", b"slow"), Message("other", b"quick"))
    [slow] = queue.pop("work")
    time.sleep(0.5)
    [quick] = queue.pop("other")
    [again] = queue.pop("work", wait=timedelta(seconds=5))

    assert (again.payload, again.attempt) == (b"slow", 2)
    assert _failed(queue.ack, slow, quick, again) == [(0, NotFound)]
    assert ["max_hold" in each.getMessage() for each in caplog.records] == [True]


def test_a_pop_may_wait_for_longer_than_a_delivery_may_be_held(
    url: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """The time begins with the delivery."""
    queue = open_(f"{url}&max_hold=1")
    threading.Timer(1.5, lambda: queue.push(Message("work", b"late"))).start()

    [delivery] = queue.pop("work", wait=timedelta(seconds=10))
    queue.ack(delivery)


def _failed(call: Callable[..., None], *messages: Message) -> list[tuple[int, type[QueueError]]]:
    try:
        call(*messages)
    except BatchError as error:
        return [(failure.index, type(failure.error)) for failure in error.failed]
    return []


def test_each_delivery_on_a_shared_channel_may_be_held_for_the_whole_time() -> None:
    """The clock is that of the oldest which is still there, and not of the first that came."""

    async def run() -> None:
        pika, closed = MagicMock(is_open=True), threading.Event()
        channel = ConsumingChannel(
            SimpleNamespace(raw=pika, closed_by=None, on_closed=[], close=closed.set),  # type: ignore[arg-type]
            None,
            60.0,
            lambda _: None,
        )
        channel.add(1)
        channel.add(2)
        channel.unsettled[1] -= 61
        channel.give_back([1])
        channel._expire()
        assert not closed.is_set()
        channel.unsettled[2] -= 61
        channel._expire()
        assert closed.is_set()

    asyncio.run(run())
