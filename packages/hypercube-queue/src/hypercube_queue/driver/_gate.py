"""Admission to a driver object: open, closed, or inherited through a fork."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Literal

from hypercube_queue._errors import QueueClosed

_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


class Gate:
    """Every operation runs inside it: `with self._gate: ...`.

    After `close` entering raises QueueClosed (LIFE-1); operations that are inside finish, and
    `wait_until_empty` waits for them.

    In a forked child the first entry calls `in_child`, which opens what the child needs of
    its own, or raises (then each entry calls it again). Without `in_child`, entering raises
    QueueClosed that names fork (LIFE-4). Locks a driver holds itself may be taken forever in
    the child: `in_child` makes new ones.
    """

    def __init__(self, name: str, *, in_child: Callable[[], None] | None = None) -> None:
        self._name = name
        self._in_child = in_child
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._closed = False
        self._inherited = False
        _gates.add(self)

    @property
    def closed(self) -> bool:
        """True once `close` was called; operations inside may still be running."""
        return self._closed

    def check(self) -> None:
        """Raise QueueClosed if it is closed: what a waiting pop does each time it wakes."""
        if self._closed:
            raise QueueClosed(f"this {self._name} is closed; open another one")

    def __enter__(self) -> None:
        with self._changed:
            self.check()
            if self._inherited:
                self._enter_in_child()
            self._inside += 1

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        with self._changed:
            self._inside -= 1
            if self._closed and not self._inside:
                self._changed.notify_all()
        return False

    def close(self) -> bool:
        """Let nothing in from now on. True for the first call, False for all others."""
        with self._changed:
            first = not self._closed
            self._closed = True
            return first

    def wait_until_empty(self, limit: timedelta) -> bool:
        """Wait until every operation has left; False if some have not by `limit`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._inside, limit.total_seconds())

    def _enter_in_child(self) -> None:
        if self._in_child is None:
            raise QueueClosed(
                f"this {self._name} belongs to the process that this one was forked from; open "
                "one after the fork"
            )
        self._in_child()
        self._inherited = False

    def _after_fork(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._inherited = True


def _after_fork_in_child() -> None:
    for gate in list(_gates):
        gate._after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
