"""Durations as whole microseconds, and deadlines on a monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_microseconds(duration: timedelta) -> int:
    """The whole duration in microseconds, exactly."""
    return duration // _MICROSECOND


def from_microseconds(microseconds: int) -> timedelta:
    """The inverse of `to_microseconds`."""
    return timedelta(microseconds=microseconds)


def from_epoch_microseconds(microseconds: int) -> datetime:
    """The moment so many microseconds after 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


class Deadline:
    """A moment on a monotonic clock, some duration from now.

    `clock` gives seconds. Pass one that runs during suspend where the other side's does.
    """

    __slots__ = ("_at", "_clock")

    def __init__(self, duration: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock() + duration.total_seconds()

    def seconds_left(self) -> float:
        """Never negative, so it can be a time limit as it is."""
        return max(0.0, self._at - self._clock())

    @property
    def passed(self) -> bool:
        """True once nothing of the duration is left."""
        return self._clock() >= self._at
