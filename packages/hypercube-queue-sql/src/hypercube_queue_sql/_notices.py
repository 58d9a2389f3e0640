"""Telling other processes what was stored, but not each time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

#: How many notices a queue may have at once, and how many more each second. Each takes a lock
#: that all of the server's transactions share.
_BURST = 5
_PER_SECOND = 5.0
#: Queues whose notices are counted; of more of them all start anew.
_MOST_QUEUES = 10_000


class Notices:
    """Sends notices about queues by `send_all`, a few a second for each queue.

    What comes too soon after others is sent together with what follows, a fifth of a second
    later at most. A notice is a hint: one that cannot be sent costs whoever waits a look at
    the database.
    """

    def __init__(self, send_all: Callable[[Mapping[str, int]], None]) -> None:
        self._send_all = send_all
        self._lock = threading.Lock()
        #: Taken while what was held back is sent.
        self._turn = threading.Lock()
        #: Per queue: how many notices it may have at once, and since when.
        self._allowed: dict[str, tuple[float, float]] = {}
        self._held_back: Counter[str] = Counter()
        self._sending = False

    def allows(self, queue_name: str) -> bool:
        """Whether a notice about the queue may be sent now; if so, it counts as sent."""
        with self._lock:
            return self._takes(queue_name)

    def send(self, queue_name: str, count: int) -> None:
        """Say that `count` messages were stored, now or soon."""
        with self._lock:
            if not self._takes(queue_name):
                self._held_back[queue_name] += count
                if not self._sending:
                    self._sending = True
                    threading.Thread(
                        target=self._send_held_back, name="hypercube-notices", daemon=True
                    ).start()
                return
        self._try({queue_name: count})

    def flush(self) -> None:
        """Send what is held back; for the end, after which nobody may use the connections.

        What another thread is sending at the moment has been sent, too, on return.
        """
        with self._turn:
            with self._lock:
                held_back, self._held_back = self._held_back, Counter()
            if held_back:
                self._try(held_back)

    def _takes(self, queue_name: str, *, anyway: bool = False) -> bool:
        now = time.monotonic()
        left, since = self._allowed.get(queue_name, (float(_BURST), now))
        left = min(_BURST, left + (now - since) * _PER_SECOND)
        if left < 1 and not anyway:
            return False
        if len(self._allowed) >= _MOST_QUEUES:
            self._allowed.clear()
        self._allowed[queue_name] = (left - 1, now)
        return True

    def _send_held_back(self) -> None:
        while True:
            time.sleep(1 / _PER_SECOND)
            with self._lock:
                if not self._held_back:
                    self._sending = False
                    return
                for queue_name in self._held_back:
                    self._takes(queue_name, anyway=True)
            self.flush()

    def _try(self, counts: Mapping[str, int]) -> None:
        with suppress(Exception):  # whatever it was, what was stored is stored
            self._send_all(counts)
