"""The clock that stamps dispatches and failures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

#: Gives the present as an aware datetime. Stamps only: delays and leases are counted by the
#: backend's clock, time-outs by a monotonic one.
Clock: TypeAlias = Callable[[], datetime]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def utc_now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def to_epoch_microseconds(moment: datetime) -> int:
    """Whole microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND
