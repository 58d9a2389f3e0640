"""Message ids that `push` assigns."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

#: Random bytes of an id; six bits of them are not used.
_RANDOM_BYTES = 10
#: First digit of the fourth group of a UUID of the common variant, by any random digit.
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_id() -> str:
    """A UUID of version 7: ordered by the millisecond, 74 random bits beside it (PUSH-2)."""
    digits = ((time.time_ns() // 1_000_000).to_bytes(6) + os.urandom(_RANDOM_BYTES)).hex()
    return (
        f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-"
        f"{digits[20:]}"
    )


def new_ids(most: int) -> Iterator[str]:
    """Up to `most` of them, ascending, each of the moment when it is taken.

    A store that sorts by id keeps the order in which a batch was pushed. The random bytes of all
    are read at once, since a system call takes longer than the rest.
    """
    digits = os.urandom(_RANDOM_BYTES * most).hex()
    tails = sorted(
        f"-7{digits[at + 1 : at + 4]}-{_VARIANT[digits[at + 4]]}{digits[at + 5 : at + 8]}-"
        f"{digits[at + 8 : at + 20]}"
        for at in range(0, len(digits), 2 * _RANDOM_BYTES)
    )
    start, millisecond = "", -1
    for tail in tails:
        now = max(time.time_ns() // 1_000_000, millisecond)
        if now != millisecond:
            start, millisecond = f"{now >> 16:08x}-{now & 0xFFFF:04x}", now
        yield start + tail
