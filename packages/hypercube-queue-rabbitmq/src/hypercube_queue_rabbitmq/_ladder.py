"""The steps of the delay ladder: one for every delay, and few in all.

A broker honours the expiry of a single message only at the head of its queue. So a delayed
message waits in a queue where all wait equally long: that of the first step that is not
shorter than its delay. Steps are at most 20 ms or 5 % apart, whichever is more.

Every release must climb the same ladder, or a vhost gets the steps of both.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta

#: Steps are shorter than this where the broker would no longer take them: 2**32 milliseconds.
MAX_DELAY = timedelta(days=49)

_APART_MS = 20
_APART = timedelta(milliseconds=_APART_MS)
_SHARE = 0.05
#: What a broker that is busy needs for itself.
_ITS_OWN_TIME = timedelta(seconds=1)


def _climb() -> list[int]:
    highest = MAX_DELAY // timedelta(milliseconds=1) + 1
    steps = [_APART_MS]
    while steps[-1] < highest:
        # A delay is up to 1 ms more than its whole milliseconds, and gets 1 ms on top.
        apart = max(_APART_MS - 1, int(steps[-1] * _SHARE) - 2)
        steps.append(steps[-1] + apart)
    steps[-1] = highest
    return steps


#: In milliseconds.
STEPS = tuple(_climb())


def step_for(delay_us: int) -> int:
    """The step for a delay, in milliseconds: never shorter, by the broker's coarser clock too."""
    # It counts from the millisecond that the message came in, which may nearly be over.
    at_least = -(-delay_us // 1000) + 1
    return STEPS[bisect_left(STEPS, at_least)]


def lateness(delay: timedelta) -> timedelta:
    """How late a message with this delay may come."""
    if not delay:
        return _ITS_OWN_TIME
    return max(delay * _SHARE, _APART) + _ITS_OWN_TIME
