"""A TCP relay between a test and a server, which can fall silent and hang up.

A thread for each direction of each connection; for tests, where there are dozens, not thousands.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

#: Seconds for the server to take a connection.
_PATIENCE = 10.0


class _Connection:
    """What belongs to one connection of a client."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        #: Something was said that never arrived, so nothing that follows may.
        self.lost = False
        #: The client hung up while nobody could tell the server.
        self.left = False
        #: Whether it was tried to lead it to the server.
        self.led = threading.Event()

    def hang_up(self) -> None:
        for end in (self.client, self.server):
            if end is not None:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.client.close()
        if self.server is not None:
            self.server.close()


class Relay:
    """Listens on `host` and `port`, and leads to a server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._cut = False
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.host, self.port = self._listener.getsockname()[:2]
        self._begin(self._accept)

    def cut(self) -> None:
        """Go silent: what either side says is lost, new connections get no answer.

        The server is not told of clients that hang up meanwhile.
        """
        with self._lock:
            self._cut = True

    def lead_to(self, host: str, port: int) -> None:
        """Lead new connections to another server, as a forwarder does after a failover.

        Those that are open stay where they are.
        """
        with self._lock:
            self._target = (host, port)

    def mend(self) -> None:
        """Work again. A connection that lost something stays silent for good, as after a cut."""
        with self._lock:
            self._cut = False
            connections = list(self._connections)
        for connection in connections:
            if connection.left:
                connection.hang_up()
            elif not connection.lost and not connection.led.is_set():
                self._begin(self._lead, connection)

    def drop(self) -> None:
        """Close all connections at once; new ones are served."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.hang_up()

    def close(self) -> None:
        """Stop listening, and drop."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._cut = False
        self.drop()
        for thread in self._threads:
            thread.join(_PATIENCE)
        for connection in self._connections:
            connection.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            connection = _Connection(client)
            with self._lock:
                self._connections.add(connection)
                cut = self._cut
            if not cut:
                self._begin(self._lead, connection)
            self._begin(self._forward, connection)

    def _lead(self, connection: _Connection) -> None:
        """Connect it to the server, and hand back what that says."""
        with self._lock:
            target = self._target
        try:
            connection.server = socket.create_connection(target, _PATIENCE)
        except OSError:
            connection.hang_up()
            return
        finally:
            connection.led.set()
        connection.server.settimeout(None)
        self._begin(self._back, connection, connection.server)

    def _forward(self, connection: _Connection) -> None:
        while data := _received(connection.client):
            if self._passes(connection) and connection.led.wait(_PATIENCE) and connection.server:
                _send(connection.server, data)
        with self._lock:
            connection.left = self._cut
        if not connection.left:
            connection.hang_up()

    def _back(self, connection: _Connection, server: socket.socket) -> None:
        while data := _received(server):
            if self._passes(connection):
                _send(connection.client, data)
        with self._lock:
            connection.lost |= self._cut
        if not connection.lost:
            connection.hang_up()

    def _passes(self, connection: _Connection) -> bool:
        with self._lock:
            connection.lost |= self._cut
            return not connection.lost


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(65_536)
    except OSError:
        return b""


def _send(end: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        end.sendall(data)
