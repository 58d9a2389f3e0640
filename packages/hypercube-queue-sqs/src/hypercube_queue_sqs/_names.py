"""What queues are called at AWS.

work    PREFIX + the queue's name
dead    PREFIX + the queue's name + SUFFIX

AWS takes ASCII letters, digits, hyphens and underscores. Whatever else a name has is written as
`_-` + the hexadecimal digits of its UTF-8 bytes + `-_`, and so is an underscore before a hyphen:
no two names meet, and `queue_name` finds the way back. A name that would be too long ends with a
digest instead; every message carries the name of its queue.
"""

from __future__ import annotations

import hashlib
import re

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import safe_repr

_MOST = 80
#: Room for a digest and its mark must be left.
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,24}")
#: It ends as no escaped name does.
_SUFFIX = re.compile(r"[_-][A-Za-z0-9_-]{0,16}[A-Za-z0-9]")
_FOREIGN = re.compile(r"(?:[^A-Za-z0-9_-]|_(?=-))+")
_ESCAPED = re.compile(r"_-((?:[0-9a-f]{2})+)-_")
#: No escaped name has this, since no hexadecimal number starts with it.
_DIGEST = "_-sha-"
_DIGEST_BYTES = 16


class Names:
    """AWS's names for the queues of one driver object."""

    def __init__(self, prefix: str, dead_letter_suffix: str) -> None:
        self._prefix = prefix
        self._suffix = dead_letter_suffix
        self._room = _MOST - len(prefix) - len(dead_letter_suffix)

    def work(self, queue_name: str) -> str:
        """The queue that is pushed to and popped from."""
        return self._prefix + self._mapped(queue_name)

    def dead(self, queue_name: str) -> str:
        """Where its dead letters wait for a redrive."""
        return self.work(queue_name) + self._suffix

    def _mapped(self, queue_name: str) -> str:
        mapped = escaped(queue_name)
        if len(mapped) <= self._room:
            return mapped
        digest = hashlib.sha256(queue_name.encode()).hexdigest()[: 2 * _DIGEST_BYTES]
        return f"{_DIGEST}{digest}"


def escaped(queue_name: str) -> str:
    """The name in AWS's alphabet, however long."""
    return _FOREIGN.sub(lambda match: f"_-{match[0].encode().hex()}-_", queue_name)


def unescaped(mapped: str) -> str:
    """The inverse of `escaped`."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1]).decode(), mapped)


def queue_name_pattern(dead_letter_suffix: str) -> str:
    """The names that a queue may have: none of a FIFO queue, and none of dead letters."""
    return rf"(?!.*(?:\.fifo|{re.escape(dead_letter_suffix)})\Z).+"


def checked_prefix(value: object) -> str:
    """`value` if it can start the names of queues."""
    if not isinstance(value, str):
        raise InvalidArgument(f"prefix is a str, not {type(value).__name__}")
    if not _PREFIX.fullmatch(value):
        raise InvalidArgument(
            f"prefix is {safe_repr(value)}; it takes up to 24 ASCII letters, digits, '-' and '_'"
        )
    return value


def checked_suffix(value: object) -> str:
    """`value` if it can end the names of dead-letter queues."""
    if not isinstance(value, str):
        raise InvalidArgument(f"dead_letter_suffix is a str, not {type(value).__name__}")
    if not _SUFFIX.fullmatch(value):
        raise InvalidArgument(
            f"dead_letter_suffix is {safe_repr(value)}; it takes 2 to 18 ASCII letters, digits, "
            "'-' "
            "and '_', starts with one of these signs and ends with a letter or digit"
        )
    return value
