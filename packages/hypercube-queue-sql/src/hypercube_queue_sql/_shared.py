"""What the queue objects of one process share when they use the same database."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from weakref import WeakValueDictionary

from hypercube_queue_sql._wakeups import Wakeups


class Shared:
    """The wake-ups of a database, and the turn to write where it takes one writer at a time."""

    def __init__(self) -> None:
        self.wakeups = Wakeups()
        #: Threads that wait here are woken the moment it is their turn; in the database they
        #: would ask again and again.
        self.turn = threading.Lock()


_known: WeakValueDictionary[Hashable, Shared] = WeakValueDictionary()
_lock = threading.Lock()


def shared_by(database: Hashable) -> Shared:
    """What all queue objects over this database share; it lives as long as one of them."""
    with _lock:
        found = _known.get(database)
        if found is None:
            found = _known[database] = Shared()
        return found


def _forget() -> None:
    """In a forked child: any of the locks may be taken by a thread that is not here."""
    global _lock
    _known.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget)
