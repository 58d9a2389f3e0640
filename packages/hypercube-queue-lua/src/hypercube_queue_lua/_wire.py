"""Messages as scripts take and give them: a few long strings, whatever their number.

Clients and servers spend more time on the number of arguments than on their length, so the
variable parts of a chunk lie one behind the other in one string, and their lengths in another.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hypercube_queue import MAX_DURATION, InvalidArgument, Message
from hypercube_queue.driver import (
    Envelope,
    PushItem,
    UnreadableEnvelope,
    checked_name,
    decode_envelope,
    encode_envelope,
    from_microseconds,
    to_microseconds,
)
from hypercube_queue_lua._delivery import LuaDelivery, Settled

#: Lengths of id and body, delay.
_SENT = struct.Struct(">BId")
#: Lengths of id and body, attempt.
_TAKEN = struct.Struct(">BII")
#: Moment of death, lengths of id, state and body.
_BURIED = struct.Struct(">dBII")
_VISIBILITY = struct.Struct(">d")
_DEFAULT_VISIBILITY = _VISIBILITY.pack(0)
_LONGEST_US = to_microseconds(MAX_DURATION)
#: The letter and the attempts that a state starts with.
_STATE = struct.Struct(">cI")


class Unreadable(ValueError):
    """The bytes are no message of this layout. The text shows no content."""


class Taken(NamedTuple):
    """One stored message that a script has leased."""

    id: bytes
    body: bytes
    attempt: int


class Buried(NamedTuple):
    """One stored message among the dead."""

    death: int
    id: bytes
    body: bytes
    attempt: int
    #: Why the driver set it aside; empty when a worker dead-lettered it.
    reason: str


def stored_push(item: PushItem) -> tuple[bytes, bytes, int]:
    """Id, body and delay of a pushed message."""
    body = _body(item.payload, item.extra, item.job_name, item.namespace, item.visibility_us)
    return item.id.encode(), body, item.delay_us


def stored_settlement(item: Settled) -> tuple[bytes, bytes, int]:
    """Id, body and delay of a delivery with the contents it has now."""
    delivery = item.delivery
    body = _body(
        item.payload, item.extra, delivery.job_name, delivery.namespace, delivery.visibility_us
    )
    return delivery.raw_id, body, item.delay_us


def packed_messages(messages: Iterable[tuple[bytes, bytes, int]]) -> tuple[bytes, bytes]:
    """Heads, and ids with bodies."""
    heads: list[bytes] = []
    parts: list[bytes] = []
    for id, body, delay_us in messages:
        heads.append(_SENT.pack(len(id), len(body), delay_us))
        parts += (id, body)
    return b"".join(heads), b"".join(parts)


def packed_ids(ids: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Lengths, and ids."""
    return bytes(map(len, ids)), b"".join(ids)


def packed_tokens(tokens: Sequence[bytes]) -> bytes:
    """All tokens, or one that they share, as the deliveries of one pop do."""
    first = tokens[0]
    return first if tokens.count(first) == len(tokens) else b"".join(tokens)


def taken(heads: bytes, parts: bytes) -> Iterator[Taken]:
    """What the script `pop` gives."""
    start = 0
    for id_length, body_length, attempt in _TAKEN.iter_unpack(heads):
        middle = start + id_length
        end = middle + body_length
        yield Taken(parts[start:middle], parts[middle:end], attempt)
        start = end


def buried(heads: bytes, parts: bytes) -> Iterator[Buried]:
    """What the script `dead_letters` gives."""
    start = 0
    for death, *lengths in _BURIED.iter_unpack(heads):
        texts = []
        for length in lengths:
            texts.append(parts[start : start + length])
            start += length
        id, state, body = texts
        attempt = _STATE.unpack_from(state)[1] if len(state) >= _STATE.size else 0
        yield Buried(int(death), id, body, attempt, state[_STATE.size :].decode("utf-8", "replace"))


def message(queue_name: str, raw_id: bytes, body: bytes, attempt: int) -> Message:
    """The message in stored bytes; raises Unreadable if there is none (POP-8)."""
    visibility = None
    if not body.startswith(_DEFAULT_VISIBILITY):
        visibility = from_microseconds(_visibility(body))
    try:
        # Whoever may write to the server may have written what no push takes.
        id = checked_name("id", raw_id.decode(), may_be_empty=False)
        envelope = decode_envelope(body[_VISIBILITY.size :])
        checked_name("job_name", envelope.job_name, may_be_empty=True)
        checked_name("namespace", envelope.namespace, may_be_empty=True)
    except UnicodeDecodeError:
        raise Unreadable("the id is not UTF-8") from None
    except InvalidArgument as error:
        raise Unreadable(f"the message has an invalid name: {error}") from None
    except UnreadableEnvelope as error:
        raise Unreadable(str(error)) from None
    return Message(
        queue_name,
        envelope.payload,
        envelope.job_name,
        envelope.namespace,
        id,
        envelope.extra,
        visibility_timeout=visibility,
        attempt=attempt,
    )


def delivered(owner: object, delivery: Message, raw_id: bytes, token: bytes) -> Message:
    """The message with what makes it a delivery."""
    visibility = delivery.visibility_timeout
    delivery.driver_data = LuaDelivery(
        owner,
        delivery.queue_name,
        delivery.id,
        raw_id=raw_id,
        token=token,
        job_name=delivery.job_name,
        namespace=delivery.namespace,
        visibility_us=None if visibility is None else to_microseconds(visibility),
    )
    return delivery


def _visibility(body: bytes) -> int:
    if len(body) < _VISIBILITY.size:
        raise Unreadable(f"the body is cut off after {len(body)} bytes")
    [microseconds] = _VISIBILITY.unpack_from(body)
    if not 1 <= microseconds <= _LONGEST_US:
        raise Unreadable("the body does not start with a visibility timeout")
    return int(microseconds)


def _body(
    payload: bytes, extra: bytes, job_name: str, namespace: str, visibility_us: int | None
) -> bytes:
    visibility = _DEFAULT_VISIBILITY if visibility_us is None else _VISIBILITY.pack(visibility_us)
    # Queue and id are in the keys and fields already, and the visibility is where scripts see it.
    envelope = Envelope("", "", payload, extra, job_name, namespace, None)
    return visibility + encode_envelope(envelope)
