"""Where the ready messages of a queue begin, as far as this process knows."""

from __future__ import annotations

import time
from typing import NamedTuple

from hypercube_queue_sql._rows import Row

#: Before all moments: a search from here sees everything.
BEGINNING = -(1 << 63)
#: How long a search may begin elsewhere, in seconds.
_TRUSTED = 1.0


class _Known(NamedTuple):
    place: int
    #: When a search saw everything.
    seen_at: float


class Backlogs:
    """Lets claims begin their search where the last one found something.

    What was claimed leaves its entry in an index of PostgreSQL's until it is cleaned, so that each
    claim from a long backlog would pass over the traces of all before it. A claim that begins
    later misses what has come into an earlier place meanwhile, released or pushed by a clock that
    was set back; so once a second, and whenever it does not find enough, one begins at the
    beginning.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def start(self, queue_name: str) -> int:
        """Where to begin."""
        known = self._known.get(queue_name)
        if known is None or time.monotonic() - known.seen_at > _TRUSTED:
            return BEGINNING
        return known.place

    def found(self, queue_name: str, rows: list[Row], *, start: int, is_full: bool) -> None:
        """Learn from a claim that began at `start`, and whether it brought all that it may."""
        place = rows[0].visible_at if is_full else None
        known = self._known.get(queue_name)
        if not isinstance(place, int):
            # There is no backlog, or something that is no message stands in front of it.
            self._known.pop(queue_name, None)
        elif start == BEGINNING or known is None:
            self._known[queue_name] = _Known(place, time.monotonic())
        else:
            self._known[queue_name] = _Known(place, known.seen_at)
