"""The waiting pops of one queue object, so that its close can wake them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Waiters:
    """How many pops wait, by queue.

    Each waits for the queue's token or for a token under the name of this object.
    """

    def __init__(self) -> None:
        self.name = os.urandom(8).hex().encode()
        self._lock = threading.Lock()
        self._waiting: Counter[str] = Counter()

    @contextmanager
    def waiting(self, queue_name: str) -> Iterator[None]:
        """A pop waits. Whoever closes the object looks here afterwards, so check it within."""
        with self._lock:
            self._waiting[queue_name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[queue_name] -= 1
                if not self._waiting[queue_name]:
                    del self._waiting[queue_name]

    def counts(self) -> dict[str, int]:
        """How many wait now."""
        with self._lock:
            return dict(self._waiting)
