"""Dead letters of one queue, in order of death."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from hypercube_queue_memory._entry import Entry

#: Below this many, compacting does not pay.
_FEW = 64


@dataclass(frozen=True, slots=True)
class Death:
    """One dead message: the number of its death, and when that was."""

    number: int
    entry: Entry
    died_at: datetime


class DeadLetterIndex:
    """Adds, removes, finds the oldest and pages from the newest, each in O(log n), amortised.

    Deaths are numbered, so a list in order of death is sorted, and a removed one leaves a
    hole until half of the list is holes.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._deaths: dict[int, Death] = {}
        self._by_id: dict[str, Death] = {}
        self._first = 0
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, message_id: str) -> Entry | None:
        death = self._by_id.get(message_id)
        return None if death is None else death.entry

    def add(self, entry: Entry) -> None:
        self._last_number += 1
        death = Death(self._last_number, entry, datetime.now(UTC))
        self._numbers.append(death.number)
        self._deaths[death.number] = death
        self._by_id[entry.id] = death

    def remove(self, entry: Entry) -> None:
        death = self._by_id.pop(entry.id)
        del self._deaths[death.number]
        self._compact()

    def oldest(self) -> Entry | None:
        """The one that died first."""
        return self._deaths[self._numbers[self._first]].entry if self._by_id else None

    def newest(self, before: int | None) -> Iterator[Death]:
        """Iterate backwards from the latest death, or from the one before number `before`."""
        end = len(self._numbers) if before is None else bisect_left(self._numbers, before)
        for position in range(end - 1, self._first - 1, -1):
            if death := self._deaths.get(self._numbers[position]):
                yield death

    def _compact(self) -> None:
        while self._first < len(self._numbers) and self._numbers[self._first] not in self._deaths:
            self._first += 1
        if len(self._numbers) > _FEW and len(self._numbers) > 2 * len(self._deaths):
            self._numbers = list(self._deaths)  # a dict keeps the order of death
            self._first = 0
