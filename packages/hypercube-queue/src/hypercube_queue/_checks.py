"""Checks of what callers pass, made before anything is sent.

Drivers and the packages that build on queues use them, so that a value is refused in the same words
everywhere. Each returns the value in its plain form or raises InvalidArgument.
"""

from __future__ import annotations

import re
from datetime import timedelta

from hypercube_queue._errors import InvalidArgument, MessageTooLarge
from hypercube_queue._guarantees import Guarantees
from hypercube_queue._message import MAX_DURATION, MAX_NAME_BYTES

#: Room that `push` keeps free so that a failure record always fits later (PUSH-8).
HEADROOM_BYTES = 16 * 1024
#: The most deliveries that one pop may ask for (POP-1).
MAX_POP = 10_000

_NOTHING = timedelta(0)
#: Unicode category Cc is exactly these; surrogates are never part of a valid text.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def checked_name(field: str, value: object, *, may_be_empty: bool) -> str:
    """`value` as a plain str if it is a *name*; `field` is what the error calls it."""
    if type(value) is str and value.isascii() and value.isprintable():
        if len(value) <= MAX_NAME_BYTES and (value or may_be_empty):
            return value  # nearly every name is one of these
    elif not isinstance(value, str):
        raise InvalidArgument(f"{field} is a str, not {type(value).__name__}")
    value = str.__str__(value)  # what an enumeration of names holds, not its label
    if not value and not may_be_empty:
        raise InvalidArgument(f"{field} is empty; give it a name")
    if bad := _FORBIDDEN.search(value):
        raise InvalidArgument(
            f"{field} {safe_repr(value)} has the character U+{ord(bad[0]):04X} at position "
            f"{bad.start()}; control characters and lone surrogates are not allowed in names"
        )
    if (size := len(value.encode())) > MAX_NAME_BYTES:
        raise InvalidArgument(
            f"{field} {safe_repr(value)} has {size} bytes in UTF-8; a name has at most "
            f"{MAX_NAME_BYTES}"
        )
    return value


def checked_queue_name(value: object, guarantees: Guarantees) -> str:
    """`value` if it names a queue that this backend can carry."""
    name = checked_name("queue_name", value, may_be_empty=False)
    if guarantees.queue_name_pattern is not None and not guarantees.accepts_queue_name(name):
        raise InvalidArgument(
            f"queue_name {safe_repr(name)} is not one this backend can carry; it takes names that "
            f"match {guarantees.queue_name_pattern}"
        )
    return name


def checked_bytes(field: str, value: object) -> bytes:
    """A snapshot of any bytes-like `value` (OWN-1). `bytes` are immutable and need no copy."""
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value)
        except ValueError as error:
            raise InvalidArgument(f"{field} cannot be read: {error}") from error
    raise InvalidArgument(
        f"{field} is bytes, bytearray or memoryview, not {type(value).__name__}; encode it first"
    )


def checked_size(payload: bytes, extra: bytes, limit: int | None) -> None:
    """Check that both together keep to `limit` bytes."""
    if limit is not None and len(payload) + len(extra) > limit:
        raise MessageTooLarge(
            f"payload and extra have {len(payload) + len(extra)} bytes; this backend takes at "
            f"most {limit}. Store the content elsewhere and push a reference to it"
        )


def checked_delay(value: object, limit: timedelta = MAX_DURATION) -> timedelta:
    """A delay: not negative, at most `limit`."""
    if not isinstance(value, timedelta):
        raise InvalidArgument(f"delay is a timedelta, not {type(value).__name__}")
    if value < _NOTHING:
        raise InvalidArgument(f"delay is {value}; it cannot be negative")
    if value > limit:
        raise InvalidArgument(f"delay is {value}; this backend takes at most {limit}")
    return value


def checked_visibility(
    value: object, limit: timedelta = MAX_DURATION, field: str = "visibility_timeout"
) -> timedelta:
    """A lease: longer than nothing, at most `limit`."""
    if not isinstance(value, timedelta):
        raise InvalidArgument(f"{field} is a timedelta, not {type(value).__name__}")
    if value <= _NOTHING:
        raise InvalidArgument(f"{field} is {value}; it must be longer than zero")
    if value > limit:
        raise InvalidArgument(f"{field} is {value}; this backend takes at most {limit}")
    return value


def checked_wait(value: object, default: timedelta) -> timedelta:
    """The wait of a pop: `value`, or `default` for None."""
    if value is None:
        return default
    return _checked_wait("wait", value, "a timedelta or None")


def checked_poll_timeout(value: object) -> timedelta:
    """The default wait of the pops of a driver object."""
    return _checked_wait("poll_timeout", value, "a timedelta")


def _checked_wait(field: str, value: object, expected: str) -> timedelta:
    if not isinstance(value, timedelta):
        raise InvalidArgument(f"{field} is {expected}, not {type(value).__name__}")
    if value < _NOTHING:
        raise InvalidArgument(f"{field} is {value}; it cannot be negative, zero checks once")
    return min(value, MAX_DURATION)


def checked_count(field: str, value: object, *, at_most: int | None = None) -> int:
    """A whole number from 1, up to `at_most`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{field} is an int, not {type(value).__name__}")
    if value < 1:
        raise InvalidArgument(f"{field} is {value}; it is at least 1")
    if at_most is not None and value > at_most:
        raise InvalidArgument(f"{field} is {value}; it is at most {at_most}")
    return value


def safe_repr(value: object) -> str:
    """`value` as an error text can show it: short, and free of what terminals act on."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-1:]}"
