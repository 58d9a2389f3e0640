"""A broker that has no room: it takes no messages, and must get rid of those it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from hypercube_queue import BackendError, BatchError, CapacityExceeded, Message
from hypercube_queue_rabbitmq import RabbitMQQueue

pytestmark = pytest.mark.server("rabbitmq")


@pytest.fixture
def alarm(broken: Any, rabbitmqctl: Callable[..., str]) -> Iterator[Callable[[bool], None]]:
    """Raises the alarm for want of memory, and ends it."""

    def sound(on: bool) -> None:
        rabbitmqctl(broken, "set_vm_memory_high_watermark", "0.000001" if on else "0.6")
        time.sleep(0.5)

    yield sound
    sound(False)


def _push(queue: RabbitMQQueue, *messages: Message) -> list[Exception]:
    try:
        queue.push(*messages)
    except BatchError as error:
        return [failure.error for failure in error.failed]
    return []


def test_during_an_alarm_pushes_fail_in_time_and_the_queue_is_drained(
    broken: Any,
    prefix: str,
    open_: Callable[[str], RabbitMQQueue],
    alarm: Callable[[bool], None],
) -> None:
    """Consumers go on, acks reach the broker, and every item of a push has its error."""
    queue = open_(broken.url("amqp", prefix=prefix, operation_timeout=3))
    other = open_(broken.url("amqp", prefix=prefix))
    queue.push(*(Message("work", b"%d" % n) for n in range(50)))
    time.sleep(1)
    alarm(True)

    begun = time.monotonic()
    sent = _push(queue, *(Message("work", b"sent") for _ in range(5)))
    assert {type(error) for error in sent} <= {BackendError, CapacityExceeded}
    assert time.monotonic() - begun < 4
    refused = _push(queue, *(Message("work", b"refused") for _ in range(5)))
    assert [type(error) for error in refused] == [CapacityExceeded] * 5
    assert time.monotonic() - begun < 8

    received = []
    while deliveries := queue.pop("work", 20, wait=timedelta(0)):
        queue.ack(*deliveries)
        received += [each.payload for each in deliveries]
    assert [each for each in received if each != b"sent"] == [b"%d" % n for n in range(50)]

    alarm(False)
    queue.push(Message("work", b"after"))
    came = []
    while b"after" not in came:
        deliveries = other.pop("work", 20, wait=timedelta(seconds=5))
        assert deliveries
        other.ack(*deliveries)
        came += [each.payload for each in deliveries]
    assert set(came) <= {b"after", b"sent"}


@pytest.mark.nightly
def test_during_an_alarm_a_retry_fails_in_time_and_the_delivery_is_owned(
    broken: Any,
    prefix: str,
    open_: Callable[[str], RabbitMQQueue],
    alarm: Callable[[bool], None],
) -> None:
    """Nothing was stored anew, so nothing was removed."""
    queue = open_(broken.url("amqp", prefix=prefix, operation_timeout=3))
    queue.push(Message("work", b"0"), Message("work", b"1"))
    first, second = queue.pop("work", 2)
    alarm(True)
    _push(queue, Message("elsewhere"), Message("elsewhere"))  # it learns of the alarm

    with pytest.raises(BatchError) as caught:
        queue.retry(first)
    assert [type(failure.error) for failure in caught.value.failed] == [CapacityExceeded]
    queue.ack(second)

    alarm(False)
    queue.retry(first)
    assert queue.pop("work", 10, wait=timedelta(seconds=5))[0].payload == b"0"
