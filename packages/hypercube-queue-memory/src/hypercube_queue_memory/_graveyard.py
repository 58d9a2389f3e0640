"""The dead messages of one queue, in order of death."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime

from hypercube_queue_memory._entry import Entry

#: Below this many, sweeping is not worth the look.
_FEW = 64


class Graveyard:
    """Adding, removing, the oldest and a page of the newest: each O(log n), amortised.

    Deaths are numbered, so a list in order of death is sorted, and a removed one leaves a
    hole until half of the list is holes.
    """

    def __init__(self) -> None:
        self._deaths: list[int] = []
        self._entries: dict[int, Entry] = {}
        self._by_id: dict[str, Entry] = {}
        self._first = 0
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, message_id: str) -> Entry | None:
        return self._by_id.get(message_id)

    def add(self, entry: Entry) -> None:
        self._last_number += 1
        entry.death = self._last_number
        entry.died_at = datetime.now(UTC)
        self._deaths.append(entry.death)
        self._entries[entry.death] = entry
        self._by_id[entry.id] = entry

    def remove(self, entry: Entry) -> None:
        del self._entries[entry.death]
        del self._by_id[entry.id]
        entry.death = 0
        entry.died_at = None
        self._sweep()

    def oldest(self) -> Entry | None:
        """The one that died first."""
        return self._entries[self._deaths[self._first]] if self._by_id else None

    def newest(self, before: int | None) -> Iterator[Entry]:
        """From the latest death, or from the one before death number `before`, backwards."""
        end = len(self._deaths) if before is None else bisect_left(self._deaths, before)
        for place in range(end - 1, self._first - 1, -1):
            if entry := self._entries.get(self._deaths[place]):
                yield entry

    def _sweep(self) -> None:
        while self._first < len(self._deaths) and self._deaths[self._first] not in self._entries:
            self._first += 1
        if len(self._deaths) > _FEW and len(self._deaths) > 2 * len(self._entries):
            self._deaths = list(self._entries)  # a dict keeps the order of death
            self._first = 0
