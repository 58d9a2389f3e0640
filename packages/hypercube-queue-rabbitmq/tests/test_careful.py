"""Taking where a cancelled consumer would spoil attempts; any broker will do to try it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from hypercube_queue import Message
from hypercube_queue_rabbitmq import RabbitMQQueue, _careful

pytestmark = pytest.mark.server("rabbitmq")


@pytest.fixture(autouse=True)
def _always_careful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypercube_queue_rabbitmq._client.TELLS_LOST_FROM_RETURNED", (99, 0))


def test_few_and_many_messages_come_whole_and_in_order(
    url: str, open_: Callable[[str], RabbitMQQueue]
) -> None:
    """Consumers take the most of them, gets the rest."""
    queue = open_(url)
    for count in (1, 7, 40, 500):
        queue.push(*(Message("work", b"%d" % n) for n in range(count)))
        received = queue.pop("work", count + 10, wait=timedelta(0))
        assert [int(each.payload) for each in received] == list(range(count))
        assert {each.attempt for each in received} == {1}
        queue.ack(*received)
        assert queue.pop("work", wait=timedelta(0)) == []


def test_a_waiting_pop_notices_a_push(queue: RabbitMQQueue) -> None:
    """It looks often enough."""
    threading.Timer(0.5, lambda: queue.push(Message("work"))).start()
    begun = time.monotonic()

    assert len(queue.pop("work", wait=timedelta(seconds=20))) == 1
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("wait", [0.0, 0.3])
def test_a_count_of_nothing_is_not_the_last_word(
    queue: RabbitMQQueue, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    """A quorum queue that is busy for a quarter of a second counts as empty to the broker."""

    async def none(*_: object) -> int:
        return 0

    monkeypatch.setattr(_careful, "ready", none)
    queue.push(*(Message("work", b"%d" % n) for n in range(3)))
    received = queue.pop("work", 5, wait=timedelta(seconds=wait))
    assert [each.payload for each in received] == [b"0", b"1", b"2"]
    queue.dead_letter(*received)
    assert queue.redrive("work", 5) == 3


def test_a_count_of_nothing_cuts_no_batch_short(
    queue: RabbitMQQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where some have come before."""
    counts = [100, 0]

    async def ready(*_: object) -> int:
        return counts.pop(0)

    monkeypatch.setattr(_careful, "ready", ready)
    queue.push(*(Message("work") for _ in range(40)))
    assert len(queue.pop("work", 40, wait=timedelta(0))) == 40


def _left_with_a_consumer(
    queue: RabbitMQQueue, monkeypatch: pytest.MonkeyPatch, count: int = 10
) -> list[Message]:
    """Deliveries of a pop that had expected five times as many as there were."""
    queue.push(*(Message("work", id=f"early {n}") for n in range(count)))

    async def many(*_: object) -> int:
        return 200

    with monkeypatch.context() as patch:
        patch.setattr(_careful, "ready", many)
        patch.setattr(_careful, "_SILENCE", 1.0)  # else a busy broker brings some too late
        early = queue.pop("work", 5 * count, wait=timedelta(0))
    assert len(early) == count
    return early


def _late(queue: RabbitMQQueue, ids: set[str]) -> list[Message]:
    """What comes until all of these have come, settled."""
    received: list[Message] = []
    end = time.monotonic() + 60
    while ids - {each.id for each in received} and time.monotonic() < end:
        deliveries = queue.pop("work", 50, wait=timedelta(seconds=1))
        queue.ack(*deliveries)
        received += deliveries
    return received


def test_what_comes_after_others_were_faster_is_passed_on_uncounted(
    url: str, open_: Callable[[str], RabbitMQQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that expected more than there was is cancelled when nothing can be on its way.

    Each ack entitles it to one more, so that is not when as many have come as it asked for.
    """
    first, second = open_(url), open_(url)
    monkeypatch.setattr(_careful, "_HELD", 600.0)
    early = _left_with_a_consumer(first, monkeypatch)
    [holding] = {each.driver_data.channel for each in early}  # type: ignore[union-attr]
    first.ack(*early)
    assert holding.consumer is not None

    raw = holding.channel.raw
    cancel = raw.basic_cancel
    unsettled: list[int] = []

    def recording(*arguments: object, **options: object) -> object:
        unsettled.append(len(holding.unsettled))
        return cancel(*arguments, **options)

    monkeypatch.setattr(raw, "basic_cancel", recording)
    ids = {f"late {n}" for n in range(200)}
    pushing = threading.Thread(
        target=lambda: [second.push(Message("work", id=each)) for each in sorted(ids)]
    )
    pushing.start()
    received = _late(second, ids)
    pushing.join(60)

    assert sorted(each.id for each in received) == sorted(ids)
    assert {each.attempt for each in received} == {1}
    # The copies may come before the first queue has heard that they are stored.
    end = time.monotonic() + 20
    while holding.consumer is not None or holding.unsettled:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert unsettled == [holding.prefetch]


def test_a_single_message_is_not_passed_on_for_ever(
    url: str, open_: Callable[[str], RabbitMQQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two consumers that nobody waits for any more would hand it to one another."""
    first, second, third = open_(url), open_(url), open_(url)
    for queue in (first, second):
        queue.ack(*_left_with_a_consumer(queue, monkeypatch))

    third.push(Message("work", id="single"))
    [received] = _late(third, {"single"})
    assert received.attempt == 1
    assert third.pop("work", wait=timedelta(0)) == []


def test_closing_removes_the_old_copies_of_what_was_passed_on(
    url: str, open_: Callable[[str], RabbitMQQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would come again once their connection is gone."""
    first, second = open_(url), open_(url)
    monkeypatch.setattr(_careful, "_HELD", 600.0)
    early = _left_with_a_consumer(first, monkeypatch)
    [holding] = {each.driver_data.channel for each in early}  # type: ignore[union-attr]
    first.ack(*early)
    # It takes these, and their copies, and is not full then.
    second.push(Message("work", id="a"))
    end = time.monotonic() + 20
    while not holding.unsettled:
        assert time.monotonic() < end
        time.sleep(0.001)
    first.close()

    received = _late(second, {"a"})
    assert [each.id for each in received] == ["a"]
    assert second.pop("work", wait=timedelta(0)) == []
