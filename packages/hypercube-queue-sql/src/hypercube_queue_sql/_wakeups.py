"""How a pop that waits learns, within the process, that something was stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Watch:
    """The waiting pops of one queue name."""

    def __init__(self, lock: threading.Lock) -> None:
        self.changed = threading.Condition(lock)
        #: How often something was stored while anybody watched.
        self.changes = 0
        self.watchers = 0

    def sleep(self, seen: int, seconds: float) -> bool:
        """Sleep until something is stored, unless it was since `changes` was `seen`.

        Whether it was.
        """
        with self.changed:
            if self.changes == seen:
                self.changed.wait(seconds)
            return self.changes != seen


class Wakeups:
    """Wakes the waiting pops of one database, whatever queue objects they belong to.

    A wake-up is a hint: who is not woken looks by itself before long, so one that is lost
    with an interrupted thread costs no more than that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[str, Watch] = {}

    @contextmanager
    def watch(self, queue_name: str) -> Iterator[Watch]:
        """Take part in the wake-ups of a queue name."""
        with self._lock:
            watch = self._watches.get(queue_name)
            if watch is None:
                watch = self._watches[queue_name] = Watch(self._lock)
            watch.watchers += 1
        try:
            yield watch
        finally:
            with self._lock:
                watch.watchers -= 1
                if not watch.watchers:
                    del self._watches[queue_name]

    def stored(self, queue_name: str, count: int) -> None:
        """Wake as many as there are messages: more would find nothing."""
        # A look without the lock: a pop begins to watch before it looks into the database.
        if queue_name not in self._watches:
            return
        with self._lock:
            if watch := self._watches.get(queue_name):
                watch.changes += 1
                watch.changed.notify(count)

    def wake_all(self) -> None:
        """Wake every waiting pop, for one of them may belong to a queue that was closed."""
        with self._lock:
            for watch in self._watches.values():
                watch.changes += 1
                watch.changed.notify_all()
