"""What somebody who may only publish can write beside an envelope, and into one."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties, frame, spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from hypercube_queue import Message
from hypercube_queue.driver import (
    MAX_ATTEMPT_BASE,
    Envelope,
    UnreadableEnvelope,
    encode_envelope,
)
from hypercube_queue_rabbitmq import RabbitMQQueue
from hypercube_queue_rabbitmq._consuming import Arrival
from hypercube_queue_rabbitmq._frames import TolerantConnection, UndecodableProperties
from hypercube_queue_rabbitmq._incoming import received
from hypercube_queue_rabbitmq._outgoing import set_aside

_BODY = encode_envelope(Envelope("work", "id", b"payload", b"", "job", "", None, 3))

_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals()
    | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_NAMES = st.sampled_from(
    ["x-delivery-count", "x-acquired-count", "x-death", "CC", "BCC", "x-hypercube-unreadable"]
)
_HEADERS = st.none() | st.dictionaries(_NAMES | st.text(max_size=4), _VALUES, max_size=5)


class _Raw(BasicProperties):
    """Properties with a table of headers that pika would not write."""

    def __init__(self, table: bytes) -> None:
        super().__init__(headers={})
        self._table = table

    def encode(self) -> list[bytes]:
        flags = struct.pack(">H", BasicProperties.FLAG_HEADERS)
        return [flags, struct.pack(">I", len(self._table)), self._table]


def _header(kind: bytes, value: bytes) -> bytes:
    return b"\x01h" + kind + value


def _nested(depth: int) -> bytes:
    table = b""
    for _ in range(depth):
        table = _header(b"F", struct.pack(">I", len(table)) + table)
    return table


#: What pika cannot decode.
_UNDECODABLE = {
    "timestamp": _header(b"T", struct.pack(">Q", 2**62)),
    "nan": _header(b"d", struct.pack(">d", float("nan"))),
    "infinity": _header(b"f", struct.pack(">f", float("inf"))),
    "nested": _nested(3000),
}


def _arrival(properties: Any, *, redelivered: bool = False) -> Arrival:
    return Arrival(None, 1, redelivered, properties, _BODY)  # type: ignore[arg-type]


@given(_HEADERS, st.booleans(), st.booleans())
def test_any_headers_make_a_message_or_an_unreadable_one(
    headers: dict[str, Any] | None, redelivered: bool, counts_attempts: bool
) -> None:
    """And nothing else: it is set aside within what a frame holds, and goes nowhere else."""
    arrival = _arrival(BasicProperties(headers=headers), redelivered=redelivered)
    try:
        message = received(arrival, None, "work", counts_attempts=counts_attempts, user=None)
    except UnreadableEnvelope:
        assert counts_attempts
    else:
        assert 4 <= message.attempt <= 4 + MAX_ATTEMPT_BASE
        if not counts_attempts:
            assert message.attempt == 4 + redelivered
    aside = set_aside("work", b"", arrival.properties, "reason", max_frame=4096)
    encoded = b"".join(aside.as_properties().encode())
    assert len(encoded) < 4096
    assert aside.as_properties().headers["x-hypercube-unreadable"] == "reason"
    assert not {"CC", "BCC"} & set(aside.as_properties().headers)


@given(st.binary(max_size=200) | st.sampled_from([*_UNDECODABLE.values()]))
def test_any_table_of_headers_is_a_frame(table: bytes) -> None:
    """Whatever is in it: what cannot be decoded is known as such."""
    connection = TolerantConnection.__new__(TolerantConnection)
    whole = frame.Header(1, 7, _Raw(table)).marshal()
    connection._frame_buffer = whole + b"rest"
    size, read = connection._read_frame()
    assert size == len(whole)
    assert read.body_size == 7
    if isinstance(read.properties, UndecodableProperties):
        with pytest.raises(UnreadableEnvelope, match="cannot be decoded"):
            received(_arrival(read.properties), None, "work", counts_attempts=True, user=None)
        set_aside("work", b"", read.properties, "reason", max_frame=4096).as_properties().encode()


@pytest.mark.parametrize("broken", _UNDECODABLE.values(), ids=_UNDECODABLE)
def test_what_pika_cannot_decode_is_what_it_was(broken: bytes) -> None:
    """A release of pika that decodes it makes our own reading of frames dispensable."""
    connection = TolerantConnection.__new__(TolerantConnection)
    connection._frame_buffer = frame.Header(1, 0, _Raw(broken)).marshal()
    _, read = connection._read_frame()
    assert isinstance(read.properties, UndecodableProperties)


def test_frames_that_are_broken_otherwise_are_errors_as_before() -> None:
    """They are no message's fault."""
    connection = TolerantConnection.__new__(TolerantConnection)
    connection._frame_buffer = (
        struct.pack(">BHL", spec.FRAME_METHOD, 1, 4) + b"\xff\xff\xff\xff\xce"
    )
    with pytest.raises(KeyError):
        connection._read_frame()


def _publish(channel: BlockingChannel, name: str, body: bytes, properties: Any) -> None:
    """Publish over a connection of its own, which some properties cost it."""
    channel.basic_publish("", name, body, properties)
    with contextlib.suppress(AMQPError):
        channel.connection.close()


def _until(queue: RabbitMQQueue, enough: Callable[[list[Message]], bool]) -> list[Message]:
    came: list[Message] = []
    end = time.monotonic() + 60
    while not enough(came):
        assert time.monotonic() < end
        came += queue.pop("work", 5, wait=timedelta(seconds=1))
    return came


@pytest.mark.server("rabbitmq")
@pytest.mark.parametrize("queue_type", ["quorum", "classic"])
def test_strangers_keep_no_queue_from_being_worked_on(
    url: str,
    prefix: str,
    queue_type: str,
    open_: Callable[[str], RabbitMQQueue],
    connect: Callable[..., BlockingChannel],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What they publish is a message, or is set aside; the next ones come."""
    queue = open_(f"{url}&queue_type={queue_type}")
    queue.pop("work", wait=timedelta(0))
    huge = {"h": "x" * 120_000, "x-delivery-count": "abc"}
    properties = [
        *map(_Raw, _UNDECODABLE.values()),
        BasicProperties(headers={"x-delivery-count": "abc"}),
        BasicProperties(headers={"x-delivery-count": -1}),
        BasicProperties(headers={"x-delivery-count": 2**62}),
        BasicProperties(headers={"x-delivery-count": {"a": [1]}}, priority=255),
        BasicProperties(headers={"x-delivery-count": "abc", "CC": [f"{prefix}work"]}),
        BasicProperties(headers={"x-death": [{"count": 2**40}], "x-acquired-count": "abc"}),
        BasicProperties(headers=huge),
        BasicProperties(content_encoding="gzip", content_type="x" * 255, message_id="é" * 100),
        BasicProperties(timestamp=2**62, correlation_id="x", reply_to="amq.rabbitmq", type="t"),
    ]
    for each in properties:
        _publish(connect(), f"{prefix}work", _BODY, each)
    for base in (2**32 - 1, MAX_ATTEMPT_BASE):
        body = bytearray(_BODY)
        struct.pack_into(">I", body, 3, base)
        _publish(connect(), f"{prefix}work", bytes(body), BasicProperties())
    queue.push(Message("work", id="last"))

    # Each is stored again, with whatever it claims, and then removed.
    held = _until(queue, lambda came: "last" in {each.id for each in came})
    queue.retry(*held)
    queue.ack(*_until(queue, lambda came: len(came) == len(held)))
    assert queue.pop("work", 10, wait=timedelta(0)) == []
    # The broker itself refuses some of the others.
    assert "cannot be decoded: " in caplog.text


def test_deliveries_that_another_user_claims_do_not_count(
    queue: RabbitMQQueue, channel: BlockingChannel, prefix: str
) -> None:
    """They would make a worker take the job for one that ends its process; ours do count."""
    queue.pop("work", wait=timedelta(0))
    forged = encode_envelope(Envelope("work", "id", b"payload", b"", "job", "", None, 1))
    channel.basic_publish("", f"{prefix}work", forged, BasicProperties(delivery_mode=2))

    [delivery] = queue.pop("work", wait=timedelta(seconds=10))
    assert delivery.attempt == 1
    queue.retry(delivery)
    [delivery] = queue.pop("work", wait=timedelta(seconds=10))
    assert delivery.attempt == 2
