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
from hypercube_queue_memory._queue_state import QueueState

_NOTHING_TO_DO = Unavailable("this driver is memory of one process")


class Store(MemoryStore):
    """Makes states of the given type."""

    state_type: type[QueueState] = QueueState

    def queue(self, queue_name: str) -> QueueState:
        state = self.queues.get(queue_name)
        if state is None:
            state = self.queues[queue_name] = self.state_type(threading.Condition(self.lock))
        return state


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
    open_silenceable = _NOTHING_TO_DO
    open_misconfigured = _NOTHING_TO_DO
    insert_unreadable = _NOTHING_TO_DO

    queue_type: ClassVar[type[MemoryQueue]] = MemoryQueue
    state_type: ClassVar[type[QueueState]] = QueueState

    def __init__(self) -> None:
        self._seconds = 1000.0
        self.store = Store(clock=lambda: self._seconds)
        self.store.state_type = self.state_type

    def advance(self, duration: timedelta) -> None:
        self._seconds += duration.total_seconds()

    def open(self, **options: timedelta) -> Queue:
        return self.queue_type(self.store, **options)


class RealClockHarness(MemoryHarness):
    """The same by the real clock, where waiting pops really sleep."""

    injected_clock = False

    def __init__(self) -> None:
        self.store = Store()
        self.store.state_type = self.state_type

    advance = Harness.advance
