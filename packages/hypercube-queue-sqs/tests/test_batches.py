"""Many messages in requests of ten and of a mebibyte, and what fails of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tools.strict_sqs import StrictSQS

from hypercube_queue import (
    BackendError,
    BatchError,
    CapacityExceeded,
    ItemFailure,
    Message,
    MessageTooLarge,
)
from hypercube_queue_sqs import SQSQueue

NOW = timedelta(0)


def failures(call: Callable[..., None], *messages: Message) -> tuple[ItemFailure, ...]:
    try:
        call(*messages)
    except BatchError as error:
        return error.failed
    return ()


def drained(queue: SQSQueue, name: str = "work") -> list[bytes]:
    """All that is there, acknowledged."""
    taken: list[bytes] = []
    while deliveries := queue.pop(name, 1000, wait=timedelta(seconds=1)):
        taken += [each.payload for each in deliveries]
        queue.ack(*deliveries)
    return sorted(taken)


def test_a_request_has_at_most_ten_entries_and_one_queue(
    queue: SQSQueue, strict: StrictSQS, prefix: str
) -> None:
    """25 messages for two queues are 2 and 1 requests, in order."""
    names = ["one"] * 15 + ["two"] * 10
    queue.push(*(Message(name, b"%d" % n) for n, name in enumerate(names)))

    sent = strict.requests("SendMessageBatch")
    assert sorted((each["QueueUrl"][-3:], len(each["Entries"])) for each in sent) == [
        ("one", 5),
        ("one", 10),
        ("two", 10),
    ]
    assert len(queue.pop("one", 10)) > 0
    assert {each["QueueUrl"].rpartition("/")[2] for each in strict.requests("ReceiveMessage")} == {
        f"{prefix}one"
    }


def test_a_request_has_at_most_a_mebibyte(queue: SQSQueue, strict: StrictSQS) -> None:
    """Five messages of 300 kB, a third more in Base64, travel two at a time."""
    queue.push(*(Message("work", bytes(300_000)) for _ in range(5)))

    assert sorted(len(each["Entries"]) for each in strict.requests("SendMessageBatch")) == [1, 2, 2]
    strict.forget_requests()
    queue.retry(*_received(queue, 5))
    assert sorted(len(each["Entries"]) for each in strict.requests("SendMessageBatch")) == [1, 2, 2]


def test_the_largest_message_fills_a_request(queue: SQSQueue) -> None:
    """What is declared is accepted, together with names of the greatest length."""
    limit = queue.guarantees.max_message_bytes
    assert limit is not None
    name = "x" * 255
    queue.push(Message("work", bytes(limit), name, name, id=name))

    [delivery] = queue.pop("work")
    assert len(delivery.payload) == limit
    delivery.extra = bytes(16 * 1024)
    queue.retry(delivery)


def test_an_oversized_item_fails_alone(queue: SQSQueue) -> None:
    """MessageTooLarge under its index, and the others are stored."""
    limit = queue.guarantees.max_message_bytes
    assert limit is not None
    [failure] = failures(
        queue.push, Message("work", b"0"), Message("work", bytes(limit + 1)), Message("work", b"2")
    )
    assert (failure.index, type(failure.error)) == (1, MessageTooLarge)
    assert drained(queue) == [b"0", b"2"]


def test_the_queue_s_own_limit_counts_too(queue: SQSQueue, client: Any, prefix: str) -> None:
    """With the reserve for failure records taken off, and the error names what to raise."""
    attributes = {"MaximumMessageSize": str(64 * 1024)}
    client.create_queue(QueueName=f"{prefix}small", Attributes=attributes)

    [failure] = failures(queue.push, Message("small", bytes(40_000)), Message("small", b"1"))
    assert (failure.index, type(failure.error)) == (0, MessageTooLarge)
    assert "MaximumMessageSize is 65536" in str(failure.error)
    [delivery] = queue.pop("small")
    delivery.payload = bytes(60_000)
    [failure] = failures(queue.retry, delivery)
    assert isinstance(failure.error, MessageTooLarge)
    queue.ack(delivery)


def test_chunks_are_sent_at_once(
    strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """Ten requests over five connections take two answers' time, not ten."""
    queue = open_(f"{url}&connections=5")
    queue.push(Message("work"))
    strict.faults.delay = 1.0
    begun = time.monotonic()
    queue.push(*(Message("work") for _ in range(100)))
    assert 2 <= time.monotonic() - begun < 5


def test_no_more_requests_than_connections_are_under_way(
    strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """However many threads push at once."""
    queue = open_(f"{url}&connections=3")
    queue.push(Message("work"))
    strict.faults.delay = 0.1
    threads = [
        threading.Thread(target=queue.push, args=[Message("work") for _ in range(20)])
        for _ in range(4)
    ]
    strict.forget_requests()
    begun = time.monotonic()
    for each in threads:
        each.start()
    time.sleep(0.05)
    assert len(strict.requests("SendMessageBatch")) <= 3
    for each in threads:
        each.join()
    assert time.monotonic() - begun >= 0.3
    assert len(strict.requests("SendMessageBatch")) == 8


def test_entries_that_fail_keep_their_indexes(queue: SQSQueue, strict: StrictSQS) -> None:
    """HTTP 200 can carry failures; nothing that succeeded is sent again."""
    queue.push(Message("work", b"first"))
    strict.faults.fail_entries("SendMessageBatch", [1, 7])
    found = failures(queue.push, *(Message("work", b"%d" % n) for n in range(10)))

    assert [each.index for each in found] == [1, 7]
    for each in found:
        assert isinstance(each.error, BackendError)
        assert each.error.outcome_unknown
    assert drained(queue) == sorted([b"first", *(b"%d" % n for n in range(10) if n not in (1, 7))])


def test_a_failure_that_is_the_sender_s_is_certain(queue: SQSQueue, strict: StrictSQS) -> None:
    """So the id is free, and the outcome known."""
    queue.push(Message("work", b"first"))
    strict.faults.fail_entries("SendMessageBatch", [0], "InvalidParameterValue", sender_fault=True)
    message = Message("work", b"again", id="same")
    [failure] = failures(queue.push, message)
    assert isinstance(failure.error, BackendError)
    assert not failure.error.outcome_unknown
    queue.push(message)


@pytest.mark.parametrize("acts", [True, False])
def test_an_entry_in_neither_list_has_an_unknown_outcome(
    queue: SQSQueue, strict: StrictSQS, acts: bool
) -> None:
    """Whether it was stored or not; the caller repeats it under its id."""
    queue.push(Message("work", b"first"))
    strict.faults.omit_entries("SendMessageBatch", [2], acts=acts)
    found = failures(queue.push, *(Message("work", b"%d" % n) for n in range(4)))

    assert [each.index for each in found] == [2]
    assert isinstance(found[0].error, BackendError)
    assert found[0].error.outcome_unknown
    assert (b"2" in drained(queue)) is acts


def test_what_was_too_many_is_sent_again_and_nothing_else(
    queue: SQSQueue, strict: StrictSQS
) -> None:
    """A throttled request, then throttled entries: in the end each message is there once."""
    queue.push(Message("work", b"first"))
    strict.forget_requests()
    strict.faults.throttle("SendMessageBatch", times=2)
    queue.push(*(Message("work", b"%d" % n) for n in range(3)))
    assert [len(each["Entries"]) for each in strict.requests("SendMessageBatch")] == [3, 3, 3]

    strict.forget_requests()
    strict.faults.fail_entries("SendMessageBatch", [1], "RequestThrottled")
    queue.push(*(Message("work", b"%d" % n) for n in range(3, 6)))
    assert [len(each["Entries"]) for each in strict.requests("SendMessageBatch")] == [3, 1]
    assert drained(queue) == [b"0", b"1", b"2", b"3", b"4", b"5", b"first"]


def test_a_service_that_goes_on_throttling_is_an_error_with_a_known_outcome(
    queue: SQSQueue, strict: StrictSQS
) -> None:
    """Nothing was stored, so the id is free."""
    queue.push(Message("work", b"first"))
    strict.faults.throttle("SendMessageBatch", times=100)
    message = Message("work", b"again", id="same")
    [failure] = failures(queue.push, message)
    assert isinstance(failure.error, BackendError)
    assert not failure.error.outcome_unknown
    assert "RequestThrottled" in str(failure.error)
    strict.faults.clear()
    queue.push(message)


@pytest.mark.parametrize("verb", ["ack", "retry", "dead_letter"])
def test_settlements_that_fail_keep_their_indexes(
    queue: SQSQueue, strict: StrictSQS, verb: str
) -> None:
    """An entry that fails, one that is in neither list, and one that is throttled at first."""
    queue.push(*(Message("work", b"%d" % n) for n in range(12)))
    deliveries = _received(queue, 12)
    strict.faults.fail_entries("DeleteMessageBatch", [3], times=2)
    strict.faults.omit_entries("DeleteMessageBatch", [0], times=1)
    strict.faults.fail_entries("DeleteMessageBatch", [1], "RequestThrottled", times=1)
    found = failures(getattr(queue, verb), *deliveries)

    assert len(found) >= 2
    for each in found:
        assert each.message is deliveries[each.index]
        assert isinstance(each.error, BackendError)
        assert each.error.outcome_unknown
    strict.faults.clear()
    strict.forget_requests()
    getattr(queue, verb)(*(deliveries[each.index] for each in found))
    assert strict.requests("SendMessageBatch") == []
    left = drained(queue)
    assert left == (sorted(b"%d" % n for n in range(12)) if verb == "retry" else [])


def test_too_many_in_flight_is_a_matter_of_capacity(
    queue: SQSQueue, strict: StrictSQS, prefix: str
) -> None:
    """A long poll finds nothing then; a pop that has something keeps what it has."""
    queue.push(*(Message("work") for _ in range(30)))
    strict.account.queue(f"{prefix}work").most_in_flight = 10
    assert len(queue.pop("work", 30)) == 10
    assert queue.pop("work", wait=NOW) == []
    strict.faults.refuse("ReceiveMessage", _over_limit())
    with pytest.raises(CapacityExceeded, match="OverLimit"):
        queue.pop("work", wait=NOW)


def _over_limit() -> Any:
    from tools.strict_sqs.errors import Refused

    return Refused("OverLimit", "Too many messages in flight.", status=403)


def _received(queue: SQSQueue, count: int) -> list[Message]:
    received: list[Message] = []
    while len(received) < count:
        came = queue.pop("work", count - len(received), wait=timedelta(seconds=5))
        assert came
        received += came
    return received
