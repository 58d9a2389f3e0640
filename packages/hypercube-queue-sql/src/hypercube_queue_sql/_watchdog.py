"""Cutting calls that have run out of time: clients of databases wait for ever (ERR-5)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watch:
    """A call, the moment at which its time is over, and how to end it then."""

    __slots__ = ("at", "cut", "fired")

    def __init__(self, at: float) -> None:
        #: On the monotonic clock, in seconds.
        self.at = at
        #: Ends what the call waits for; it must not wait itself. None while there is nothing.
        self.cut: Callable[[], object] | None = None
        #: Whether time was over before the call was.
        self.fired = False


class Watchdog:
    """Watches any number of calls with one thread, which ends when there are none."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._watches: set[Watch] = set()
        #: When the thread looks again.
        self._looks_at = 0.0
        self._running = False

    @contextmanager
    def watch(self, seconds: float) -> Iterator[Watch]:
        """Call the `cut` of the watch when the block takes longer.

        A block that has ended is never cut.
        """
        watch = Watch(time.monotonic() + seconds)
        with self._changed:
            self._watches.add(watch)
            if not self._running:
                self._running = True
                self._looks_at = watch.at
                threading.Thread(target=self._run, name="hypercube-watchdog", daemon=True).start()
            elif watch.at < self._looks_at:
                self._changed.notify()
        try:
            yield watch
        finally:
            with self._changed:
                self._watches.discard(watch)

    def _run(self) -> None:
        with self._changed:
            while self._watches:
                now = time.monotonic()
                for watch in [each for each in self._watches if each.at <= now]:
                    self._watches.discard(watch)
                    watch.fired = True
                    if watch.cut is not None:
                        watch.cut()
                # Not woken by calls that end in time, which nearly all do: it would cost each of
                # them a change of threads.
                self._looks_at = min((each.at for each in self._watches), default=now)
                if self._watches:
                    self._changed.wait(self._looks_at - now)
            self._running = False


#: One for the process.
watchdog = Watchdog()


def _after_fork_in_child() -> None:
    # The object stays, because others have imported it.
    watchdog.__init__()  # type: ignore[misc]  # as new: the thread is not here


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
