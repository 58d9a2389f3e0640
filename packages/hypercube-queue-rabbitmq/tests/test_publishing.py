"""Pushes that the broker refuses, returns, or cannot take."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from hypercube_queue import (
    BackendError,
    BatchError,
    CapacityExceeded,
    Message,
    MessageTooLarge,
    QueueError,
)
from hypercube_queue_rabbitmq import RabbitMQQueue

pytestmark = pytest.mark.server("rabbitmq")

_QUORUM = {"x-queue-type": "quorum"}


def _failed(call: Callable[..., None], *messages: Message) -> dict[int, QueueError]:
    try:
        call(*messages)
    except BatchError as error:
        return {failure.index: failure.error for failure in error.failed}
    return {}


def test_a_missing_queue_fails_its_items_and_no_others(
    url: str, open_: Callable[[str], RabbitMQQueue], channel: BlockingChannel, prefix: str
) -> None:
    """Returned by the broker, so certainly not stored; the error says what to do."""
    channel.queue_declare(f"{prefix}there", durable=True, arguments=_QUORUM)
    queue = open_(f"{url}&declare=false")
    names = ["there", "missing", "there", "missing", "there"]

    failed = _failed(queue.push, *(Message(name) for name in names))

    assert sorted(failed) == [1, 3]
    for error in failed.values():
        assert isinstance(error, BackendError)
        assert not error.outcome_unknown
        assert "there is no queue" in str(error)
        assert "declare=true" in str(error)
    assert len(queue.pop("there", 10, wait=timedelta(0))) == 3


def test_a_queue_that_was_deleted_is_declared_again_at_the_next_call(
    queue: RabbitMQQueue, channel: BlockingChannel, prefix: str
) -> None:
    """The push that finds it missing says so, since what lay in it is lost; then all works."""
    queue.push(Message("work"))
    channel.queue_delete(f"{prefix}work")

    assert [type(error) for error in _failed(queue.push, Message("work")).values()] == [
        BackendError
    ]
    queue.push(Message("work", b"again"))
    assert queue.pop("work")[0].payload == b"again"


def test_a_pop_whose_queue_is_deleted_says_so(
    queue: RabbitMQQueue, channel: BlockingChannel, prefix: str
) -> None:
    """It does not wait for what cannot come any more, and the next one declares the queue."""
    queue.pop("work", wait=timedelta(0))
    channel.connection.call_later(0.3, lambda: channel.queue_delete(f"{prefix}work"))
    import threading

    deleting = threading.Thread(target=lambda: channel.connection.process_data_events(1))
    deleting.start()
    with pytest.raises(BackendError, match=r"deleted|no queue"):
        queue.pop("work", wait=timedelta(seconds=20))
    deleting.join()

    queue.push(Message("work", b"again"))
    assert queue.pop("work")[0].payload == b"again"


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_a_full_queue_refuses_the_rest(
    url: str,
    open_: Callable[[str], RabbitMQQueue],
    channel: BlockingChannel,
    prefix: str,
    queue_type: str,
) -> None:
    """CapacityExceeded for each that was refused, and what was accepted is there."""
    channel.queue_declare(
        f"{prefix}full",
        durable=True,
        arguments={
            "x-queue-type": queue_type,
            "x-max-length": 3,
            "x-overflow": "reject-publish",
        },
    )
    queue = open_(f"{url}&declare=false&queue_type={queue_type}")
    refused = 0
    for n in range(30):
        failed = _failed(queue.push, Message("full", id=str(n)))
        refused += len(failed)
        assert {type(error) for error in failed.values()} <= {CapacityExceeded}

    assert refused > 20
    assert len(queue.pop("full", 100, wait=timedelta(0))) == 30 - refused


def test_a_delivery_that_cannot_be_retried_into_a_full_queue_is_still_owned(
    url: str, open_: Callable[[str], RabbitMQQueue], channel: BlockingChannel, prefix: str
) -> None:
    """The new copy was refused, so the old one was not removed."""
    channel.queue_declare(
        f"{prefix}full",
        durable=True,
        arguments={"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"},
    )
    queue = open_(f"{url}&declare=false&queue_type=classic")
    queue.push(Message("full", b"held"))
    [held] = queue.pop("full")
    queue.push(Message("full", b"in the way"))

    assert [type(error) for error in _failed(queue.retry, held).values()] == [CapacityExceeded]
    queue.ack(*queue.pop("full"))
    queue.retry(held)
    assert queue.pop("full")[0].payload == b"held"


def test_a_missing_place_for_dead_letters_leaves_the_delivery_owned(
    url: str, open_: Callable[[str], RabbitMQQueue], channel: BlockingChannel, prefix: str
) -> None:
    """SET-4: BackendError with a known outcome."""
    channel.queue_declare(f"{prefix}work", durable=True, arguments=_QUORUM)
    queue = open_(f"{url}&declare=false")
    queue.push(Message("work"))
    [delivery] = queue.pop("work")

    [error] = _failed(queue.dead_letter, delivery).values()
    assert isinstance(error, BackendError)
    assert not error.outcome_unknown
    queue.ack(delivery)


def test_messages_are_persistent_and_named_for_people(
    queue: RabbitMQQueue, channel: BlockingChannel, prefix: str
) -> None:
    """A classic queue would lose others with the broker, and an operator looks for the id."""
    queue.push(Message("work", id="order 1"))
    _, properties, _ = channel.basic_get(f"{prefix}work")

    assert properties is not None
    assert (properties.delivery_mode, properties.message_id) == (2, "order 1")


@pytest.mark.nightly
def test_a_message_over_the_broker_s_own_limit_is_too_large_and_stops_no_other_call(
    broken: Any, open_: Callable[[str], RabbitMQQueue], prefix: str, rabbitmqctl: Callable[..., str]
) -> None:
    """The broker closes the channel over it; what came before it on it is told for itself."""
    queue = open_(broken.url("amqp", prefix=prefix))
    queue.push(Message("work", b"first"))
    limit = (
        "persistent_term:put(max_message_size, {0}), "
        "application:set_env(rabbit, max_message_size, {0})."  # before 4.0
    )
    rabbitmqctl(broken, "eval", limit.format(100_000))
    try:
        # A limit is read when a channel opens, so one that opens now has it.
        queue = open_(broken.url("amqp", prefix=prefix))
        failed = _failed(queue.push, Message("work", bytes(200_000), id="big"))
        assert [type(error) for error in failed.values()] == [MessageTooLarge]
        assert "'big'" in str(failed[0])
        queue.push(Message("work", b"second"))
    finally:
        rabbitmqctl(broken, "eval", limit.format(16_777_216))

    assert [each.payload for each in queue.pop("work", 10)] == [b"first", b"second"]
