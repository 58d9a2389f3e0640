"""Looking at a client's connection from beneath, where its library has no word for it."""

from __future__ import annotations

import select
import socket
import sys
from contextlib import suppress


def shut(descriptor: int) -> None:
    """End a TCP connection that another thread may be waiting on; that one gets an error.

    Unlike closing, this leaves the descriptor to its owner.
    """
    # A duplicate, because the object closes what it has when it goes.
    with suppress(OSError), socket.socket(fileno=socket.dup(descriptor)) as twin:
        twin.shutdown(socket.SHUT_RDWR)


def has_ended(descriptor: int) -> bool:
    """Whether an idle connection has: there is something to read, though nobody asked anything.

    That is the end of the stream, or the server's last words before it.
    """
    if descriptor < 0:
        return True
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    # Unlike `select` it takes any number.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
