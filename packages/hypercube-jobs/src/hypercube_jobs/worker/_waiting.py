"""The deliveries that wait for a slot."""

from __future__ import annotations

from collections import deque
from itertools import count

from hypercube_jobs.worker._held import Held

#: How long a delivery may be passed by others of the other sort, in seconds: handing a slot from
#: threads to the event loop and back costs more than ten short jobs.
PATIENCE = 0.02


class Waiting:
    """Two lines, one of each sort of handler, so that slots change hands seldom.

    Within a sort the first to come is the first to go; between the two, but for `patience`
    seconds. Not thread-safe.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._sync: deque[Held] = deque()
        self._async: deque[Held] = deque()
        self._places = count()
        self._count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self._count

    def count_of(self, *, is_async: bool) -> int:
        return len(self._async if is_async else self._sync)

    def extend(self, some: list[Held]) -> None:
        self._count += len(some)
        for held in some:
            held.place = next(self._places)
            (self._async if held.is_async else self._sync).append(held)
            self.bytes += held.size

    def may_begin(self, now: float, *, is_async: bool) -> bool:
        """Whether it is the turn of this sort. Of at least one it is, if any delivery waits."""
        own, other = (self._async, self._sync) if is_async else (self._sync, self._async)
        if not own:
            return False
        if not other or own[0].place < other[0].place:
            return True
        return now - other[0].popped_at < self._patience

    def begin(self, *, is_async: bool) -> Held:
        """Take the first of this sort."""
        return self._taken(self._async if is_async else self._sync)

    def first(self) -> Held:
        """Who came first of all."""
        return self._first_line()[0]

    def take_first(self) -> Held:
        return self._taken(self._first_line())

    def clear(self) -> list[Held]:
        """Take all, in the order they came."""
        taken = sorted((*self._sync, *self._async), key=lambda held: held.place)
        self._sync.clear()
        self._async.clear()
        self._count = self.bytes = 0
        return taken

    def remove(self, held: Held) -> bool:
        """Take this one; False if it does not wait."""
        line = self._async if held.is_async else self._sync
        try:
            line.remove(held)
        except ValueError:
            return False
        self._count -= 1
        self.bytes -= held.size
        return True

    def _taken(self, line: deque[Held]) -> Held:
        held = line.popleft()
        self._count -= 1
        self.bytes -= held.size
        return held

    def _first_line(self) -> deque[Held]:
        if self._sync and (not self._async or self._sync[0].place < self._async[0].place):
            return self._sync
        return self._async
