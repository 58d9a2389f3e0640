"""A worker process's end of the line to its supervisor."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

#: What a process says: it works, so its application could be loaded; and it leaves, but not
#: for want of jobs, so that another one is to take its place.
READY = b"r"
REPLACE = b"n"


class Line:
    """Opened by its number, which the supervisor gave to this process."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        # What handlers start must not keep it open when this process has gone.
        self._socket.set_inheritable(False)

    def ready(self) -> None:
        """The application is loaded, its queues are reached, and its work begins."""
        self._say(READY)

    def replace_me(self) -> None:
        """The process leaves, and another one is wanted."""
        self._say(REPLACE)

    def on_end(self, act: Callable[[], None]) -> None:
        """Call `act`, in a thread of its own, when the supervisor has gone without a word."""
        threading.Thread(
            target=self._listen, args=(act,), name="hypercube-line", daemon=True
        ).start()

    def _listen(self, act: Callable[[], None]) -> None:
        while self._read():
            pass
        act()

    def _read(self) -> bytes:
        try:
            return self._socket.recv(1)
        except OSError:
            return b""

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # `on_end` is told
            self._socket.sendall(word)
