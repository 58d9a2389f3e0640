"""Who knows which ids are taken: SQS does not."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from hypercube_queue.driver import checked_count, checked_visibility

#: What a store says to an id: it is the caller's now; another push of it is under way; it is taken.
IDState: TypeAlias = Literal["reserved", "pending", "stored"]


@runtime_checkable
class IDStore(Protocol):
    """Keeps the ids of retained messages, so that `push` can refuse them (PUSH-4).

    A reservation is pending until its message was stored: a producer that crashes in between
    leaves nothing that would refuse the repeated push. `queue` identifies a queue anywhere;
    `holder` is one push. Methods serve any number of threads, end in the time limits of the
    store's own client, and raise `QueueError`. Each may be repeated.
    """

    def reserve(
        self, queue: str, ids: Sequence[str], holder: str, pending_for: timedelta
    ) -> Mapping[str, IDState]:
        """Reserve what is free, for a holder that has so long to store the messages.

        A pending reservation is free again after `pending_for`.
        """
        ...

    def confirm(self, queue: str, ids: Sequence[str], holder: str, keep_for: timedelta) -> None:
        """These messages are stored: refuse their ids from now on, for `keep_for` at most.

        Does nothing for an id that the holder has no more: its message was acknowledged already.
        """
        ...

    def cancel(self, queue: str, ids: Sequence[str], holder: str) -> None:
        """These messages were not stored: give back what the holder has pending."""
        ...

    def release(self, queue: str, ids: Sequence[str]) -> None:
        """These messages are gone, so their ids are free again."""
        ...


class ProcessIDStore:
    """Knows what was pushed and acknowledged in this process, for a short time.

    A message that another process acknowledges is not noticed here, so an id is refused for
    `keep_for` at most, and only the newest `capacity` of them are kept.
    """

    def __init__(
        self, *, keep_for: timedelta = timedelta(minutes=5), capacity: int = 100_000
    ) -> None:
        self._keep_for = checked_visibility(keep_for, field="keep_for")
        self._capacity = checked_count("capacity", capacity)
        self._lock = threading.Lock()
        #: Holder, whether it is stored, and until when; the oldest first.
        self._taken: OrderedDict[tuple[str, str], tuple[str, bool, float]] = OrderedDict()
        _stores.add(self)

    def reserve(
        self, queue: str, ids: Sequence[str], holder: str, pending_for: timedelta
    ) -> Mapping[str, IDState]:
        """See `IDStore.reserve`."""
        states: dict[str, IDState] = {}
        now = time.monotonic()
        with self._lock:
            for id in ids:
                had = self._taken.get((queue, id))
                if had is not None and had[0] != holder and had[2] > now:
                    states[id] = "stored" if had[1] else "pending"
                    continue
                self._put((queue, id), (holder, False, now + pending_for.total_seconds()))
                states[id] = "reserved"
        return states

    def confirm(self, queue: str, ids: Sequence[str], holder: str, keep_for: timedelta) -> None:
        """See `IDStore.confirm`; an id is kept for `keep_for` of the store at most."""
        until = time.monotonic() + min(keep_for, self._keep_for).total_seconds()
        with self._lock:
            for id in ids:
                had = self._taken.get((queue, id))
                if had is not None and had[0] == holder:
                    self._put((queue, id), (holder, True, until))

    def cancel(self, queue: str, ids: Sequence[str], holder: str) -> None:
        """See `IDStore.cancel`."""
        with self._lock:
            for id in ids:
                had = self._taken.get((queue, id))
                if had is not None and had[0] == holder and not had[1]:
                    del self._taken[queue, id]

    def release(self, queue: str, ids: Sequence[str]) -> None:
        """See `IDStore.release`."""
        with self._lock:
            for id in ids:
                self._taken.pop((queue, id), None)

    def _put(self, key: tuple[str, str], entry: tuple[str, bool, float]) -> None:
        self._taken[key] = entry
        self._taken.move_to_end(key)
        now = time.monotonic()
        while self._taken:
            oldest = next(iter(self._taken))
            if len(self._taken) <= self._capacity and self._taken[oldest][2] > now:
                break
            del self._taken[oldest]

    def _after_fork(self) -> None:
        # It may be taken by a thread that is not here.
        self._lock = threading.Lock()


_stores: weakref.WeakSet[ProcessIDStore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork_in_child)

#: The one that all queue objects of a process share unless told otherwise.
PROCESS_IDS = ProcessIDStore()
