"""The options that both drivers take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import QueueURL, checked_poll_timeout, checked_visibility, safe_repr
from hypercube_queue_lua._keys import DEFAULT_PREFIX

#: A brace would start a hash tag of its own.
_PREFIX = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
#: An IPv6 address stands in brackets.
_ADDRESS = re.compile(r"(?:\[([^\[\]@/]+)\]|([^\[\]@/:]+))(?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a queue object behaves.

    `prefix` starts the name of every key: queues with the same one see the same messages.
    `poll_timeout` is how long a pop waits by default, `visibility_timeout` how long a delivery
    owns a message that names no time of its own, `operation_timeout` how long any call may
    take beyond its `wait`. Raises InvalidArgument.
    """

    prefix: str = DEFAULT_PREFIX
    poll_timeout: timedelta = timedelta(seconds=1)
    visibility_timeout: timedelta = timedelta(seconds=30)
    operation_timeout: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        checked_prefix(self.prefix)
        checked_poll_timeout(self.poll_timeout)
        checked_visibility(self.visibility_timeout)
        checked_visibility(self.operation_timeout, field="operation_timeout")

    @classmethod
    def from_url(cls, url: QueueURL) -> Options:
        """Take the options out of a URL."""
        take = url.options
        return cls(
            prefix=take.text("prefix", DEFAULT_PREFIX),
            poll_timeout=take.duration("poll_timeout", timedelta(seconds=1)),
            visibility_timeout=take.duration("visibility_timeout", timedelta(seconds=30)),
            operation_timeout=take.duration("operation_timeout", timedelta(seconds=30)),
        )


def checked_prefix(value: object) -> str:
    """`value` if it can start the name of a key."""
    if not isinstance(value, str):
        raise InvalidArgument(f"prefix is a str, not {type(value).__name__}")
    if not _PREFIX.fullmatch(value):
        raise InvalidArgument(
            f"prefix is {safe_repr(value)}; it takes 1 to 128 ASCII letters, digits and _ . : / -"
        )
    return value


def addresses(url: QueueURL, default_port: int) -> list[tuple[str, int]]:
    """Host and port in the URL's usual place, and those of its option `also`."""
    found = [(url.hostname or "localhost", url.port or default_port)]
    for each in filter(None, url.options.text("also", "").split(",")):
        match = _ADDRESS.fullmatch(each)
        if match is None:
            # Not shown: somebody may have written a password into it.
            raise InvalidArgument(
                "option 'also' has something that is no address; it takes host:port,host:port, "
                "and the user and password of the URL count for all"
            )
        found.append((match[1] or match[2], int(match[3] or default_port)))
    return found
