"""Commands to one server and their replies, on one connection.

The connection is taken from the client's pool and used directly. The client's own commands
repeat a request whose answer was lost, and a repeated settlement would find itself stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from redis import Connection, ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import SentinelManagedConnection

from hypercube_queue.driver import Deadline
from hypercube_queue_lua import WRONG_SERVER
from hypercube_queue_redis._errors import CLIENT_ERRORS, code_of

Command: TypeAlias = "tuple[bytes | int | float | str, ...]"

#: Short requests go in one piece. Copying a long one would take longer than a second send.
_ONE_PIECE_BYTES = 256 * 1024


class NotSent(Exception):
    """No connection, so the server has received nothing. The cause is redis-py's."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Trip:
    """A request that was sent, whose replies are to be read: `with Trip(...) as trip`."""

    def __init__(self, pool: ConnectionPool, commands: Sequence[Command], end: Deadline) -> None:
        """Send the commands; raises NotSent, or a client error when some of it may have arrived."""
        self._pool = pool
        self._end = end
        self._is_wrong_server = False
        try:
            if end.passed:
                raise RedisTimeoutError("the time for the call was over before it was sent")
            # Redis-py types its connections only in part.
            self._connection = cast("Any", pool.get_connection())
        except CLIENT_ERRORS as error:
            raise NotSent(error) from error
        self._unread = len(commands)
        try:
            self._limit()
            pieces: list[bytes] = self._connection.pack_commands(commands)
            if sum(map(len, pieces)) <= _ONE_PIECE_BYTES:
                pieces = [b"".join(pieces)]
            self._connection.send_packed_command(pieces, check_health=False)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Trip:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> object:
        """The next reply; an error reply is returned, any other client error raised."""
        self._limit()
        reply: object
        try:
            reply = self._reply()
        except (ResponseError, RedisConnectionError) as error:
            code = code_of(error)
            if not code and not isinstance(error, ResponseError):
                raise
            reply = error
            self._is_wrong_server |= code in WRONG_SERVER
        self._unread -= 1
        return reply

    def close(self) -> None:
        """Give the connection back.

        One with unread replies is of no use to anybody, and one to a server that refuses to
        serve would meet the same refusal for as long as that server lives.
        """
        if self._unread or self._is_wrong_server:
            self._connection.disconnect()
        elif self._connection._sock is not None:
            self._connection._sock.settimeout(self._connection.socket_timeout)
        self._pool.release(self._connection)

    def _reply(self) -> object:
        if isinstance(self._connection, SentinelManagedConnection):
            # Its own method turns READONLY into a lost connection, with an unknown outcome.
            return Connection.read_response(self._connection, disconnect_on_error=False)
        return self._connection.read_response(disconnect_on_error=False)

    def _limit(self) -> None:
        # Redis-py has a time limit per connection, and none for a request.
        if self._connection._sock is not None:
            self._connection._sock.settimeout(max(self._end.seconds_left(), 0.001))
