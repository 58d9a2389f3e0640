"""Hearing what other processes store, by LISTEN."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg

from hypercube_queue.driver import Deadline
from hypercube_queue_sql._sockets import shut
from hypercube_queue_sql._wakeups import Wakeups
from hypercube_queue_sql._watchdog import watchdog

_log = logging.getLogger("hypercube_queue_sql")

#: Between two attempts to listen, in seconds: the first pause, and the longest.
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
#: The pause where a pooler lets nothing through, which will hardly change.
_POOLER_PAUSE = 300.0
#: How long a connection takes to come about, at most, in seconds.
_CONNECTING = 10.0
#: How long sending a notice may take, in seconds; a queue that is closed meanwhile waits for it.
_SENDING = 5.0
#: A connection that heard nothing for so long is asked whether it is still there, and has so long
#: to answer.
_SILENCE, _ANSWER = 2.0, 5.0
#: How long a notice that was sent takes to arrive, at most, in seconds.
_ARRIVAL = 10.0


def hint(queue_name: str, count: int) -> str:
    """What a notice says: how many messages were stored, and where."""
    return f"{count} {queue_name.encode().hex()}"


class NothingArrives(Exception):
    """A notice that was sent to the channel did not arrive."""


class Listener:
    """A thread with a connection of its own that passes on what it hears to the wake-ups.

    The connection may end at any time; another one is made. Whoever waits looks once when
    listening begins, since nobody heard what was stored before. Listening has begun when a notice
    has arrived: behind a pooler that gives out connections by the transaction LISTEN succeeds,
    and nothing ever comes.
    """

    def __init__(
        self,
        connect: Callable[[float], psycopg.Connection[Any]],
        notify: Callable[[Sequence[str], Deadline], None],
        channel: str,
        wakeups: Wakeups,
    ) -> None:
        """`connect` gives a connection of the listener's own within so many seconds.

        `notify` sends notices of these texts on another connection.
        """
        self._connect = connect
        self._notify = notify
        self._channel = channel
        self._wakeups = wakeups
        self._lock = threading.Lock()
        self._started = False
        #: Taken while a notice is sent.
        self._sending = threading.Lock()
        #: Whether what others store is heard at present.
        self.hears = False
        self._stopped = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None

    def start(self) -> None:
        """Begin to listen, unless it does; returns at once."""
        with self._lock:
            if not (self._started or self._stopped.is_set()):
                self._started = True
                threading.Thread(target=self._run, name="hypercube-listener", daemon=True).start()

    def stop(self) -> None:
        """Listen no more; the connection is closed soon after, and no notice is sent any more."""
        with self._lock:
            self._stopped.set()
            if self._connection is not None:
                self._cut(self._connection)
        with self._sending:
            pass

    def reconnect(self) -> None:
        """Listen on another connection than the present one."""
        with self._lock:
            if self._connection is not None:
                self._cut(self._connection)

    def _run(self) -> None:
        pause = _PAUSE
        while not self._stopped.is_set():
            try:
                with self._connected() as connection:
                    with self._watched(connection):
                        connection.execute(f"LISTEN {self._channel}")
                    self._hear(connection)
            except NothingArrives:
                pause = _POOLER_PAUSE
                _log.info(
                    "LISTEN has no effect on this connection, as behind a pooler in transaction "
                    "mode; waiting pops look for new messages every second instead, and listening "
                    "is tried again in %.0f s",
                    pause,
                )
            except Exception as error:  # noqa: BLE001 - waiting pops would be slow for good
                if self.hears:
                    pause = _PAUSE
                if not self._stopped.is_set():
                    _log.info(
                        "not listening for wake-ups, next attempt in %.1f s: %s",
                        pause,
                        type(error).__name__,
                    )
            finally:
                self.hears = False
            self._stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _connected(self) -> psycopg.Connection[Any]:
        connection = self._connect(_CONNECTING)
        with self._lock:
            self._connection = connection
            if self._stopped.is_set():
                self._cut(connection)
        connection.autocommit = True
        return connection

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        due: float | None = None
        while not self._stopped.is_set():
            if not self.hears and due is None:
                due = self._expect()
            silent = True
            for notice in connection.notifies(timeout=_SILENCE, stop_after=1):
                silent = False
                self._arrived(notice.payload)
            if not silent:
                continue
            with self._watched(connection):
                if not self.hears and due is not None and time.monotonic() > due:
                    # On the connection, most likely, that the pooler has lent for LISTEN.
                    connection.execute("UNLISTEN *")
                    raise NothingArrives
                connection.execute("SELECT 1")

    def _expect(self) -> float | None:
        """Send a notice; when it has to have arrived, None if it could not be sent."""
        try:
            with self._sending:
                if not self._stopped.is_set():
                    # No hint: whoever hears it as well passes it over.
                    self._notify(["listening"], Deadline(timedelta(seconds=_SENDING)))
        except Exception:  # noqa: BLE001 - others may use all connections; it is tried again
            return None
        return time.monotonic() + _ARRIVAL

    def _arrived(self, payload: str) -> None:
        if not self.hears:
            self.hears = True
            self._wakeups.wake_all()
        count, _, name = payload.partition(" ")
        # Anybody may send anything on a channel.
        with suppress(ValueError):
            self._wakeups.stored(bytes.fromhex(name).decode(), int(count))

    @contextmanager
    def _watched(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Cut the connection when it does not answer."""
        with watchdog.watch(_ANSWER) as watch:
            watch.cut = lambda: self._cut(connection)
            yield

    @staticmethod
    def _cut(connection: psycopg.Connection[Any]) -> None:
        with suppress(psycopg.Error):
            shut(connection.fileno())
