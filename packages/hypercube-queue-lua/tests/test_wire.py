"""Messages as scripts take and give them, and what stored bytes may turn out to be."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest

from hypercube_queue import Message
from hypercube_queue.driver import PushBatch
from hypercube_queue_lua import GUARANTEES
from hypercube_queue_lua._delivery import LuaDelivery
from hypercube_queue_lua._wire import (
    Unreadable,
    buried,
    delivered,
    message,
    packed_ids,
    packed_messages,
    packed_tokens,
    stored_push,
    taken,
)

_ALL_BYTES = bytes(range(256))
_VISIBILITIES = [None, timedelta(microseconds=1), timedelta(days=3650)]


def _stored(*messages: Message) -> list[tuple[bytes, bytes, int]]:
    return [stored_push(item) for item in PushBatch(messages, GUARANTEES).items]


@pytest.mark.parametrize("visibility", _VISIBILITIES, ids=str)
def test_a_message_comes_back_as_it_was(visibility: timedelta | None) -> None:
    """Every byte, every name, and the visibility timeout to the microsecond (OWN-3)."""
    pushed = Message(
        "a queue",
        _ALL_BYTES,
        "job é",
        "name space ",
        "id",
        _ALL_BYTES[::-1],
        visibility_timeout=visibility,
    )
    [(id, body, _)] = _stored(pushed)
    found = message("a queue", id, body, 3)
    pushed.attempt = 3
    assert found == pushed


def test_what_a_script_takes_is_a_few_strings() -> None:
    """Heads of a fixed size, and the variable parts one behind the other."""
    stored = _stored(Message("q", b"one", id="1"), Message("q", id="22", delay=timedelta(days=1)))
    heads, parts = packed_messages(stored)
    lengths = [len(body) for _, body, _ in stored]
    assert list(struct.iter_unpack(">BId", heads)) == [
        (1, lengths[0], 0.0),
        (2, lengths[1], 86_400_000_000.0),
    ]
    assert parts == b"1" + stored[0][1] + b"22" + stored[1][1]
    assert packed_ids([b"1", b"22"]) == (b"\x01\x02", b"122")


def test_tokens_are_sent_once_where_they_are_one() -> None:
    """The deliveries of one pop share theirs."""
    assert packed_tokens([b"12345678"] * 3) == b"12345678"
    assert packed_tokens([b"12345678", b"87654321"]) == b"1234567887654321"


def test_what_a_script_gives_is_taken_apart() -> None:
    """Ids and bodies of any length, also none."""
    heads = struct.pack(">BIIBII", 1, 0, 1, 2, 3, 7)
    assert list(taken(heads, b"122abc")) == [(b"1", b"", 1), (b"22", b"abc", 7)]


def test_the_dead_come_with_their_states() -> None:
    """The attempts, and the reason where the driver set one aside; a state may be missing."""
    state = struct.pack(">cI", b"D", 4)
    heads = struct.pack(">dBII", 17.0, 1, len(state) + 3, 2) + struct.pack(">dBII", 16.0, 1, 0, 0)
    assert list(buried(heads, b"1" + state + b"why" + b"xy" + b"2")) == [
        (17, b"1", b"xy", 4, "why"),
        (16, b"2", b"", 0, ""),
    ]


@pytest.mark.parametrize(
    ("id", "change", "reason"),
    [
        (b"\xff", lambda body: body, "id is not UTF-8"),
        (b"line\nforged", lambda body: body, "invalid name"),
        (b"x" * 256, lambda body: body, "invalid name"),
        (b"", lambda body: body, "invalid name"),
        (b"id", lambda body: body.replace(b"job", b"j\nb"), "job_name"),
        (b"id", lambda body: body.replace(b"space", b"s\x1bace"), "namespace"),
        (b"id", lambda body: b"", "cut off"),
        (b"id", lambda body: body[:7], "cut off"),
        (b"id", lambda body: body[:-1], "cut off"),
        (b"id", lambda body: body + b"x", "follow the end"),
        (b"id", lambda body: b"no message at all", "visibility timeout"),
        (b"id", lambda body: struct.pack(">d", -1) + body[8:], "visibility timeout"),
        (b"id", lambda body: struct.pack(">d", float("nan")) + body[8:], "visibility timeout"),
        (b"id", lambda body: struct.pack(">d", 4e14) + body[8:], "visibility timeout"),
        (b"id", lambda body: body[:10] + b"\x02" + body[11:], "version 2"),
    ],
)
def test_bytes_that_are_no_message_are_named_without_being_shown(
    id: bytes, change: object, reason: str
) -> None:
    """POP-8 and ERR-6."""
    [(_, body, _)] = _stored(Message("q", b"s3cret", "job", "space"))
    with pytest.raises(Unreadable, match=reason) as caught:
        message("q", id, change(body), 1)
    assert "s3cret" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_delivery_keeps_what_is_stored() -> None:
    """Changes to routing and identity never reach the server (OWN-4)."""
    given = Message("q", b"", "job", "space", "id", visibility_timeout=timedelta(seconds=1))
    delivery = delivered(self := object(), given, b"id", b"12345678").driver_data
    given.job_name = given.namespace = given.id = "changed"
    assert isinstance(delivery, LuaDelivery)
    assert delivery.owner is self
    assert (delivery.raw_id, delivery.job_name, delivery.namespace) == (b"id", "job", "space")
    assert delivery.visibility_us == 1_000_000
