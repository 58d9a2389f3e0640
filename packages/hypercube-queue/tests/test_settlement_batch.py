"""Deliveries on their way back: whose they are, and what of them counts."""

from __future__ import annotations

import copy
import pickle
import re
import struct
from datetime import timedelta

import pytest

from hypercube_queue import (
    BackendError,
    BatchError,
    Guarantees,
    InvalidArgument,
    Message,
    MessageTooLarge,
    NotFound,
)
from hypercube_queue.driver import Delivery, Failures, SettlementBatch, SettlementItem

_ANY = Guarantees(durable=True)
_OWNER = object()
_HEADROOM = 16 * 1024


class _Mine(Delivery):
    pass


def _delivered(message_id: str = "a", owner: object = _OWNER, **fields: object) -> Message:
    message = Message("q", id=message_id, **fields)
    message.driver_data = _Mine(owner, "q", message_id)
    return message


def _batch(
    *messages: object, guarantees: Guarantees = _ANY, **options: object
) -> SettlementBatch[_Mine]:
    return SettlementBatch("retry", messages, _Mine, _OWNER, guarantees, **options)


def _failures(batch: Failures) -> dict[int, Exception]:
    with pytest.raises(BatchError) as caught:
        batch.raise_failures()
    return {failure.index: failure.error for failure in caught.value.failed}


def test_an_ack_looks_at_nothing_but_the_delivery() -> None:
    """The worker may have done anything to the message (OWN-4)."""
    message = _delivered(payload="no bytes", extra=None, delay="never")
    message.queue_name, message.id = "elsewhere", "b"
    (item,) = _batch(message).items

    assert (item.index, item.message, item.delivery) == (0, message, message.driver_data)
    assert (item.payload, item.extra, item.delay_us) == (b"", b"", 0)
    assert (item.delivery.queue_name, item.delivery.id) == ("q", "a")


def test_a_retry_takes_the_present_contents_and_delay() -> None:
    """As snapshots (OWN-4)."""
    payload = bytearray(b"1")
    message = _delivered(payload=payload, extra=b"x", delay=timedelta(seconds=1))
    (item,) = _batch(message, contents=True, delay=True).items
    payload[:] = b"2"

    assert (item.payload, item.extra, item.delay_us) == (b"1", b"x", 1_000_000)


def test_a_dead_letter_takes_no_delay() -> None:
    """Not even a bad one."""
    (item,) = _batch(_delivered(delay=timedelta(-1)), contents=True).items

    assert item.delay_us == 0


@pytest.mark.parametrize(
    ("message", "error", "expected"),
    [
        (None, InvalidArgument, "expected a Message, got NoneType"),
        (5, InvalidArgument, "expected a Message, got int"),
        (Message("q", id="new"), NotFound, "message 'new' was not delivered by this queue object"),
        (_delivered(owner=object()), NotFound, "was not delivered by this queue object"),
        (Message("q", driver_data="foreign"), NotFound, "was not delivered by this queue object"),
        (Message("q", driver_data=Delivery(_OWNER, "q", "a")), NotFound, "was not delivered by"),
        (_delivered(payload="x"), InvalidArgument, "payload is bytes"),
        (_delivered(extra=5), InvalidArgument, "extra is bytes"),
        (_delivered(delay=timedelta(-1)), InvalidArgument, "delay is -1 day"),
        (_delivered(delay=None), InvalidArgument, "delay is a timedelta, not NoneType"),
    ],
)
def test_an_item_that_cannot_be_settled_fails_alone(
    message: object, error: type, expected: str
) -> None:
    """No Message, not ours, or with new contents that cannot be stored (ERR-1, SET-2)."""
    batch = _batch(_delivered("x"), message, _delivered("y"), contents=True, delay=True)
    failures = _failures(batch)

    assert [(item.index, item.delivery.id) for item in batch.items] == [(0, "x"), (2, "y")]
    assert list(failures) == [1]
    assert type(failures[1]) is error
    assert expected in str(failures[1])


def test_the_second_of_two_equal_deliveries_fails() -> None:
    """The first settles it (SET-5), a copy of the message notwithstanding."""
    message = _delivered()
    batch = _batch(message, message, copy.copy(message), copy.deepcopy(message))
    failures = _failures(batch)

    assert [item.index for item in batch.items] == [0]
    assert [type(error) for error in failures.values()] == [NotFound] * 3
    assert str(failures[1]) == "message 'a' is in this batch twice; the first settles it"


def test_a_first_that_is_invalid_leaves_the_delivery_to_the_second() -> None:
    """It settled nothing."""
    message = _delivered(payload=None)
    corrected = copy.copy(message)
    corrected.payload = b"fine"
    batch = _batch(message, corrected, contents=True)

    assert [item.index for item in batch.items] == [1]
    assert list(_failures(batch)) == [0]


def test_a_stale_delivery_is_told_that_nothing_was_changed() -> None:
    """And why that may be."""
    batch = _batch(_delivered())
    batch.fail_stale(batch.items[0])

    assert str(_failures(batch)[0]) == (
        "the delivery of message 'a' no longer owns it: its lease ended, or it was settled or "
        "delivered again. Nothing was changed"
    )


def test_a_settlement_may_use_the_headroom_that_push_left() -> None:
    """So a failure record always fits (PUSH-8)."""
    limited = Guarantees(durable=True, max_message_bytes=100)
    fits = _delivered(payload=b"x" * 100, extra=b"y" * _HEADROOM)
    over = _delivered(payload=b"x" * 100, extra=b"y" * (_HEADROOM + 1))

    assert len(_batch(fits, contents=True, guarantees=limited).items) == 1
    assert _batch(over, contents=True, guarantees=limited).items == []


@pytest.mark.parametrize(
    ("extension", "expected"),
    [
        (timedelta(0), "extension is 0:00:00; it must be longer than zero"),
        (timedelta(-1), "it must be longer than zero"),
        (30, "extension is a timedelta, not int"),
        (timedelta(seconds=61), r"at most 0:01:00 from its pop, of which 0:00:\d\d\.\d+ is left"),
        (timedelta(seconds=60), r"at most 0:01:00 from its pop, of which 0:00:\d\d\.\d+ is left"),
    ],
)
def test_an_extension_keeps_to_the_longest_lease(extension: object, expected: str) -> None:
    """Counted from the pop, some microseconds ago (EXT-3)."""
    limited = Guarantees(durable=True, max_visibility=timedelta(minutes=1))
    batch = _batch(_delivered(), guarantees=limited, extension=extension)

    assert batch.items == []
    assert re.search(expected, str(_failures(batch)[0]))


def test_an_extension_within_the_longest_lease_passes() -> None:
    """Whatever was left of the old one."""
    limited = Guarantees(durable=True, max_visibility=timedelta(hours=1))
    batch = _batch(_delivered(), guarantees=limited, extension=timedelta(minutes=59))

    assert len(batch.items) == 1


def test_a_delivery_held_too_long_has_nothing_left() -> None:
    """And not less than nothing."""
    limited = Guarantees(durable=True, max_visibility=timedelta(microseconds=1))
    message = _delivered()
    while message.driver_data.held_for() <= limited.max_visibility:
        pass
    batch = _batch(message, guarantees=limited, extension=timedelta(microseconds=1))

    assert "of which 0:00:00 is left" in str(_failures(batch)[0])


def test_a_delivery_cannot_be_serialised() -> None:
    """Nobody elsewhere could settle it, and the error says who can."""
    with pytest.raises(TypeError, match="settled through the queue object that popped it"):
        pickle.dumps(_delivered())


def test_an_item_that_cannot_be_prepared_fails_alone() -> None:
    """Whatever is raised: the others are settled."""

    def prepare(item: SettlementItem[_Mine]) -> str:
        if item.delivery.id == "broken":
            raise struct.error("no such number")
        if item.delivery.id == "refused":
            raise MessageTooLarge("too much")
        return item.delivery.id.upper()

    batch = _batch(*(_delivered(each) for each in ("a", "broken", "b", "refused")))
    assert [(item.index, made) for item, made in batch.prepared(prepare)] == [(0, "A"), (2, "B")]
    failed = _failures(batch)
    assert {index: type(error) for index, error in failed.items()} == {
        1: BackendError,
        3: MessageTooLarge,
    }
    assert "'broken' cannot be stored: error: no such number" in str(failed[1])
    assert isinstance(failed[1].__cause__, struct.error)
