"""Message ids that `push` assigns."""

from __future__ import annotations

import os
import time

#: What a UUID of the common variant may have as the first digit of its fourth group, by any digit.
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_id() -> str:
    """A UUID of version 7: ordered by the millisecond, 74 random bits beside it (PUSH-2)."""
    digits = ((time.time_ns() // 1_000_000).to_bytes(6) + os.urandom(10)).hex()
    return (
        f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-"
        f"{digits[20:]}"
    )
