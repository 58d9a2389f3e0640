"""Hearing what other processes store, by LISTEN."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from hypercube_queue_sql._sockets import shut
from hypercube_queue_sql._wakeups import Wakeups
from hypercube_queue_sql._watchdog import watchdog

_log = logging.getLogger("hypercube_queue_sql")

#: Between two attempts to listen, in seconds: the first pause, and the longest.
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
#: A connection that heard nothing for so long is asked whether it is still there, and has as
#: long to answer.
_SILENCE = 15.0


def hint(queue_name: str, count: int) -> str:
    """What a notice says: how many messages were stored, and where."""
    return f"{count} {queue_name.encode().hex()}"


class Listener:
    """A thread with a connection of its own that passes on what it hears to the wake-ups.

    The connection may end at any time; another one is made. Whoever waits looks once when
    listening begins, since nobody heard what was stored before.
    """

    def __init__(
        self,
        connect: Callable[[float], psycopg.Connection[Any]],
        channel: str,
        wakeups: Wakeups,
    ) -> None:
        """`connect` gives a connection of the listener's own within so many seconds."""
        self._connect = connect
        self._channel = channel
        self._wakeups = wakeups
        self._lock = threading.Lock()
        self._started = False
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
        """Listen no more; the connection is closed soon after."""
        with self._lock:
            self._stopped.set()
            if self._connection is not None:
                self._cut(self._connection)

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
                    connection.execute(f"LISTEN {self._channel}")
                    self.hears = True
                    self._wakeups.wake_all()
                    pause = _PAUSE
                    self._hear(connection)
            except Exception as error:  # noqa: BLE001 - waiting pops would be slow for good
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
        connection = self._connect(_SILENCE)
        with self._lock:
            self._connection = connection
            if self._stopped.is_set():
                self._cut(connection)
        connection.autocommit = True
        return connection

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        while not self._stopped.is_set():
            silent = True
            for notice in connection.notifies(timeout=_SILENCE, stop_after=1):
                silent = False
                self._pass_on(notice.payload)
            if silent:
                with watchdog.watch(_SILENCE) as watch:
                    watch.cut = lambda: self._cut(connection)
                    connection.execute("SELECT 1")

    def _pass_on(self, payload: str) -> None:
        count, _, name = payload.partition(" ")
        # Anybody may send anything on a channel.
        with suppress(ValueError):
            self._wakeups.stored(bytes.fromhex(name).decode(), int(count))

    @staticmethod
    def _cut(connection: psycopg.Connection[Any]) -> None:
        with suppress(psycopg.Error):
            shut(connection.fileno())
