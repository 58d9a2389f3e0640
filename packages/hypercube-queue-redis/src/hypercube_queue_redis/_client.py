"""Script calls to whichever server has their keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast

from redis import ConnectionPool
from redis.exceptions import AuthenticationError, MaxConnectionsError
from redis.exceptions import TimeoutError as RedisTimeoutError

from hypercube_queue import BackendError, QueueError
from hypercube_queue.driver import Deadline
from hypercube_queue_lua import WRONG_SERVER, Call, Reply
from hypercube_queue_redis._errors import CLIENT_ERRORS, code_of, redirection, translation
from hypercube_queue_redis._nodes import Nodes
from hypercube_queue_redis._trip import Command, NotSent, Trip

#: How long a call is sent to other nodes before the cluster is said to be in disorder: while a
#: queue moves, both servers refuse it, which takes a second or two; a failover takes longer.
_PATIENCE = timedelta(seconds=5)
#: How long to leave a cluster alone that is in disorder, in seconds: at first, and at most.
_PAUSE = 0.05
_LONGEST_PAUSE = 0.5

#: Says to a waiting pop that its server is another one's replica now.
_UNBLOCKED = "UNBLOCKED"
#: Replies of a cluster that send a request elsewhere, or to the same place a moment later.
_REDIRECTIONS = frozenset({"ASK", "MOVED", "TRYAGAIN"})


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


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came back for a request, and the pool that leads to who said it."""

    request: _Request
    reply: object
    pool: ConnectionPool | None = None


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
        #: Somebody said that a queue is elsewhere, or does not serve it.
        self._is_outdated = False

    def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
        replies: list[Reply | QueueError] = [None] * len(calls)
        requests = [_Request(index, call) for index, call in enumerate(calls)]
        patience = Deadline(_PATIENCE)
        turns = 0
        while requests:
            again = []
            for answer in self._round_trip(requests, end):
                other = None
                if isinstance(answer.reply, Exception):
                    self._learn(answer.reply, answer.pool)
                    if not (end.passed or patience.passed):
                        other = self._elsewhere(answer, turns)
                if other is None:
                    replies[answer.request.index] = self._result(answer.reply)
                else:
                    again.append(other)
            requests = again
            turns += 1
            if requests and turns > 1:
                # Servers that move a queue, or take over from another, need a moment.
                pause = min(_PAUSE * 2 ** (turns - 2), _LONGEST_PAUSE)
                time.sleep(min(pause, end.seconds_left()))
        return replies

    def block(self, keys: tuple[bytes, ...], seconds: float, end: Deadline) -> None:
        pool = trip = None
        try:
            pool = self._nodes(end).pool(keys[0])
            trip = Trip(pool, [(b"BLPOP", *keys, seconds)], end)
            reply = trip.read()
        except NotSent as error:
            self._learn(error, pool)
            raise translation(error.cause, self._place, sent=False, cluster=self._is_cluster) from (
                error.cause
            )
        except CLIENT_ERRORS as error:
            self._learn(error, pool)
            raise translation(
                error, self._place, sent=trip is not None, cluster=self._is_cluster
            ) from error
        finally:
            if trip is not None:
                trip.close()
        if isinstance(reply, CLIENT_ERRORS):
            code = code_of(reply)
            if code != _UNBLOCKED and code not in WRONG_SERVER | _REDIRECTIONS:
                raise translation(reply, self._place, sent=True, cluster=self._is_cluster)
            # The look that follows finds the right server, or tells what is wrong with this one.
            self._learn(reply, pool)
            time.sleep(min(_PAUSE, seconds, end.seconds_left()))

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

    @property
    def _is_cluster(self) -> bool:
        return self._made is not None and self._made.can_change

    def _nodes(self, end: Deadline) -> Nodes:
        """Raises a client error where a cluster has to be asked and does not answer."""
        if not self._making.acquire(timeout=end.seconds_left()):
            raise RedisTimeoutError("another call still waits to learn which server to ask")
        try:
            if self._made is None:
                self._made = self._make()
                self._is_outdated = self._made.can_change
            if self._is_outdated:
                self._made.refresh(end)
                self._is_outdated = False
            return self._made
        finally:
            self._making.release()

    def _round_trip(self, requests: list[_Request], end: Deadline) -> list[_Answer]:
        """Each request with its reply or error: all are sent before any reply is read."""
        by_pool: dict[ConnectionPool, list[_Request]] = {}
        try:
            nodes = self._nodes(end)
            for request in requests:
                pool = request.asked or nodes.pool(request.call.keys[0])
                by_pool.setdefault(pool, []).append(request)
        except CLIENT_ERRORS as error:
            return [_Answer(request, NotSent(error)) for request in requests]
        answered: list[_Answer] = []
        trips: list[tuple[Trip, ConnectionPool, list[_Request]]] = []
        try:
            for pool, group in by_pool.items():
                commands = [command for request in group for command in request.commands]
                try:
                    trips.append((Trip(pool, commands, end), pool, group))
                except (NotSent, *CLIENT_ERRORS) as error:
                    answered += [_Answer(request, error, pool) for request in group]
            for trip, pool, group in trips:
                answered += [
                    _Answer(request, reply, pool)
                    for request, reply in zip(group, _replies(trip, group), strict=True)
                ]
        finally:
            for trip, _, _ in trips:
                trip.close()
        return answered

    def _learn(self, error: Exception, pool: ConnectionPool | None) -> None:
        """Take from an error what it says of the servers."""
        code = code_of(error)
        if code in ("", _UNBLOCKED) or code in WRONG_SERVER:
            cause = error.cause if isinstance(error, NotSent) else error
            if isinstance(cause, MaxConnectionsError):
                return  # that is the pool, and no server
            if self._made is not None and pool is not None:
                self._made.doubt(pool)
            self._is_outdated = True
        elif code == "MOVED" and self._made is not None and pool is not None:
            self._made.moved(*redirection(error, pool))
            self._is_outdated = True

    def _elsewhere(self, answer: _Answer, turns: int) -> _Request | None:
        """The request as it should be sent once more; None where the error is the answer.

        Only what no server has run is sent again.
        """
        request, error = answer.request, cast("Exception", answer.reply)
        code = code_of(error)
        if code == "NOSCRIPT":
            return replace(request, with_source=True)
        if not self._is_cluster:
            # The connection is closed, and the next one may lead to another server.
            return request if code in WRONG_SERVER and not turns else None
        if code == "ASK" and self._made is not None and answer.pool is not None:
            _, address = redirection(error, answer.pool)
            return replace(request, asked=self._made.pool_at(address))
        if isinstance(error, NotSent):
            refused = isinstance(error.cause, AuthenticationError | MaxConnectionsError)
            return None if refused else replace(request, asked=None)
        if code in WRONG_SERVER or code in _REDIRECTIONS:
            return replace(request, asked=None)
        return None

    def _result(self, reply: object) -> Reply | QueueError:
        if isinstance(reply, NotSent):
            return translation(reply.cause, self._place, sent=False, cluster=self._is_cluster)
        if isinstance(reply, CLIENT_ERRORS):
            return translation(reply, self._place, sent=True, cluster=self._is_cluster)
        return cast("Reply", reply)


def _replies(trip: Trip, requests: list[_Request]) -> list[object]:
    """A reply or an error for each of the requests."""
    replies: list[object] = []
    try:
        for request in requests:
            if request.asked is not None:
                trip.read()
            replies.append(trip.read())
    except CLIENT_ERRORS as error:
        replies += [error] * (len(requests) - len(replies))
    return replies
