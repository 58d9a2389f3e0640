"""Script calls to whichever server has their keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from redis import ConnectionPool
from redis.exceptions import AskError, ResponseError

from hypercube_queue import BackendError, QueueError
from hypercube_queue.driver import Deadline
from hypercube_queue_lua import Call, Reply
from hypercube_queue_redis._errors import CLIENT_ERRORS, code_of, translation
from hypercube_queue_redis._nodes import Nodes
from hypercube_queue_redis._trip import Command, NotSent, Trip

#: How often a call is sent elsewhere before the cluster is said to be in disorder. While a queue
#: moves, both servers refuse it, which takes a second or two.
_MOST_TURNS = 100
#: How long to leave a cluster alone that is moving a queue, in seconds.
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class _Request:
    """One call on its way."""

    index: int
    call: Call
    #: The server needs the script itself.
    with_source: bool = False
    #: Who is to be asked while the queue is moving, instead of the one who has the key.
    asked: ConnectionPool | None = None

    @property
    def commands(self) -> list[Command]:
        """What to send; the reply to the last one counts."""
        script, keys = self.call.script, self.call.keys
        how = (b"EVAL", script.source) if self.with_source else (b"EVALSHA", script.sha)
        run = (*how, len(keys), *keys, *self.call.args)
        return [run] if self.asked is None else [(b"ASKING",), run]


class RedisClient:
    """The `Client` of hypercube_queue_lua, over redis-py.

    `make` gives the nodes, at the first call, and of a client that is ours again in a forked
    child; `place` is what error texts call the server.
    """

    def __init__(self, make: Callable[[], Nodes], place: str, *, owned: bool) -> None:
        self._make = make
        self._place = place
        self._owned = owned
        self._making = threading.Lock()
        self._made: Nodes | None = None
        #: Somebody said that a queue is elsewhere, or does not answer.
        self._is_outdated = False

    def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
        replies: list[Reply | QueueError] = [None] * len(calls)
        requests = [_Request(index, call) for index, call in enumerate(calls)]
        turns = 0
        while requests:
            again = []
            for request, reply in self._round_trip(requests, end):
                other = None
                if isinstance(reply, Exception) and turns < _MOST_TURNS and not end.passed:
                    other = self._elsewhere(request, reply)
                if other is None:
                    replies[request.index] = self._result(reply)
                else:
                    again.append(other)
            requests = again
            turns += 1
            if requests and turns > 1:
                # Servers that move a queue, or take over from another, need a moment.
                time.sleep(min(_PAUSE, end.seconds_left()))
        return replies

    def block(self, keys: tuple[bytes, ...], seconds: float, end: Deadline) -> None:
        trip = None
        try:
            trip = Trip(self._nodes().pool(keys[0]), [(b"BLPOP", *keys, seconds)], end)
            reply = trip.read()
            if isinstance(reply, ResponseError) and code_of(reply) not in ("MOVED", "UNBLOCKED"):
                raise reply
        except NotSent as error:
            self._is_outdated = True
            raise translation(error.cause, self._place, sent=False) from error.cause
        except CLIENT_ERRORS as error:
            raise translation(error, self._place, sent=trip is not None) from error
        finally:
            if trip is not None:
                trip.close()

    def in_child(self) -> None:
        if not self._owned:
            raise BackendError(
                f"{self._place}: the client belongs to the process that this one was forked "
                "from; make a client and a queue after the fork, or open the queue by URL"
            )
        # The parent's connections are left as they are: their other end is the parent's.
        self._making = threading.Lock()
        self._made = None

    def close(self) -> None:
        if self._owned and self._made is not None:
            self._made.close()

    def _nodes(self) -> Nodes:
        """Raises a client error where a cluster has to be asked and does not answer."""
        with self._making:
            if self._made is None:
                self._made = self._make()
            elif self._is_outdated:
                self._made.refresh()
            self._is_outdated = False
            return self._made

    def _round_trip(self, requests: list[_Request], end: Deadline) -> list[tuple[_Request, object]]:
        """Each request with its reply or error: all are sent before any reply is read."""
        by_pool: dict[ConnectionPool, list[_Request]] = {}
        try:
            nodes = self._nodes()
            for request in requests:
                pool = request.asked or nodes.pool(request.call.keys[0])
                by_pool.setdefault(pool, []).append(request)
        except CLIENT_ERRORS as error:
            return [(request, NotSent(error)) for request in requests]
        answered: list[tuple[_Request, object]] = []
        trips: list[tuple[Trip, list[_Request]]] = []
        try:
            for pool, group in by_pool.items():
                commands = [command for request in group for command in request.commands]
                try:
                    trips.append((Trip(pool, commands, end), group))
                except (NotSent, *CLIENT_ERRORS) as error:
                    answered += [(request, error) for request in group]
            for trip, group in trips:
                answered += _replies(trip, group)
        finally:
            for trip, _ in trips:
                trip.close()
        return answered

    def _elsewhere(self, request: _Request, error: Exception) -> _Request | None:
        """The request as it should be sent once more; None where the error is the answer.

        Only what no server has run is sent again.
        """
        code = code_of(error)
        if code == "NOSCRIPT":
            return replace(request, with_source=True)
        if self._made is None or not self._made.can_change:
            return None
        if isinstance(error, AskError):
            return replace(request, asked=self._made.pool_at(error.host, error.port))
        if isinstance(error, NotSent) or code in ("MOVED", "TRYAGAIN"):
            self._is_outdated = code != "TRYAGAIN"
            return replace(request, asked=None)
        return None

    def _result(self, reply: object) -> Reply | QueueError:
        if isinstance(reply, NotSent):
            return translation(reply.cause, self._place, sent=False)
        if isinstance(reply, CLIENT_ERRORS):
            return translation(reply, self._place, sent=True)
        return cast("Reply", reply)


def _replies(trip: Trip, requests: list[_Request]) -> list[tuple[_Request, object]]:
    answered: list[tuple[_Request, object]] = []
    try:
        for request in requests:
            if request.asked is not None:
                trip.read()
            answered.append((request, trip.read()))
    except CLIENT_ERRORS as error:
        answered += [(request, error) for request in requests[len(answered) :]]
    return answered
