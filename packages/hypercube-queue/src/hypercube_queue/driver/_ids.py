"""Message ids that `push` assigns."""

from __future__ import annotations

import os
import time


def new_id() -> str:
    """A UUID of version 7: ordered by the millisecond, 74 random bits beside it (PUSH-2)."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    number = number & ~(0xF << 76) | 0x7 << 76  # the version
    number = number & ~(0x3 << 62) | 0x2 << 62  # the variant
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
