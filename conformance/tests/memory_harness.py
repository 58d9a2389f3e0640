"""A harness over the memory driver, whose parts can be exchanged for broken ones."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import ClassVar

from hypercube_queue import (
    DeadLetterStore,
    Guarantees,
    Queue,
    Redriver,
    Releaser,
    StatsProvider,
    VisibilityExtender,
)
from hypercube_queue_conformance import Harness, Unavailable
from hypercube_queue_memory import MemoryQueue, MemoryStore
from hypercube_queue_memory._lane import Lane

_NOTHING_TO_DO = Unavailable("this driver is memory of one process")


class Store(MemoryStore):
    """Makes lanes of the given type."""

    lane_type: type[Lane] = Lane

    def lane(self, queue_name: str) -> Lane:
        lane = self.lanes.get(queue_name)
        if lane is None:
            lane = self.lanes[queue_name] = self.lane_type(threading.Condition(self.lock))
        return lane


class MemoryHarness(Harness):
    """The memory driver with a clock that is moved."""

    guarantees = Guarantees(durable=False, shared=False, ordering="fifo")
    capabilities = frozenset(
        {VisibilityExtender, Redriver, StatsProvider, DeadLetterStore, Releaser}
    )
    injected_clock = True
    #: Nothing is slow here but what is broken.
    patience = timedelta(seconds=2)
    backlog = 3_000
    restart = _NOTHING_TO_DO
    opener = _NOTHING_TO_DO
    url = _NOTHING_TO_DO
    borrow = _NOTHING_TO_DO
    open_unreachable = _NOTHING_TO_DO
    open_misconfigured = _NOTHING_TO_DO
    insert_unreadable = _NOTHING_TO_DO

    queue_type: ClassVar[type[MemoryQueue]] = MemoryQueue
    lane_type: ClassVar[type[Lane]] = Lane

    def __init__(self) -> None:
        self._seconds = 1000.0
        self.store = Store(clock=lambda: self._seconds)
        self.store.lane_type = self.lane_type

    def advance(self, duration: timedelta) -> None:
        self._seconds += duration.total_seconds()

    def open(self, **options: timedelta) -> Queue:
        return self.queue_type(self.store, **options)


class RealClockHarness(MemoryHarness):
    """The same by the real clock, where waiting pops really sleep."""

    injected_clock = False

    def __init__(self) -> None:
        self.store = Store()
        self.store.lane_type = self.lane_type

    advance = Harness.advance
