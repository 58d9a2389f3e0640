"""Delays: never early, hardly late, and nothing lost on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tools.backends.instance import Server

from hypercube_queue import BackendError, BatchError, Message
from hypercube_queue_rabbitmq import RabbitMQQueue
from hypercube_queue_rabbitmq._ladder import step_for
from hypercube_queue_rabbitmq._names import step_name
from hypercube_queue_rabbitmq._topology import Topology

pytestmark = pytest.mark.server("rabbitmq")


def _receive(queue: RabbitMQQueue, count: int, patience: float = 20) -> dict[str, float]:
    """When each of so many messages came, by its id."""
    came: dict[str, float] = {}
    end = time.monotonic() + patience
    while len(came) < count and (left := end - time.monotonic()) > 0:
        deliveries = queue.pop("work", 100, wait=timedelta(seconds=left))
        now = time.monotonic()
        queue.ack(*deliveries)
        for each in deliveries:
            assert each.id not in came
            came[each.id] = now
    return came


@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_delays_of_all_lengths_come_in_time_whatever_waits_before_them(
    url: str, open_: Callable[[str], RabbitMQQueue], queue_type: str
) -> None:
    """The longest are pushed first, and hold up none of the shorter ones."""
    queue = open_(f"{url}&queue_type={queue_type}")
    milliseconds = [604_800_000, 3_600_000, 3000, 1500, 700, 251, 100, 20, 7, 1]
    for each in milliseconds:  # so that their steps are there
        queue.push(Message("warm", delay=timedelta(milliseconds=each)))
    pushed = {}
    for each in milliseconds:
        pushed[str(each)] = time.monotonic()
        queue.push(Message("work", id=str(each), delay=timedelta(milliseconds=each)))

    came = _receive(queue, 8)
    assert sorted(came, key=int) == ["1", "7", "20", "100", "251", "700", "1500", "3000"]
    for name, moment in came.items():
        delay = timedelta(milliseconds=int(name))
        waited = timedelta(seconds=moment - pushed[name])
        assert delay <= waited <= delay + queue.guarantees.delay_lateness(delay)


def test_a_delayed_message_starts_at_attempt_one_and_a_delayed_retry_counts_on(
    queue: RabbitMQQueue,
) -> None:
    """Its way over a step is no delivery."""
    queue.push(Message("work", delay=timedelta(milliseconds=50)))
    for attempt in range(1, 5):
        [delivery] = queue.pop("work", wait=timedelta(seconds=5))
        assert delivery.attempt == attempt
        delivery.delay = timedelta(milliseconds=50)
        queue.retry(delivery)


def test_nothing_is_lost_when_one_message_after_another_waits_for_longer_than_any_one_of_them(
    queue: RabbitMQQueue,
) -> None:
    """Steadily over several times the delay: whatever expires, it is not the step."""
    count = 40
    threading.Thread(
        target=lambda: [
            (queue.push(Message("work", id=str(n), delay=timedelta(seconds=1))), time.sleep(0.1))
            for n in range(count)
        ]
    ).start()

    assert len(_receive(queue, count)) == count


def test_nothing_is_lost_when_the_broker_is_killed_while_messages_wait(
    broken: Any, prefix: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """They wait on disk, and are handed on when it is back."""
    url = broken.url("amqp", prefix=prefix)
    queue = open_(url)
    queue.push(Message("warm"), Message("warm", delay=timedelta(seconds=4)))
    queue.pop("work", wait=timedelta(0))
    time.sleep(1.5)  # a broker that is killed forgets quorum queues of its last moment
    queue.push(*(Message("work", id=str(n), delay=timedelta(seconds=4)) for n in range(50)))
    broken.kill()
    broken.start()

    assert sorted(map(int, _receive(open_(url), 50, 30))) == list(range(50))


def test_what_is_due_waits_for_a_queue_that_cannot_take_it(
    shared: Server,
    url: str,
    prefix: str,
    open_: Callable[[str], RabbitMQQueue],
    channel: BlockingChannel,
    rabbitmqctl: Callable[..., str],
) -> None:
    """The step keeps it until the queue has confirmed it, and tries again after three minutes."""
    setting = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, {})."
    rabbitmqctl(shared, "eval", setting.format(1000))
    queue = open_(url)
    queue.push(Message("work", id="kept", delay=timedelta(milliseconds=777)))
    channel.queue_delete(f"{prefix}work")
    time.sleep(1.5)
    other = open_(url)
    other.pop("work", wait=timedelta(0))  # declares it again
    rabbitmqctl(shared, "eval", setting.format(180_000))

    assert list(_receive(other, 1)) == ["kept"]


@pytest.mark.parametrize("gone", ["queue", "exchange"])
def test_a_delay_step_that_was_deleted_is_declared_again(
    shared: Server,
    url: str,
    open_: Callable[[str], RabbitMQQueue],
    connect: Callable[..., BlockingChannel],
    caplog: pytest.LogCaptureFixture,
    gone: str,
) -> None:
    """By the push that finds it missing, which stores all; the log says that others are lost."""
    delay = timedelta(milliseconds=1500 if gone == "queue" else 1800)
    name = step_name(step_for(delay // timedelta(microseconds=1)))
    queue = open_(url)
    queue.push(Message("work", id="first", delay=delay))
    assert list(_receive(queue, 1)) == ["first"]
    admin = connect(shared)
    (admin.queue_delete if gone == "queue" else admin.exchange_delete)(name)

    queue.push(*(Message("work", id=each, delay=delay) for each in "ab"))
    assert set(_receive(queue, 2)) == {"a", "b"}
    lines = [each.getMessage() for each in caplog.records]
    assert sum(f"delay step '{name}' was deleted" in line for line in lines) == 1


def test_a_delay_step_that_is_gone_for_good_is_named(
    url: str,
    open_: Callable[[str], RabbitMQQueue],
    channel: BlockingChannel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not the queue behind it."""
    delay = timedelta(milliseconds=2100)
    name = step_name(step_for(delay // timedelta(microseconds=1)))
    queue = open_(url)
    queue.push(Message("work", delay=delay))
    channel.queue_delete(name)

    async def known(*_: object) -> str:
        return name

    monkeypatch.setattr(Topology, "step", known)
    with pytest.raises(BatchError) as caught:
        queue.push(Message("work", delay=delay))
    [failure] = caught.value.failed
    assert isinstance(failure.error, BackendError)
    assert name in str(failure.error)
    assert not failure.error.outcome_unknown
