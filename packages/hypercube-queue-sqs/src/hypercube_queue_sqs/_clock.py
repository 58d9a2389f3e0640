"""The clock that leases are counted on."""

from __future__ import annotations

import time

#: On Linux the monotonic clock stands still while the machine sleeps, elsewhere it runs on.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def seconds() -> float:
    """Seconds of a clock that runs while the machine sleeps, as SQS's does."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
