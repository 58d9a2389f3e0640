"""Durations as whole microseconds, and deadlines on a monotonic clock."""

from __future__ import annotations

from hypercube_queue._times import (
    Deadline,
    from_epoch_microseconds,
    from_microseconds,
    to_microseconds,
)

__all__ = [
    "Deadline",
    "from_epoch_microseconds",
    "from_microseconds",
    "to_microseconds",
]
