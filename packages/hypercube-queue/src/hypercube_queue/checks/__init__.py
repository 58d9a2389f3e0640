"""Checks of what callers pass, made before anything is sent.

Drivers and the packages that build on queues use them, so that a value is refused in the same words
everywhere. Each returns the value in its plain form or raises InvalidArgument.
"""

from __future__ import annotations

from hypercube_queue._checks import (
    HEADROOM_BYTES,
    MAX_POP,
    checked_bytes,
    checked_count,
    checked_delay,
    checked_name,
    checked_poll_timeout,
    checked_queue_name,
    checked_size,
    checked_visibility,
    checked_wait,
    safe_repr,
)

__all__ = [
    "HEADROOM_BYTES",
    "MAX_POP",
    "checked_bytes",
    "checked_count",
    "checked_delay",
    "checked_name",
    "checked_poll_timeout",
    "checked_queue_name",
    "checked_size",
    "checked_visibility",
    "checked_wait",
    "safe_repr",
]
