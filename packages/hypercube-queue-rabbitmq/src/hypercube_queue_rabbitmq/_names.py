"""What queues are called at the broker.

work          PREFIX + the queue's name
dead          hypercube.dead. + PREFIX + the queue's name
unreadable    hypercube.unreadable. + PREFIX + the queue's name
delay step    hypercube.delay.MILLISECONDS, shared by the whole vhost

A name that would be too long ends with the digest of what it stands for. Nothing has to find
the way back: every message carries the name of its queue.
"""

from __future__ import annotations

import hashlib
import re

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import safe_repr

#: The broker keeps the first start for itself, the driver the second.
QUEUE_NAME_PATTERN = r"(?!amq\.|hypercube\.).+"

#: AMQP's short string.
_MAX_BYTES = 255
#: It ends where a name begins, so that no name can complete a reserved start.
_PREFIX = re.compile(r"(?!amq\.|hypercube\.)(?:[A-Za-z0-9_.:/-]{0,63}[_.:/-])?")


class Names:
    """The broker's names for the queues of one driver object."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def work(self, queue_name: str) -> str:
        """The queue that is pushed to and popped from."""
        return _fitting(self._prefix, queue_name)

    def dead(self, queue_name: str) -> str:
        """Where its dead letters wait for a redrive."""
        return _fitting(f"hypercube.dead.{self._prefix}", queue_name)

    def unreadable(self, queue_name: str) -> str:
        """Where what cannot be read is set aside."""
        return _fitting(f"hypercube.unreadable.{self._prefix}", queue_name)


def step_name(milliseconds: int) -> str:
    """The exchange and the queue of a step of the delay ladder."""
    return f"hypercube.delay.{milliseconds}"


def checked_prefix(value: object) -> str:
    """`value` if it can start the names of queues."""
    if not isinstance(value, str):
        raise InvalidArgument(f"prefix is a str, not {type(value).__name__}")
    if not _PREFIX.fullmatch(value):
        raise InvalidArgument(
            f"prefix is {safe_repr(value)}; it takes up to 64 ASCII letters, digits and _ . : / -, "
            "ends with one of these signs, and starts neither with 'amq.' nor with 'hypercube.'"
        )
    return value


def _fitting(start: str, name: str) -> str:
    whole = start + name
    if len(whole.encode()) <= _MAX_BYTES:
        return whole
    return f"{start}sha256.{hashlib.sha256(name.encode()).hexdigest()}"
