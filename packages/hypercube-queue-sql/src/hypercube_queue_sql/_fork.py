"""No connection is open while the process forks.

SQLite keeps what it knows about a file's locks in the process. A child that inherits an open
connection believes to hold the parent's locks, even on connections of its own: the parent's
last close then removes the write-ahead log under the child, and what the child commits is
lost. Closing everything for the moment of the fork leaves nothing to inherit.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType

#: How long a fork waits for running calls, in seconds. They take milliseconds, unless another
#: process holds the database.
_PATIENCE = 2.0

_guards: weakref.WeakSet[ForkGuard] = weakref.WeakSet()


class ForkGuard:
    """Whoever uses a connection is inside: `with guard: ...`.

    During a fork nobody gets in, and `close_idle` is called as soon as all are out.
    """

    def __init__(self, close_idle: Callable[[], object]) -> None:
        self._close_idle = close_idle
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forks = 0
        #: In a child: a call was using a connection when the process was forked.
        self.torn = False
        _guards.add(self)

    def __enter__(self) -> None:
        with self._changed:
            while self._forks:
                self._changed.wait()
            self._inside += 1

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._inside -= 1
            if self._forks:
                self._changed.notify_all()

    def _before(self) -> None:
        with self._changed:
            self._forks += 1
            if self._changed.wait_for(lambda: not self._inside, _PATIENCE):
                self._close_idle()

    def _after_in_parent(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def _after_in_child(self) -> None:
        self.torn = self.torn or bool(self._inside)
        self._changed = threading.Condition(threading.Lock())
        self._inside = self._forks = 0


def _before() -> None:
    for guard in list(_guards):
        guard._before()


def _after_in_parent() -> None:
    for guard in list(_guards):
        guard._after_in_parent()


def _after_in_child() -> None:
    for guard in list(_guards):
        guard._after_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
