"""From stored rows to messages, and what is wrong with the ones that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hypercube_queue import MAX_DURATION, InvalidArgument, Message
from hypercube_queue.driver import checked_name, from_microseconds, to_microseconds

#: The most that BIGINT holds.
_LARGEST = (1 << 63) - 1
_LONGEST_US = to_microseconds(MAX_DURATION)


class Row(NamedTuple):
    """A message as it is stored, in the order of the columns that statements name.

    Any value may be of any type: databases differ in how much they enforce, and other
    programs write to them.
    """

    seq: Any
    #: When it became visible; of a dead one, when it died.
    visible_at: Any
    attempt: Any
    visibility_us: Any
    #: Why the driver set it aside, if it did.
    reason: Any
    id: Any
    job_name: Any
    namespace: Any
    extra: Any
    payload: Any


def place_in_order(row: Row) -> tuple[int, int]:
    """What claimed rows are sorted by: databases return them as they come."""
    return row.visible_at, row.seq


def size_of(rows: Iterable[Row]) -> int:
    """The bytes of the contents of these rows together, as statements count them."""
    return sum(_length(row.payload) + _length(row.extra) for row in rows)


def _length(value: object) -> int:
    return len(value) if isinstance(value, bytes | str) else 0


class UnreadableRow(ValueError):
    """The row is no message of this layout. The text says which column, and shows no content."""


def message(row: Row, queue_name: str) -> Message:
    """The message in a row; raises UnreadableRow if there is none (POP-8)."""
    _check_number("visible_at", row.visible_at, -_LARGEST, _LARGEST)
    visibility_us = row.visibility_us
    if visibility_us is not None:
        _check_number("visibility_us", visibility_us, 1, _LONGEST_US)
        visibility_us = from_microseconds(visibility_us)
    _check_number("attempt", row.attempt, 0, _LARGEST)
    return Message(
        queue_name,
        _bytes("payload", row.payload),
        _name("job_name", row.job_name),
        _name("namespace", row.namespace),
        _name("id", row.id, may_be_empty=False),
        _bytes("extra", row.extra),
        visibility_timeout=visibility_us,
        attempt=row.attempt,
    )


def raw(row: Row) -> bytes:
    """The payload of an unreadable row, as near to the stored bytes as its type allows."""
    return row.payload if isinstance(row.payload, bytes) else str(row.payload).encode()


def _check_number(column: str, value: object, least: int, most: int) -> None:
    if type(value) is not int:
        raise UnreadableRow(f"{column} is no integer but a {type(value).__name__}")
    if not least <= value <= most:
        raise UnreadableRow(f"{column} is {value}, outside {least} to {most}")


def _bytes(column: str, value: object) -> bytes:
    if type(value) is not bytes:
        raise UnreadableRow(f"{column} holds no bytes but a {type(value).__name__}")
    return value


def _name(column: str, value: object, *, may_be_empty: bool = True) -> str:
    """A name as `push` takes it: others write to the table, and names are shown and logged."""
    try:
        return checked_name(column, _bytes(column, value).decode(), may_be_empty=may_be_empty)
    except UnicodeDecodeError as error:
        raise UnreadableRow(f"{column} is not UTF-8 at byte {error.start}") from None
    except InvalidArgument as error:
        raise UnreadableRow(str(error)) from None
