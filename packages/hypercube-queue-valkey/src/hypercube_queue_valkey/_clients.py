"""The clients of one queue object: one for all calls, and one for each pop that waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from glide_sync import GlideClient, GlideClusterClient

AnyClient: TypeAlias = "GlideClient | GlideClusterClient"

#: An outage makes every call fail, and a new client for each of them would be too many.
_RENEWAL_SECONDS = 1.0


class _Used:
    """A client, and how many calls use it now: closing it under them would not be safe."""

    def __init__(self, client: AnyClient) -> None:
        self.client = client
        self.users = 0
        self.is_retired = False


class Clients:
    """Makes clients as they are needed, and closes those that it made.

    GLIDE sends everything of a client over one connection, so a command that blocks would stop
    the others: a waiting pop has a client of its own, which the next one uses after it.

    `make` gives a client that has not connected yet. `borrowed` is the caller's, and used for
    everything that does not block.
    """

    def __init__(self, make: Callable[[], AnyClient], borrowed: AnyClient | None = None) -> None:
        self._make = make
        self.borrowed = borrowed
        self._renewed_at = time.monotonic() - _RENEWAL_SECONDS
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked child does: GLIDE's threads are not there."""
        self._lock = threading.Lock()
        self._shared: _Used | None = None
        self._idle: list[_Used] = []
        self._busy: set[_Used] = set()

    @contextmanager
    def shared(self) -> Iterator[AnyClient]:
        """The client for all calls."""
        if self.borrowed is not None:
            yield self.borrowed
            return
        with self._lock:
            if self._shared is None:
                self._shared = _Used(self._make())
            used = self._shared
            used.users += 1
        try:
            yield used.client
        finally:
            with self._lock:
                used.users -= 1
                unused = used.is_retired and not used.users
            if unused:
                used.client.close()

    @contextmanager
    def own(self) -> Iterator[AnyClient]:
        """A client that nobody else uses meanwhile."""
        with self._lock:
            used = self._idle.pop() if self._idle else _Used(self._make())
            self._busy.add(used)
        try:
            yield used.client
        finally:
            with self._lock:
                self._busy.discard(used)
                if not used.is_retired:
                    self._idle.append(used)
            if used.is_retired:
                used.client.close()

    @property
    def is_renewal_due(self) -> bool:
        """Whether the last renewal was not a moment ago."""
        return time.monotonic() - self._renewed_at >= _RENEWAL_SECONDS

    def renew(self) -> None:
        """Use other clients from now on, unless that was done a moment ago."""
        with self._lock:
            if not self.is_renewal_due:
                return
            self._renewed_at = time.monotonic()
        self.retire()

    def retire(self) -> None:
        """Close all clients, as soon as nobody uses them."""
        with self._lock:
            unused, self._idle = self._idle, []
            for busy in self._busy:
                busy.is_retired = True
            if self._shared is not None:
                self._shared.is_retired = True
                if not self._shared.users:
                    unused.append(self._shared)
                self._shared = None
        for each in unused:
            each.client.close()
