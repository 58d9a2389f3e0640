"""The store that queue objects of one process share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from hypercube_queue_memory._queue_state import QueueState


class MemoryStore:
    """The messages behind one or several `MemoryQueue` objects.

    `clock` gives seconds that never go back; delays and leases are counted on it. Replace it
    in tests to let time pass at will: waiting pops then look every 10 ms.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: One lock for all queues: moves are short, and a batch may name several.
        self.lock = threading.Lock()
        self.queues: dict[str, QueueState] = {}
        #: The longest sleep of a waiting pop, in seconds: a replaced clock can jump at any time.
        self.longest_sleep = 3600.0 if clock is time.monotonic else 0.01

    def now(self) -> int:
        """The clock in microseconds."""
        # A replaced clock is exact to the microsecond, but its float only nearly.
        return round(self._clock() * 1_000_000)

    def queue(self, queue_name: str) -> QueueState:
        """The state of a queue, made on first use."""
        state = self.queues.get(queue_name)
        if state is None:
            state = self.queues[queue_name] = QueueState(threading.Condition(self.lock))
        return state

    def discard_if_idle(self, queue_name: str) -> None:
        """Drop the state of a queue that is empty, so that names of the past cost nothing."""
        state = self.queues.get(queue_name)
        if state is not None and not state.entries and not state.waiting:
            del self.queues[queue_name]


_named: dict[str, MemoryStore] = {}
_named_lock = threading.Lock()


def named_store(name: str) -> MemoryStore:
    """The store that `memory://name` means everywhere in this process, kept to its end."""
    with _named_lock:
        return _named.setdefault(name, MemoryStore())


def _forget_named() -> None:
    """In a forked child: the parent's messages are the parent's, and its lock may be taken."""
    global _named_lock
    _named.clear()
    _named_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget_named)
