"""A worker process's end of the line to its supervisor."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable

#: What a process says. It works, so its application could be loaded.
READY = b"r"
#: It ends, and another one is to take its place.
REPLACE = b"n"
#: It ends since it has run `max_jobs`.
MAX_JOBS = b"m"
#: It ends since there is nothing more to do.
DONE = b"d"

#: How often a process looks for its parent where nothing tells of its end, in seconds.
_LOOK = 1.0


class Line:
    """Opened by its number, which the supervisor gave to this process."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        # What handlers start must not keep it open when this process has gone.
        self._socket.set_inheritable(False)
        self._parent = os.getppid()

    def ready(self) -> None:
        """The application is loaded and its work begins."""
        self._say(READY)

    def leave(self, reason: bytes) -> None:
        """The process ends soon, for a reason that says whether another one is wanted."""
        self._say(reason)

    def listen(self, signalled: Callable[[int, int], None], ended: Callable[[], None]) -> None:
        """Hear from the supervisor, in a thread of its own.

        Call `signalled` with each signal that it passes on and how many there have been, and
        `ended` once its process has ended without a word.
        """
        threading.Thread(
            target=self._listen, args=(signalled, ended), name="hypercube-line", daemon=True
        ).start()

    def _listen(self, signalled: Callable[[int, int], None], ended: Callable[[], None]) -> None:
        signals = 0
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                # A process that the supervisor forked may hold the line open when that has gone.
                watched = _pidfd(self._parent)
                if watched is not None:
                    selector.register(watched, selectors.EVENT_READ)
                while os.getppid() == self._parent:
                    selected = selector.select(None if watched is not None else _LOOK)
                    if any(key.fileobj is self._socket for key, _ in selected):
                        numbers = self._read()
                        if not numbers:
                            return
                        for number in numbers:
                            signals += 1
                            signalled(number, signals)
        finally:
            ended()

    def _read(self) -> bytes:
        try:
            return self._socket.recv(16)
        except OSError:
            return b""

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # `listen` tells
            self._socket.sendall(word)


def _pidfd(pid: int) -> int | None:
    """What becomes readable when a process ends; None where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, forbidden, or gone already
        return None
