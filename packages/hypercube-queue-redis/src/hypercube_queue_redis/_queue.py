"""The driver object."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from redis import Redis, RedisCluster

from hypercube_queue import InvalidArgument
from hypercube_queue_lua import DEFAULT_PREFIX, LuaQueue, Options
from hypercube_queue_redis._client import RedisClient
from hypercube_queue_redis._nodes import ClusterNodes, Nodes, OneServer

_KIND = "Redis queue"


class RedisQueue(LuaQueue):
    """A queue on Redis or Valkey, through a client of redis-py's: `Redis` or `RedisCluster`.

    The client stays the caller's, and nothing is contacted before the first call. A `Redis` may
    come from Sentinel. Connections are taken from its pool, one for each call that runs, so a
    pool of a fixed size needs room for every waiting pop. Its time limits and retries count
    for connecting and for nothing else; a call is never sent twice.

    `prefix` starts the name of every key: queues with the same one see the same messages.
    `poll_timeout` is how long a pop waits by default, `visibility_timeout` how long a delivery
    owns a message that names no time of its own, `operation_timeout` how long any call may take
    beyond its `wait`.

    A waiting pop is woken at once by whatever becomes visible, and within a second where its
    wake-up is lost with another process (POP-7).

    In a forked child every call raises BackendError; a queue that was opened by URL opens its
    own connections there (LIFE-4).
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        *,
        prefix: str = DEFAULT_PREFIX,
        poll_timeout: timedelta = timedelta(seconds=1),
        visibility_timeout: timedelta = timedelta(seconds=30),
        operation_timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        nodes = _nodes(client)
        options = Options(
            prefix=prefix,
            poll_timeout=poll_timeout,
            visibility_timeout=visibility_timeout,
            operation_timeout=operation_timeout,
        )
        super().__init__(RedisClient(lambda: nodes, "redis", owned=False), options, kind=_KIND)

    @classmethod
    def _opened(cls, make: Callable[[], Nodes], place: str, options: Options) -> RedisQueue:
        """A queue over a client that it makes, and closes, itself."""
        queue = cls.__new__(cls)
        LuaQueue.__init__(queue, RedisClient(make, place, owned=True), options, kind=_KIND)
        return queue


def _nodes(client: object) -> Nodes:
    if not isinstance(client, Redis | RedisCluster):
        raise InvalidArgument(
            f"client is a redis.Redis or redis.RedisCluster, not {type(client).__name__}; "
            "open_queue takes a URL, and AsyncQueue makes the queue asynchronous"
        )
    if client.get_encoder().decode_responses:
        raise InvalidArgument(
            "the client was made with decode_responses=True, and payloads are bytes that need "
            "not be any text; make one without it for the queue"
        )
    return OneServer(client) if isinstance(client, Redis) else ClusterNodes.of(client)
