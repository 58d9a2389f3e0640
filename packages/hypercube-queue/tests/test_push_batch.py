"""Messages on their way in: snapshots, ids, and who fails for what."""

from __future__ import annotations

import time
import uuid
from datetime import timedelta

import pytest

from hypercube_queue import (
    AlreadyExists,
    BackendError,
    BatchError,
    CapacityExceeded,
    Guarantees,
    InvalidArgument,
    Message,
    MessageTooLarge,
)
from hypercube_queue.driver import Failures, PushBatch

_ANY = Guarantees(durable=True)
_NARROW = Guarantees(
    durable=True,
    queue_name_pattern="[a-z]+",
    max_delay=timedelta(minutes=15),
    max_visibility=timedelta(hours=12),
    max_message_bytes=10,
)


def _failures(batch: Failures) -> dict[int, Exception]:
    with pytest.raises(BatchError) as caught:
        batch.raise_failures()
    return {failure.index: failure.error for failure in caught.value.failed}


def test_a_snapshot_holds_what_the_message_held() -> None:
    """In the integers of the wire, and nothing the caller does later reaches it (OWN-1)."""
    payload = bytearray(b"1")
    message = Message(
        "billing",
        payload,
        "send",
        "mail",
        "m1",
        memoryview(b"x"),
        timedelta(microseconds=1),
        timedelta(seconds=2),
        attempt=7,
        driver_data="theirs",
    )
    (item,) = PushBatch([message], _ANY).items
    payload[:] = b"2"
    message.queue_name = message.id = "other"

    assert (item.index, item.queue_name, item.id) == (0, "billing", "m1")
    assert (item.payload, item.extra) == (b"1", b"x")
    assert (item.job_name, item.namespace) == ("send", "mail")
    assert (item.delay_us, item.visibility_us) == (1, 2_000_000)


def test_no_lease_of_its_own_means_the_drivers() -> None:
    """None stays None."""
    assert PushBatch([Message("q")], _ANY).items[0].visibility_us is None


def test_a_missing_id_is_assigned_and_written_to_the_message() -> None:
    """Before anything is sent, so that the push can be repeated (PUSH-2)."""
    messages = [Message("q"), Message("q")]
    batch = PushBatch(messages, _ANY)

    assert [item.id for item in batch.items] == [message.id for message in messages]
    assert len({message.id for message in messages}) == 2
    assert all(messages[0].id)


def test_the_ids_of_a_batch_are_made_like_single_ones() -> None:
    """However many: UUIDs of version 7, of this moment, no two the same, ascending."""
    before = time.time_ns() // 1_000_000
    batch = PushBatch([Message("q") for _ in range(1_000)], _ANY)
    after = time.time_ns() // 1_000_000

    ids = [uuid.UUID(item.id) for item in batch.items]
    assert [str(id) for id in ids] == [item.id for item in batch.items]
    assert {(id.version, id.variant) for id in ids} == {(7, uuid.RFC_4122)}
    moments = [id.int >> 80 for id in ids]
    assert before <= min(moments)
    assert max(moments) <= after
    assert moments == sorted(moments)
    assert len({id.int & ((1 << 62) - 1) for id in ids}) == len(ids)
    assert ids == sorted(ids)


def test_an_invalid_message_is_assigned_nothing() -> None:
    """It was not touched at all (PUSH-7)."""
    message = Message("q", delay=timedelta(-1))
    PushBatch([message], _ANY)

    assert message.id == ""


@pytest.mark.parametrize(
    ("message", "error", "expected"),
    [
        (None, InvalidArgument, "expected a Message, got NoneType"),
        ({"queue_name": "q"}, InvalidArgument, "expected a Message, got dict"),
        (Message(""), InvalidArgument, "queue_name is empty"),
        (Message("UPPER"), InvalidArgument, "queue_name 'UPPER' is not one this backend"),
        (Message("q", "text"), InvalidArgument, "payload is bytes"),
        (Message("q", extra=None), InvalidArgument, "extra is bytes"),
        (Message("q", b"123456", extra=b"78901"), MessageTooLarge, "11 bytes"),
        (Message("q", job_name=None), InvalidArgument, "job_name is a str"),
        (Message("q", namespace="\n"), InvalidArgument, "namespace '\\\\n' has the character"),
        (Message("q", id="x" * 256), InvalidArgument, "id 'xxx.* has 256 bytes"),
        (Message("q", id=None), InvalidArgument, "id is a str, not NoneType"),
        (Message("q", delay=timedelta(-1)), InvalidArgument, "delay is -1 day"),
        (Message("q", delay=5), InvalidArgument, "delay is a timedelta, not int"),
        (Message("q", delay=timedelta(hours=1)), InvalidArgument, "takes at most 0:15:00"),
        (Message("q", visibility_timeout=timedelta(0)), InvalidArgument, "longer than zero"),
        (Message("q", visibility_timeout=timedelta(1)), InvalidArgument, "at most 12:00:00"),
        (Message("q", visibility_timeout=30), InvalidArgument, "is a timedelta, not int"),
    ],
)
def test_an_invalid_item_fails_alone(message: object, error: type, expected: str) -> None:
    """Each field, with its value; what stands before and behind it is pushed (ERR-1)."""
    batch = PushBatch([Message("q", id="a"), message, Message("q", id="b")], _NARROW)
    failures = _failures(batch)

    assert [(item.index, item.id) for item in batch.items] == [(0, "a"), (2, "b")]
    assert list(failures) == [1]
    assert type(failures[1]) is error
    assert failures[1].args[0] == str(failures[1])
    with pytest.raises(error, match=expected):
        raise failures[1]


def test_of_two_equal_ids_the_first_is_sent() -> None:
    """In one queue; the same id in another queue is another message (PUSH-4)."""
    messages = [Message("q", id="a"), Message("r", id="a"), Message("q", id="a")]
    batch = PushBatch(messages, _ANY)
    failures = _failures(batch)

    assert [item.index for item in batch.items] == [0, 1]
    assert list(failures) == [2]
    assert isinstance(failures[2], AlreadyExists)
    assert str(failures[2]) == (
        "id 'a' is retained in queue 'q'; it is free again once that message is acknowledged or "
        "forgotten"
    )


def test_an_invalid_first_leaves_the_id_to_the_second() -> None:
    """What was never sent holds no id."""
    batch = PushBatch([Message("q", id="a", delay=None), Message("q", id="a")], _ANY)

    assert [item.index for item in batch.items] == [1]
    assert list(_failures(batch)) == [0]


def test_a_repeated_id_exists_where_the_first_exists_already() -> None:
    """Both are told so."""
    batch = PushBatch([Message("q", id="a"), Message("q", id="a")], _ANY)
    batch.fail_existing(batch.items[0])

    assert [type(error) for error in _failures(batch).values()] == [AlreadyExists] * 2


@pytest.mark.parametrize(
    ("fate", "unknown"),
    [
        (CapacityExceeded("full"), False),
        (BackendError("refused"), False),
        (BackendError("lost", outcome_unknown=True), True),
    ],
)
def test_a_repeated_id_shares_the_fate_of_the_first(fate: Exception, unknown: bool) -> None:
    """AlreadyExists would be a lie where nothing, or nobody knows what, was stored (PUSH-4)."""
    batch = PushBatch([Message("q", id="a"), Message("q", id="a")], _ANY)
    batch.fail(batch.items[0], fate)
    failures = _failures(batch)

    assert failures[0] is fate
    assert isinstance(failures[1], BackendError)
    assert failures[1].outcome_unknown is unknown
    assert failures[1].__cause__ is fate
    assert str(failures[1]) == "not sent: it repeats the id 'a' of item 0, which failed"


def test_a_batch_without_failures_raises_nothing() -> None:
    """And is false."""
    batch = PushBatch([Message("q")], _ANY)
    batch.raise_failures()

    assert not batch
    assert PushBatch([], _ANY).items == []


def test_the_first_failure_of_an_item_stays() -> None:
    """A later one is a consequence."""
    batch = PushBatch([Message("q")], _ANY)
    first = BackendError("first")
    batch.fail(batch.items[0], first)
    batch.fail(batch.items[0], BackendError("second"))
    batch.fail_all(batch.items, lambda: BackendError("third"))

    assert batch
    assert batch.error_at(0) is first
    assert _failures(batch) == {0: first}


def test_a_lost_request_gives_each_item_an_error_of_its_own() -> None:
    """So that each can be raised, chained and annotated alone (ERR-4)."""
    batch = PushBatch([Message("q"), Message("q")], _ANY)
    batch.fail_all(batch.items, lambda: BackendError("lost", outcome_unknown=True))
    first, second = _failures(batch).values()

    assert first is not second


def test_an_error_names_the_operation_and_how_many_failed() -> None:
    """Of how many."""
    batch = PushBatch([Message("q"), None], _ANY)

    with pytest.raises(BatchError, match="push: 1 of 2 failed"):
        batch.raise_failures()
