"""What is declared, and what brokers and operators do with it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker
from tools.backends.instance import Server

from hypercube_queue import BackendError, BatchError, Message
from hypercube_queue_rabbitmq import RabbitMQQueue
from hypercube_queue_rabbitmq._outgoing import Outgoing

pytestmark = pytest.mark.server("rabbitmq")


def test_a_queue_with_other_arguments_is_an_error_that_says_which(
    url: str, open_: Callable[[str], RabbitMQQueue], channel: BlockingChannel, prefix: str
) -> None:
    """In push and in pop, with what to do; other queues go on working."""
    arguments = {
        "x-queue-type": "classic",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"hypercube.dead.{prefix}work",
    }
    channel.queue_declare(f"{prefix}work", durable=True, arguments=arguments)
    queue = open_(url)

    with pytest.raises(BatchError) as caught:
        queue.push(Message("work"), Message("other"))
    [failure] = caught.value.failed
    assert failure.index == 0
    assert isinstance(failure.error, BackendError)
    assert not failure.error.outcome_unknown
    assert "x-queue-type" in str(failure.error)
    assert "declare=false" in str(failure.error)
    with pytest.raises(BackendError, match="x-queue-type"):
        queue.pop("work")
    assert len(queue.pop("other")) == 1


def test_a_queue_without_its_limit_switched_off_is_refused(
    shared: Server,
    url: str,
    open_: Callable[[str], RabbitMQQueue],
    channel: BlockingChannel,
    prefix: str,
) -> None:
    """The broker would drop messages that came back twenty times (LIFE-6)."""
    arguments = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"hypercube.dead.{prefix}work",
    }
    channel.queue_declare(f"{prefix}work", durable=True, arguments=arguments)
    queue = open_(url)

    if shared.version < "4":  # they have no limit of their own, and know no word against it
        assert queue.pop("work", wait=timedelta(0)) == []
        return
    with pytest.raises(BackendError, match="x-delivery-limit"):
        queue.pop("work")


def test_existing_queues_are_used_without_declaring(
    url: str, open_: Callable[[str], RabbitMQQueue], channel: BlockingChannel, prefix: str
) -> None:
    """Whatever their arguments; the operator's are as good as the driver's."""
    for name in (f"{prefix}work", f"hypercube.dead.{prefix}work"):
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    queue = open_(f"{url}&declare=false")

    queue.push(Message("work", b"0"))
    queue.dead_letter(*queue.pop("work"))
    assert queue.redrive("work", 10) == 1
    assert queue.pop("work")[0].payload == b"0"


def test_without_declaring_an_unknown_queue_is_an_error(
    url: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """With what to do, and each time; and nothing is created."""
    queue = open_(f"{url}&declare=false")
    for _ in range(2):
        with pytest.raises(BackendError, match=r"no queue .*declare=true"):
            queue.pop("work")


def test_a_policy_that_throws_messages_out_fills_the_dead_letters(
    shared: Server,
    url: str,
    open_: Callable[[str], RabbitMQQueue],
    prefix: str,
    rabbitmqctl: Callable[..., str],
) -> None:
    """An operator's limit wins over the queue's own. What it takes can be redriven."""
    rabbitmqctl(
        shared,
        "set_policy",
        prefix,
        f"^{prefix}work",
        '{"delivery-limit": 1}',
        "--apply-to",
        "queues",
    )
    try:
        open_(url).push(Message("work", b"kept", id="kept"))
        time.sleep(0.5)
        for _ in range(2):
            losing = open_(url)
            assert len(losing.pop("work", wait=timedelta(seconds=5))) == 1
            losing.close()
        queue = open_(url)
        assert queue.pop("work", wait=timedelta(seconds=1)) == []
        assert queue.redrive("work", 10) == 1
        [delivery] = queue.pop("work")
        assert (delivery.payload, delivery.id, delivery.attempt) == (b"kept", "kept", 1)
    finally:
        rabbitmqctl(shared, "clear_policy", prefix)


def test_a_delay_makes_its_step_once_and_for_all(
    shared: Server, queue: RabbitMQQueue, channel: BlockingChannel
) -> None:
    """A permanent queue that expires messages and never itself, and an exchange before it."""
    queue.push(Message("work", delay=timedelta(milliseconds=38)))

    channel.exchange_declare("hypercube.delay.39", passive=True)
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-message-ttl": 39,
        "x-dead-letter-exchange": "",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        **({} if shared.version < "4" else {"x-delivery-limit": -1}),
    }
    channel.queue_declare("hypercube.delay.39", durable=True, arguments=arguments)
    with pytest.raises(ChannelClosedByBroker, match="x-expires"):
        channel.queue_declare(
            "hypercube.delay.39", durable=True, arguments={**arguments, "x-expires": 60_000}
        )


def test_what_cannot_be_read_is_kept_with_its_reason(
    queue: RabbitMQQueue, channel: BlockingChannel, prefix: str
) -> None:
    """In a queue of its own, as it came, where no redrive meets it."""
    queue.pop("work", wait=timedelta(0))
    channel.basic_publish("", f"{prefix}work", b"foreign")
    assert queue.pop("work", wait=timedelta(milliseconds=300)) == []

    method, properties, body = channel.basic_get(f"hypercube.unreadable.{prefix}work")
    assert method is not None
    assert properties is not None
    assert body == b"foreign"
    assert "do not start like an envelope" in properties.headers["x-hypercube-unreadable"]
    assert queue.redrive("work", 10) == 0


def test_a_redrive_passes_over_what_it_cannot_read(
    queue: RabbitMQQueue, channel: BlockingChannel, prefix: str
) -> None:
    """However it came among the dead letters (RED-6)."""
    queue.push(Message("work", b"0"))
    queue.dead_letter(*queue.pop("work"))
    for _ in range(3):
        channel.basic_publish("", f"hypercube.dead.{prefix}work", b"foreign")
    queue.push(Message("work", b"1"))
    queue.dead_letter(*queue.pop("work"))

    assert queue.redrive("work", 10) == 2
    assert [each.payload for each in queue.pop("work", 10)] == [b"0", b"1"]


def test_a_redrive_that_runs_out_of_time_counts_what_had_moved(
    url: str, open_: Callable[[str], RabbitMQQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Confirmed is moved, however the rest of its batch ends (RED-4)."""
    queue = open_(f"{url}&operation_timeout=3")
    queue.push(*(Message("work", b"") for _ in range(10)))
    queue.dead_letter(*queue.pop("work", 10, wait=timedelta(seconds=5)))
    publisher = queue._client._publisher
    publish = publisher.publish

    async def publish_some(batch: Sequence[Outgoing], end: float) -> None:
        await publish(batch[:4], end)
        await asyncio.sleep(end - asyncio.get_running_loop().time())
        for each in batch[4:]:
            each.error = BackendError("no answer", outcome_unknown=True)

    monkeypatch.setattr(publisher, "publish", publish_some)
    assert queue.redrive("work", 10) == 4


def test_a_message_that_was_moved_belongs_to_the_queue_it_is_in(
    queue: RabbitMQQueue, channel: BlockingChannel, prefix: str
) -> None:
    """Operators move messages with the broker's tools; a retry does not move them back."""
    queue.push(Message("work", b"moved"))
    queue.pop("other", wait=timedelta(0))
    _, properties, body = channel.basic_get(f"{prefix}work", auto_ack=True)
    assert body is not None
    channel.basic_publish("", f"{prefix}other", body, properties)

    [delivery] = queue.pop("other")
    assert delivery.queue_name == "other"
    queue.retry(delivery)
    assert len(queue.pop("other")) == 1


def test_the_permissions_that_the_documentation_names_are_enough(
    shared: Server,
    prefix: str,
    open_: Callable[[str], RabbitMQQueue],
    rabbitmqctl: Callable[..., str],
) -> None:
    """For all that a queue can do, with declaring."""
    place = shared
    name = prefix.removesuffix(".")
    ours = rf"{re.escape(prefix)}.*|hypercube\..*"
    rabbitmqctl(place, "add_user", name, "secret")
    rabbitmqctl(
        place, "set_permissions", name, f"^({ours})$", rf"^({ours}|amq\.default)$", f"^({ours})$"
    )
    queue = open_(f"amqp://{name}:secret@{place.host}:{place.port}/?prefix={prefix}")

    queue.push(Message("work", delay=timedelta(milliseconds=123)))
    queue.dead_letter(*queue.pop("work", wait=timedelta(seconds=5)))
    assert queue.redrive("work", 1) == 1
    queue.ack(*queue.pop("work"))
    with pytest.raises(BatchError) as caught:
        open_(f"amqp://{name}:secret@{place.host}:{place.port}/").push(Message("other"))
    assert "grant the user" in str(caught.value)
    rabbitmqctl(place, "delete_user", name)


def test_a_producer_needs_no_more_than_to_publish(
    shared: Server,
    queue: RabbitMQQueue,
    prefix: str,
    open_: Callable[[str], RabbitMQQueue],
    rabbitmqctl: Callable[..., str],
) -> None:
    """The permissions of docs/trust.md, for queues that somebody else has declared."""
    queue.push(Message("work", b"declared"))
    name = prefix.removesuffix(".")
    address = f"amqp://{name}:secret@{shared.host}:{shared.port}/?prefix={prefix}&declare=false"
    later = Message("work", b"later", delay=timedelta(milliseconds=123))
    steps = r"hypercube\.delay\..*"
    rabbitmqctl(shared, "add_user", name, "secret")

    rabbitmqctl(shared, "set_permissions", name, "^$", r"^amq\.default$", "^$")
    producer = open_(address)
    producer.push(Message("work", b"now"))
    with pytest.raises(BatchError) as caught:
        producer.push(later)
    assert "grant the user" in str(caught.value.failed[0].error)
    with pytest.raises(BackendError, match="access to queue"):
        producer.pop("work", wait=timedelta(0))

    rabbitmqctl(
        shared, "set_permissions", name, f"^{steps}", rf"^(amq\.default|{steps})$", f"^{steps}"
    )
    open_(address).push(later)
    received: list[bytes] = []
    while len(received) < 3:
        received += [each.payload for each in queue.pop("work", wait=timedelta(seconds=20))]
    assert received == [b"declared", b"now", b"later"]
    rabbitmqctl(shared, "delete_user", name)
