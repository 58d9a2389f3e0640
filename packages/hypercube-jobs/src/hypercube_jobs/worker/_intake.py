"""What to pop, and how far ahead of the free slots."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypercube_jobs.worker._execution import START_WITHIN, Load
from hypercube_jobs.worker._held import Held

#: Deliveries are popped ahead as far as they will start within half of the time after which
#: they are given back, since run times vary.
_PLANNED_WITHIN = START_WITHIN / 2
#: The most deliveries that wait for a slot, and their bytes.
MAX_AHEAD = 512
MAX_AHEAD_BYTES = 16 * 1024 * 1024
#: The most deliveries of one pop, a chunk of most backends: while one half of those that may wait
#: is run, the other is on its way.
_MAX_POP = MAX_AHEAD // 2
#: With so many ended and not settled, the backend is in trouble and no more is popped.
_MAX_UNSETTLED = 1024
#: How much the latest message's size counts in the average.
_WEIGHT = 0.05


@dataclass(frozen=True, slots=True)
class Sorted:
    """What to do with deliveries that have just come."""

    run: list[Held]
    #: These go back at once.
    release: list[Held]
    #: These have to run alone, which is not possible now.
    suspects: list[Held] = field(default_factory=list)


class Intake:
    """Decides how many deliveries to ask for, and which of those that came are run.

    It is careful as long as it knows no run times: then only free slots count. And it gives
    a delivery whose predecessor left no record the whole process (ATT-3): such a one may be
    what ended that process, and must not take others along.
    """

    def __init__(self) -> None:
        self._alone = False
        self._mean_bytes: float | None = None

    def room(self, load: Load, held: int) -> int:
        """How many deliveries to ask for now; none until something changes if not positive."""
        if self._alone:
            # Whoever is to run alone comes when nobody else is here.
            return 0 if held else 1
        if held - load.running - load.waiting >= _MAX_UNSETTLED:
            return 0
        ahead = self._ahead(load)
        if load.waiting > max(load.free, ahead / 2):
            # With enough in store, a pop for each that starts would bring one message at a time.
            return 0
        return min(load.free + ahead - load.waiting, _MAX_POP)

    def sort(self, some: list[Held], room: int, load: Load, held: int) -> Sorted:
        """Which of these to run, at most `room`; `held` deliveries were here before them."""
        self._learn_size(some)
        suspects = [each for each in some if each.standing.lost]
        if not suspects:
            if not (self._alone and held):
                self._alone = False
            return _what_fits(some, room, load)
        self._alone = True
        others = [each for each in some if not each.standing.lost]
        if held or others:
            fitting = _what_fits(others, room, load)
            return Sorted(fitting.run, fitting.release, suspects)
        return Sorted(suspects[:1], [], suspects[1:])

    def nothing_came(self) -> None:
        """A pop was empty: somebody else has taken whom we made room for."""
        self._alone = False

    def _ahead(self, load: Load) -> int:
        """How many may wait for a slot."""
        if load.run_seconds is None or self._mean_bytes is None:
            return 0
        by_time = load.moving * _PLANNED_WITHIN / max(load.run_seconds, 1e-6)
        by_size = MAX_AHEAD_BYTES / max(self._mean_bytes, 1.0)
        return int(min(by_time, by_size, MAX_AHEAD))

    def _learn_size(self, some: list[Held]) -> None:
        mean = self._mean_bytes
        for each in some:
            mean = each.size if mean is None else mean + (each.size - mean) * _WEIGHT
        self._mean_bytes = mean


def _what_fits(some: list[Held], room: int, load: Load) -> Sorted:
    # Waiting pops of several queues can bring more than there is room for.
    count = 0
    ahead_bytes = load.waiting_bytes
    for each in some[:room]:
        if count >= load.free:
            ahead_bytes += each.size
            if ahead_bytes > MAX_AHEAD_BYTES:
                break
        count += 1
    return Sorted(some[:count], some[count:])
