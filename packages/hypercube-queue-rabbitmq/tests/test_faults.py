"""Brokers that die, fall silent, or cut the line: calls end, and the object recovers."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tools.backends.relay import Relay

from hypercube_queue import BackendError, BatchError, Message, NotFound, QueueError
from hypercube_queue_rabbitmq import RabbitMQQueue

pytestmark = pytest.mark.server("rabbitmq")

_LIMIT = 2.0
#: What a machine that is busy with other things may add.
_ALLOWANCE = 3.0


def _errors(call: Callable[[], object]) -> list[QueueError]:
    """What a call raised, singly or of its items; nothing if it returned. It must end in time."""
    begun = time.monotonic()
    try:
        call()
    except BatchError as error:
        found = [failure.error for failure in error.failed]
    except QueueError as error:
        found = [error]
    else:
        found = []
    assert time.monotonic() - begun < _LIMIT + _ALLOWANCE
    return found


def _works(queue: RabbitMQQueue) -> bool:
    """Whether a round through the queue works; anything but BackendError is an error."""
    try:
        queue.push(Message("probe"))
        deliveries = queue.pop("probe", wait=timedelta(seconds=1))
        queue.ack(*deliveries)
    except BackendError:
        return False
    except BatchError as error:
        if error.split(BackendError)[1] is not None:
            raise
        return False
    return bool(deliveries)


def _until_it_works(queue: RabbitMQQueue) -> None:
    end = time.monotonic() + 30
    while not _works(queue):
        assert time.monotonic() < end
        time.sleep(0.05)


def _done(call: Callable[..., None], batch: list[Message], *, perhaps: bool) -> list[Message]:
    """The messages for which a call succeeded, or `perhaps` did."""
    failed: dict[int, QueueError] = {}
    try:
        call(*batch)
    except BatchError as error:
        failed = {each.index: each.error for each in error.failed}
    return [
        each
        for index, each in enumerate(batch)
        if index not in failed or (perhaps and isinstance(failed[index], BackendError))
    ]


@pytest.fixture
def prepared(
    broken: Any, prefix: str, open_: Callable[[str], RabbitMQQueue]
) -> tuple[Any, RabbitMQQueue]:
    """A broker to be broken, and a queue on it that has worked."""
    queue = open_(broken.url("amqp", prefix=prefix, operation_timeout=_LIMIT))
    _until_it_works(queue)
    return broken, queue


def test_a_paused_broker_hangs_no_call_and_loses_nothing(
    prepared: tuple[Any, RabbitMQQueue],
) -> None:
    """Each call ends within its limit, with an unknown outcome; then the same object works."""
    broker, queue = prepared
    queue.push(Message("work", id="held"), Message("work", id="ready"))
    [held] = queue.pop("work")
    broker.pause()
    try:
        for call in (
            lambda: queue.push(Message("work", id="perhaps")),
            lambda: queue.pop("work", wait=timedelta(0)),
            lambda: queue.retry(held),
            lambda: queue.ack(held),
        ):
            [error] = _errors(call)
            assert isinstance(error, BackendError | NotFound)
    finally:
        broker.resume()

    _until_it_works(queue)
    left = []
    while deliveries := queue.pop("work", 10, wait=timedelta(seconds=2)):
        left += [each.id for each in deliveries]
        queue.ack(*deliveries)
    assert {"held", "ready"} <= set(left) <= {"held", "ready", "perhaps"}


@pytest.mark.nightly
def test_a_push_that_was_sent_and_not_answered_is_unknown(
    prepared: tuple[Any, RabbitMQQueue],
) -> None:
    """Each item has a word on it, and a pop that could not connect is certain to have none."""
    broker, queue = prepared
    broker.pause()
    try:
        errors = _errors(lambda: queue.push(Message("probe"), Message("probe")))
        assert [getattr(error, "outcome_unknown", None) for error in errors] == [True, True]
        assert len({id(error) for error in errors}) == 2
    finally:
        broker.resume()


def test_a_line_that_is_cut_silently_is_given_up_in_time(
    relay: Relay, relayed: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """Nothing tells the client; calls end, and the next ones find another way."""
    queue = open_(f"{relayed}&operation_timeout={_LIMIT}")
    _until_it_works(queue)
    relay.cut()
    assert len(_errors(lambda: queue.push(Message("probe")))) == 1
    assert len(_errors(lambda: queue.pop("probe", wait=timedelta(0)))) == 1
    relay.mend()
    _until_it_works(queue)


def test_a_pop_that_waits_is_told_that_the_line_is_gone(
    relay: Relay, relayed: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """At once, and not when its wait is over; one that only looks now and then looks on."""
    queue = open_(f"{relayed}&queue_type=classic")
    _until_it_works(queue)
    threading.Timer(0.3, relay.drop).start()
    begun = time.monotonic()
    with pytest.raises(BackendError, match="connection was lost"):
        queue.pop("work", wait=timedelta(seconds=60))
    assert time.monotonic() - begun < 20
    _until_it_works(queue)


@pytest.mark.nightly
def test_a_pop_that_waits_is_told_that_the_broker_died(
    broken: Any, prefix: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """Of which nobody had the time to tell it."""
    queue = open_(broken.url("amqp", prefix=prefix, queue_type="classic"))
    _until_it_works(queue)
    killing = threading.Timer(0.3, broken.kill)
    killing.start()
    with pytest.raises(BackendError, match="connection was lost"):
        queue.pop("work", wait=timedelta(seconds=60))
    killing.join()
    broken.start()
    _until_it_works(queue)


@pytest.mark.nightly
def test_while_the_broker_is_down_calls_fail_at_once_and_certainly(
    prepared: tuple[Any, RabbitMQQueue],
) -> None:
    """Nothing was sent, so nothing was stored; afterwards the same object works."""
    broker, queue = prepared
    time.sleep(1.5)
    broker.kill()
    try:
        for _ in range(3):  # the first may still meet the end of the old connection
            _errors(lambda: queue.push(Message("work")))
        errors = _errors(lambda: queue.push(Message("work"), Message("work")))
        assert [type(error) for error in errors] == [BackendError] * 2
        assert [getattr(error, "outcome_unknown", None) for error in errors] == [False] * 2
    finally:
        broker.start()
    _until_it_works(queue)


def test_deliveries_from_a_lost_connection_are_stale(
    relay: Relay, relayed: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """NotFound by every verb; the message comes again, counted, and is left alone."""
    queue = open_(relayed)
    queue.push(*(Message("work", b"%d" % n) for n in range(3)))
    old = queue.pop("work", 3)
    relay.drop()
    current: list[Message] = []
    end = time.monotonic() + 20
    while len(current) < 3 and time.monotonic() < end:
        try:
            current += queue.pop("work", 3 - len(current), wait=timedelta(seconds=1))
        except BackendError:
            current = []
    for settle, stale in zip((queue.ack, queue.retry, queue.dead_letter), old, strict=True):
        with pytest.raises(BatchError) as caught:
            settle(stale)
        assert [type(each.error) for each in caught.value.failed] == [NotFound]
    assert [each.attempt for each in current] == [2, 2, 2]
    queue.ack(*current)
    assert queue.pop("work", wait=timedelta(0)) == []


def test_sixteen_threads_through_one_object_while_the_line_is_cut_again_and_again(
    relay: Relay, relayed: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """Every push that returned arrives, and nothing hangs."""
    queue = open_(f"{relayed}&operation_timeout=5")
    _until_it_works(queue)
    stored: list[str] = []
    came = Counter[str]()
    until = time.monotonic() + 4

    def push(number: int) -> None:
        for turn in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count()):
            batch = [Message("work", id=f"{number}.{turn}.{n}") for n in range(5)]
            stored.extend(each.id for each in _done(queue.push, batch, perhaps=False))

    def pop() -> None:
        while time.monotonic() < until:
            with contextlib.suppress(BackendError):
                deliveries = queue.pop("work", 7, wait=timedelta(milliseconds=50))
                came.update(each.id for each in _done(queue.ack, deliveries, perhaps=True))

    threads = [threading.Thread(target=push, args=(n,)) for n in range(8)]
    threads += [threading.Thread(target=pop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.9)
        relay.drop()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    _until_it_works(queue)
    while deliveries := queue.pop("work", 1000, wait=timedelta(seconds=1)):
        came.update(each.id for each in deliveries)
        queue.ack(*deliveries)

    assert len(stored) > 100
    assert set(stored) - set(came) == set()
