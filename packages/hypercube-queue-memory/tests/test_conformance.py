"""The contract, kept by memory: by the real clock, and by one that is moved by hand."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from hypercube_queue import (
    DeadLetterStore,
    Guarantees,
    Queue,
    Redriver,
    Releaser,
    StatsProvider,
    VisibilityExtender,
    open_queue,
)
from hypercube_queue_conformance import Harness, QueueConformance, Unavailable
from hypercube_queue_memory import MemoryQueue, MemoryStore


class _MemoryHarness(Harness):
    guarantees = Guarantees(durable=False, shared=False, ordering="fifo")
    capabilities = frozenset(
        {VisibilityExtender, Redriver, StatsProvider, DeadLetterStore, Releaser}
    )
    restart = Unavailable("a process-local store has no backend to restart")
    opener = Unavailable("no other process can reach the memory of this one")
    borrow = Unavailable("there is no client between a memory queue and its store")
    open_silenceable = Unavailable("the memory of one's own process always answers")
    open_unreachable = Unavailable("the memory of one's own process always answers")
    open_misconfigured = Unavailable("there is nothing to configure")
    insert_unreadable = Unavailable("messages are objects, so there are no bytes to misread")


class RealClockHarness(_MemoryHarness):
    """A named store, opened by URL, whose time passes by itself."""

    def __init__(self) -> None:
        self._url = f"memory://{uuid4().hex}"

    def url(self) -> str:
        return self._url

    def open(self, **options: timedelta) -> Queue:
        if not options:
            return open_queue(self._url)
        seconds = "&".join(f"{name}={value.total_seconds()}" for name, value in options.items())
        return open_queue(f"{self._url}?{seconds}")


class InjectedClockHarness(_MemoryHarness):
    """A store whose time passes when the suite says so."""

    url = Unavailable("a URL cannot name a clock")
    injected_clock = True

    def __init__(self) -> None:
        self._seconds = 0.0
        self._store = MemoryStore(clock=lambda: self._seconds)

    def advance(self, duration: timedelta) -> None:
        self._seconds += duration.total_seconds()

    def open(self, **options: timedelta) -> Queue:
        return MemoryQueue(self._store, **options)


class TestMemory(QueueConformance):
    """By the real clock."""

    harness = RealClockHarness


class TestMemoryWithInjectedClock(QueueConformance):
    """By a clock that is moved."""

    harness = InjectedClockHarness
