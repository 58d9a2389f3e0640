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
        #: Deliveries with the number they came under.
        self._sync: deque[tuple[int, Held]] = deque()
        self._async: deque[tuple[int, Held]] = deque()
        self._numbers = count()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._sync) + len(self._async)

    def count_of(self, *, is_async: bool) -> int:
        return len(self._async if is_async else self._sync)

    def extend(self, some: list[Held]) -> None:
        for held in some:
            (self._async if held.is_async else self._sync).append((next(self._numbers), held))
            self.bytes += held.size

    def may_begin(self, now: float, *, is_async: bool) -> bool:
        """Whether it is the turn of this sort. Of at least one it is, if any delivery waits."""
        own, other = (self._async, self._sync) if is_async else (self._sync, self._async)
        if not own:
            return False
        if not other or own[0][0] < other[0][0]:
            return True
        return now - other[0][1].popped_at < self._patience

    def begin(self, *, is_async: bool) -> Held:
        """Take the first of this sort."""
        held = (self._async if is_async else self._sync).popleft()[1]
        self.bytes -= held.size
        return held

    def first(self) -> Held:
        """Who came first of all."""
        return self._first_line()[0][1]

    def take_first(self) -> Held:
        held = self._first_line().popleft()[1]
        self.bytes -= held.size
        return held

    def clear(self) -> list[Held]:
        """Take all, in the order they came."""
        taken = [held for _, held in sorted((*self._sync, *self._async), key=lambda each: each[0])]
        self._sync.clear()
        self._async.clear()
        self.bytes = 0
        return taken

    def remove(self, held: Held) -> bool:
        """Take this one; False if it does not wait."""
        line = self._async if held.is_async else self._sync
        for position, (_, each) in enumerate(line):
            if each is held:
                del line[position]
                self.bytes -= held.size
                return True
        return False

    def _first_line(self) -> deque[tuple[int, Held]]:
        if self._sync and (not self._async or self._sync[0][0] < self._async[0][0]):
            return self._sync
        return self._async
