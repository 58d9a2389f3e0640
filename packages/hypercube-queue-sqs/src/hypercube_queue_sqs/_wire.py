"""Messages as SQS stores them: a text, which is an envelope in Base64.

A body takes neither all characters nor none, so nothing else of it could be any bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from hypercube_queue.driver import (
    MAX_ENVELOPE_OVERHEAD_BYTES,
    Envelope,
    PushItem,
    SettlementItem,
    UnreadableEnvelope,
    checked_envelope,
    encode_envelope,
    to_microseconds,
)
from hypercube_queue_sqs._delivery import SQSDelivery

#: Of a request, whatever it carries; and of a message, unless its queue was told otherwise.
MAX_REQUEST_BYTES = 1024 * 1024
#: Entries of a request.
MAX_ENTRIES = 10
#: Where the reason stands why a message was set aside.
REASON = "hypercube.unreadable"

_MAX_ENVELOPE_BYTES = MAX_REQUEST_BYTES // 4 * 3
#: `payload` and `extra` that fit in any case.
MAX_CONTENT_BYTES = _MAX_ENVELOPE_BYTES - MAX_ENVELOPE_OVERHEAD_BYTES

#: SQS counts twelve hours from when it handed a message out, which is before a pop returns it.
MAX_VISIBILITY = timedelta(hours=12) - timedelta(minutes=1)
_MAX_VISIBILITY_US = to_microseconds(MAX_VISIBILITY)

#: Attributes of a message.
_MOST_ATTRIBUTES = 10
_PARTS = ("DataType", "StringValue", "BinaryValue")

Entry = dict[str, Any]


def pushed(item: PushItem) -> Entry:
    """A new message."""
    return _entry(
        Envelope(
            item.queue_name,
            item.id,
            item.payload,
            item.extra,
            item.job_name,
            item.namespace,
            item.visibility_us,
        ),
        item.delay_us,
    )


def updated(item: SettlementItem[SQSDelivery]) -> Entry:
    """A message with what a worker made of it."""
    delivery = item.delivery
    return _entry(
        Envelope(
            delivery.queue_name,
            delivery.id,
            item.payload,
            item.extra,
            delivery.job_name,
            delivery.namespace,
            delivery.visibility_us,
            delivery.attempt,
        ),
        item.delay_us,
    )


def revived(envelope: Envelope) -> Entry:
    """A dead message that starts again."""
    envelope.attempt_base = 0
    return _entry(envelope, 0)


def set_aside(received: Mapping[str, Any], reason: str) -> Entry:
    """What cannot be read, as it came, with the reason beside it where there is room."""
    attributes = {
        name: {part: value[part] for part in _PARTS if value.get(part)}
        for name, value in received.get("MessageAttributes", {}).items()
    }
    told = {**attributes, REASON: {"DataType": "String", "StringValue": reason}}
    entry: Entry = {"MessageBody": received["Body"], "DelaySeconds": 0}
    with_reason = {**entry, "MessageAttributes": told}
    if len(told) <= _MOST_ATTRIBUTES and entry_bytes(with_reason) <= MAX_REQUEST_BYTES:
        return with_reason
    return {**entry, "MessageAttributes": attributes} if attributes else entry


def opened(received: Mapping[str, Any]) -> Envelope:
    """The envelope of a received message; raises UnreadableEnvelope."""
    try:
        blob = base64.b64decode(received["Body"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnreadableEnvelope("the body is no Base64") from error
    envelope = checked_envelope(blob)
    if envelope.visibility_us is not None and envelope.visibility_us > _MAX_VISIBILITY_US:
        raise UnreadableEnvelope(
            f"the envelope has a lease of {envelope.visibility_us} microseconds; SQS gives "
            f"{_MAX_VISIBILITY_US} at most"
        )
    return envelope


def whole_seconds(microseconds: int) -> int:
    """As SQS counts: never less than was asked for."""
    return -(-microseconds // 1_000_000)


def body_bytes(entry: Entry) -> int:
    """What SQS counts of an entry; bodies of ours are ASCII, and have no attributes."""
    return len(entry["MessageBody"])


def entry_bytes(entry: Entry) -> int:
    """What SQS counts of any entry: body, and names, types and values of attributes."""
    total = len(entry["MessageBody"].encode())
    for name, value in entry.get("MessageAttributes", {}).items():
        total += len(name.encode()) + sum(
            len(part.encode() if isinstance(part, str) else part) for part in value.values()
        )
    return total


def _entry(envelope: Envelope, delay_us: int) -> Entry:
    # The delay in any case: SQS would take the queue's own.
    return {
        "MessageBody": base64.b64encode(encode_envelope(envelope)).decode("ascii"),
        "DelaySeconds": whole_seconds(delay_us),
    }
