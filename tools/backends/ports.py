"""Ports for servers, where outgoing connections of this machine are not given any."""

from __future__ import annotations

import random
import socket

#: Even ones below the ephemeral ports, even after 10,000 and 1 were added.
_RANGE = range(12_000, 22_000, 2)

_given: set[int] = set()


def free(count: int) -> list[int]:
    """Ports p such that p, p + 10,000 and p + 10,001 are free now, never the same twice."""
    candidates = (port for port in random.sample(_RANGE, len(_RANGE)) if port not in _given)
    found: list[int] = []
    while len(found) < count:
        port = next(candidates)
        if all(_is_free(each) for each in (port, port + 10_000, port + 10_001)):
            _given.add(port)
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        try:
            attempt.bind(("", port))
        except OSError:
            return False
    return True
