"""Message ids that `push` assigns."""

from __future__ import annotations

import os
import time

#: What a UUID of the common variant may have as the first digit of its fourth group, by any digit.
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_id() -> str:
    """A UUID of version 7: ordered by the millisecond, 74 random bits beside it (PUSH-2)."""
    moment = f"{time.time_ns() // 1_000_000:012x}"
    chance = os.urandom(10).hex()
    return (
        f"{moment[:8]}-{moment[8:]}-7{chance[:3]}-{_VARIANT[chance[3]]}{chance[4:7]}-{chance[7:19]}"
    )
