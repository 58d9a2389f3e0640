"""What the service accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tools.strict_sqs.errors import Refused, invalid

MOST_BYTES = 1024 * 1024
MOST_ENTRIES = 10
MOST_ATTRIBUTES = 10
LONGEST_DELAY = 900
LONGEST_VISIBILITY = 43_200
LONGEST_WAIT = 20

_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
#: XML 1.0 has no other characters.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: Defaults of a queue, with the least and the most of each.
ATTRIBUTES = {
    "VisibilityTimeout": (30, 0, LONGEST_VISIBILITY),
    "MaximumMessageSize": (MOST_BYTES, 1024, MOST_BYTES),
    "MessageRetentionPeriod": (345_600, 60, 1_209_600),
    "DelaySeconds": (0, 0, LONGEST_DELAY),
    "ReceiveMessageWaitTimeSeconds": (0, 0, LONGEST_WAIT),
}
_OTHER_ATTRIBUTES = {"Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId", "FifoQueue"}


def checked_queue_name(name: object, attributes: Mapping[str, str]) -> str:
    """The name of a queue that is to be created."""
    text = str(name)
    plain = text.removesuffix(".fifo") if attributes.get("FifoQueue") == "true" else text
    if not _QUEUE_NAME.fullmatch(plain) or len(text) > 80:
        raise Refused(
            "InvalidParameterValue",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )
    return text


def check_queue_attributes(attributes: Mapping[str, str]) -> None:
    """Attributes that a queue is to have."""
    for name, value in attributes.items():
        if name in ATTRIBUTES:
            number(f"Attribute {name}", value, *ATTRIBUTES[name][1:])
        elif name not in _OTHER_ATTRIBUTES:
            raise Refused("InvalidAttributeName", f"Unknown Attribute {name}.")


def number(name: str, value: object, least: int, most: int) -> int:
    """A whole number within its limits."""
    try:
        found = int(str(value))
    except ValueError:
        raise invalid(name, value, "Must be an integer") from None
    if not least <= found <= most:
        raise invalid(name, value, f"Must be between {least} and {most}, if provided")
    return found


def check_entries(entries: Sequence[Mapping[str, Any]]) -> None:
    """What would make a whole batch fail."""
    if not entries:
        raise Refused("EmptyBatchRequest", "There should be at least one message in the request.")
    if len(entries) > MOST_ENTRIES:
        raise Refused(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MOST_ENTRIES}. "
            f"You have sent {len(entries)}.",
        )
    ids = [each.get("Id", "") for each in entries]
    if any(not _ENTRY_ID.fullmatch(each) for each in ids):
        raise Refused(
            "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores.",
        )
    if len(set(ids)) < len(ids):
        raise Refused("BatchEntryIdsNotDistinct", "Id repeated.")


def size_of(entry: Mapping[str, Any]) -> int:
    """Body and attributes: names, types and values."""
    total = len(str(entry.get("MessageBody", "")).encode())
    for name, value in (entry.get("MessageAttributes") or {}).items():
        content = value.get("StringValue", "") or value.get("BinaryValue", "")
        total += len(name.encode()) + len(value.get("DataType", "")) + len(str(content).encode())
    return total


def check_batch_size(entries: Sequence[Mapping[str, Any]]) -> None:
    """All that a request carries."""
    if (total := sum(map(size_of, entries))) > MOST_BYTES:
        raise Refused(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MOST_BYTES} bytes. You have sent {total} bytes",
        )


def check_message(entry: Mapping[str, Any], most_bytes: int) -> None:
    """One message that is to be sent."""
    body = entry.get("MessageBody", "")
    if not body:
        raise Refused("MissingParameter", "The request must contain the parameter MessageBody.")
    if _ILLEGAL.search(body):
        raise Refused(
            "InvalidMessageContents", "Invalid characters found. Valid unicode characters are ..."
        )
    attributes = entry.get("MessageAttributes") or {}
    if len(attributes) > MOST_ATTRIBUTES:
        raise Refused(
            "InvalidParameterValue",
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [10].",
        )
    for name, value in attributes.items():
        if not (value.get("StringValue") or value.get("BinaryValue")):
            raise Refused(
                "InvalidParameterValue", f"Message (user) attribute '{name}' must contain a value."
            )
    if size_of(entry) > most_bytes:
        raise Refused(
            "InvalidParameterValue",
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{most_bytes} bytes.",
        )
