"""What to pop, and how far ahead of the free slots."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from hypercube_jobs.worker._decision import Isolation
from hypercube_jobs.worker._execution import START_WITHIN, Load
from hypercube_jobs.worker._held import NEVER, Held

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
#: The same for their payloads, which stay in memory until they are settled.
_MAX_UNSETTLED_BYTES = 16 * 1024 * 1024
#: How much the latest message's size counts in the average.
_WEIGHT = 0.05
#: How long a quarantined job is expected back at the end of its queue at first, in seconds.
_EXPECTED_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Sorted:
    """What to do with deliveries that have just come."""

    run: list[Held]
    #: These go back at once.
    release: list[Held]
    #: These go back with a note that they are run alone next time.
    quarantine: list[Held] = field(default_factory=list)
    #: These go back for a while, since they cannot be run alone here.
    put_off: list[Held] = field(default_factory=list)
    #: This one is run once nothing else is held.
    alone: Held | None = None


class Intake:
    """Decides how many deliveries to ask for, and which of those that came are run.

    It is careful as long as it knows no run times: then only free slots count. And it gives
    a delivery whose predecessor left no record the whole process (ATT-3): such a one may be
    what ended that process, and must not take others along.

    While such jobs are expected it asks for one delivery at a time. Once one of them came at
    a moment when others were held it is *exclusive*, which means that it pops only while
    nothing is held. A delivery that was released is in its old place, so that it comes next
    then. Without `releasable` it is at the end of its queue, and may be with another worker by
    the time that its turn comes, so it is expected for a limited time. And an attempt that is
    over its time-out may be held for ever, so nobody is made to wait for its end.
    """

    def __init__(self, *, releasable: bool = True) -> None:
        self._releasable = releasable
        #: At first nobody knows what the process before this one died of.
        self._one_at_a_time = True
        self._exclusive = False
        self._exclusive_until = NEVER
        #: How long the next time of being exclusive lasts at most, in seconds.
        self._patience = _EXPECTED_WITHIN
        self._mean_bytes: float | None = None

    def room(self, load: Load, held: int, held_bytes: int = 0) -> int:
        """How many deliveries to ask for now; none until something changes if not positive.

        `held` deliveries, of so many bytes, are here.
        """
        if self._exclusive and (load.overdue or time.monotonic() >= self._exclusive_until):
            self._exclusive = False
        if self._exclusive and held:
            return 0
        if held_bytes - load.running_bytes - load.waiting_bytes >= _MAX_UNSETTLED_BYTES:
            return 0
        room = self._general_room(load, held)
        return min(room, 1) if self._one_at_a_time else room

    def seconds_left(self) -> float | None:
        """How long `room` may be zero for no other reason than that it is exclusive."""
        if not self._exclusive or self._exclusive_until == NEVER:
            return None
        return max(0.0, self._exclusive_until - time.monotonic())

    def _general_room(self, load: Load, held: int) -> int:
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
        isolated = [each for each in some if each.standing.isolation is not Isolation.NONE]
        if not isolated:
            if not self._exclusive or not held:
                self._one_at_a_time = False
                self._exclusive = self._exclusive and not self._releasable
            return _what_fits(some, room, load)
        self._one_at_a_time = True
        others = [each for each in some if each.standing.isolation is Isolation.NONE]
        unrecorded = [each for each in isolated if each.standing.isolation.is_unrecorded]
        quarantined = [each for each in isolated if not each.standing.isolation.is_unrecorded]
        if not quarantined:
            if not self._releasable and not load.overdue:
                self._be_exclusive()
            fitting = _what_fits(others, room, load)
            return Sorted(fitting.run, fitting.release, unrecorded)
        if load.overdue:
            fitting = _what_fits(others, room, load)
            return Sorted(fitting.run, fitting.release, unrecorded, quarantined)
        if held:
            # What came with it would only make it wait for longer.
            self._be_exclusive()
            return Sorted([], others + quarantined, unrecorded)
        self._patience = _EXPECTED_WITHIN
        self._exclusive = False  # the time for the next one starts anew
        self._be_exclusive()
        return Sorted([], others + quarantined[1:], unrecorded, alone=quarantined[0])

    def nothing_came(self) -> None:
        """A pop was empty: somebody else has taken what was expected."""
        self._exclusive = False

    def _be_exclusive(self) -> None:
        if not self._exclusive and not self._releasable:
            self._exclusive_until = time.monotonic() + self._patience
            self._patience *= 2
        self._exclusive = True

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
