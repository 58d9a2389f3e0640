"""Deliveries that are held for longer than the broker allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from hypercube_queue import BatchError, Message, NotFound
from hypercube_queue_rabbitmq import RabbitMQQueue

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


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_a_delivery_held_too_long_is_lost_and_the_driver_works_on(
    impatient: Any, prefix: str, open_: Callable[[str], RabbitMQQueue], queue_type: str
) -> None:
    """Its settlement is NotFound, it comes again with the next attempt, and no other suffers."""
    queue = open_(impatient.url("amqp", prefix=prefix, queue_type=queue_type))
    queue.push(Message("work", b"slow"))
    [slow] = queue.pop("work")
    end = time.monotonic() + _PATIENCE.total_seconds()
    again: list[Message] = []
    while not again and time.monotonic() < end:
        again = queue.pop("work", wait=timedelta(milliseconds=200))

    assert [each.payload for each in again] == [b"slow"]
    assert again[0].attempt == 2
    with pytest.raises(BatchError) as caught:
        queue.ack(slow)
    assert [type(failure.error) for failure in caught.value.failed] == [NotFound]
    queue.ack(*again)
    queue.push(Message("work", b"next"))
    queue.ack(*queue.pop("work"))
    assert queue.pop("work", wait=timedelta(0)) == []
