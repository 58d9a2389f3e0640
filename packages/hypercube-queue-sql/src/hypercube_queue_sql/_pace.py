"""How often a waiting pop looks for what nobody tells it."""

from __future__ import annotations

import time

#: A pop looks again after this part of the time in which nothing came: what comes then waits
#: for a fraction of the gap before it, and a queue that has long been idle costs little.
_PART = 0.25
#: The shortest time between two looks, in seconds.
_SHORTEST = 0.05
#: Of how many queues it is known when something came.
_MOST = 1_000


class Pace:
    """When something came last, for each queue that is popped from; shared by threads."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._came_at: dict[str, float] = {}

    def came(self, queue_name: str) -> None:
        """A pop has found something."""
        if len(self._came_at) >= _MOST and queue_name not in self._came_at:
            self._came_at.clear()
        self._came_at[queue_name] = time.monotonic()

    def seconds(self, queue_name: str, watchers: int, longest: float) -> float:
        """How long to sleep before the next look, where so many pops of this process wait.

        They look in turns, so that more of them find things no later and cost no more.
        """
        idle = time.monotonic() - self._came_at.get(queue_name, self._begun)
        return min(watchers * max(_SHORTEST, _PART * idle), longest)
