"""The contract, kept on one server, on a cluster, and through Sentinel."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import ClassVar, Self
from uuid import uuid4

import pytest
from redis import Redis, RedisCluster, Sentinel
from tools.backends import exclusive, server

from hypercube_queue import (
    DeadLetterStore,
    Guarantees,
    Queue,
    Redriver,
    Releaser,
    StatsProvider,
    VisibilityExtender,
    open_queue,
)
from hypercube_queue_conformance import Borrowed, Harness, QueueConformance, Silenceable
from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_redis import RedisQueue


class RedisHarness(Harness):
    """A prefix of its own on the server that all tests share."""

    guarantees = Guarantees(
        durable=True,
        failover="may_lose",
        ordering="fifo",
        max_message_bytes=64 * 1024 * 1024,
    )
    capabilities = frozenset(
        {VisibilityExtender, Redriver, StatsProvider, DeadLetterStore, Releaser}
    )
    backend: ClassVar[str] = "redis"
    scheme: ClassVar[str] = "redis"
    protocol: ClassVar[int] = 2

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._place = server(self.backend)
        self._prefix = f"suite-{uuid4().hex}"

    @classmethod
    def restartable(cls) -> Self:
        harness = cls()
        harness._place = harness._undo.enter_context(exclusive(cls.backend))
        return harness

    def close(self) -> None:
        with self._undo, self._client() as client:
            for key in client.scan_iter(match=f"{self._prefix}:*", count=1000):
                client.unlink(key)

    def url(self) -> str:
        return self._place.url(self.scheme, "0", prefix=self._prefix, protocol=self.protocol)

    def open(self, **options: timedelta) -> Queue:
        seconds = "".join(f"&{name}={value.total_seconds()}" for name, value in options.items())
        return open_queue(self.url() + seconds)

    def opener(self) -> Callable[[], Queue]:
        return partial(open_queue, self.url())

    def borrow(self) -> Borrowed:
        client = self._client()
        self._undo.callback(client.close)
        return Borrowed(RedisQueue(client, prefix=self._prefix), client.ping)

    def restart(self) -> None:
        self._place.restart()

    def open_unreachable(self) -> Queue:
        """Somebody listens, and says nothing."""
        silent = self._undo.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = silent.getsockname()[1]
        return open_queue(f"{self.scheme}://127.0.0.1:{port}/0?operation_timeout=2")

    def open_silenceable(self) -> Silenceable:
        """A server that is stopped in the midst."""
        place = self._undo.enter_context(exclusive(self.backend))
        url = place.url(self.scheme, "0", prefix=self._prefix, operation_timeout=3)
        return Silenceable(open_queue(url), place.pause, timedelta(seconds=3))

    def open_misconfigured(self) -> Queue:
        """A user that the server does not know."""
        return open_queue(self.url().replace("://", "://nobody:wrong@"))

    def insert_unreadable(self, queue_name: str) -> bytes:
        """A body that is no envelope."""
        keys = queue_keys(self._prefix, queue_name)
        _meta, bodies, _state, ready, *_ = keys.all
        with self._client() as client:
            client.hset(bodies, "unreadable", b"no envelope")
            client.rpush(ready, "unreadable")
        return b"no envelope"

    def _client(self) -> Redis | RedisCluster:
        return Redis(host=self._place.host, port=self._place.port, protocol=self.protocol)


class ClusterHarness(RedisHarness):
    """The same on three nodes."""

    backend = "redis-cluster"
    scheme = "redis+cluster"

    def _client(self) -> Redis | RedisCluster:
        return RedisCluster(host=self._place.host, port=self._place.port, protocol=self.protocol)


class SentinelHarness(RedisHarness):
    """The same on the primary that a Sentinel names."""

    backend = "redis-sentinel"
    scheme = "redis+sentinel"

    def url(self) -> str:
        service = self._place.service
        return self._place.url(self.scheme, service, prefix=self._prefix, protocol=self.protocol)

    def _client(self) -> Redis | RedisCluster:
        sentinel = Sentinel([(self._place.host, self._place.port)])
        return sentinel.master_for(self._place.service, protocol=self.protocol)


@pytest.mark.server("redis")
class TestRedis(QueueConformance):
    """One server."""

    harness = RedisHarness


@pytest.mark.server("redis-cluster")
class TestCluster(QueueConformance):
    """Three nodes."""

    harness = ClusterHarness


if os.environ.get("HYPERCUBE_TEST_ALL") == "1":

    class RESP3Harness(RedisHarness):
        protocol = 3

    class RESP3ClusterHarness(ClusterHarness):
        protocol = 3

    class PlainRedisHarness(RedisHarness):
        backend = "redis@binary"

    class PlainClusterHarness(ClusterHarness):
        backend = "redis-cluster@binary"

    class ValkeyHarness(RedisHarness):
        backend = "valkey"

    class ValkeyClusterHarness(ClusterHarness):
        backend = "valkey-cluster"

    @pytest.mark.server("redis")
    class TestRESP3(QueueConformance):
        """One server, by the newer protocol."""

        harness = RESP3Harness

    @pytest.mark.server("redis-cluster")
    class TestRESP3Cluster(QueueConformance):
        """Three nodes, by the newer protocol."""

        harness = RESP3ClusterHarness

    @pytest.mark.server("redis-sentinel")
    class TestSentinel(QueueConformance):
        """The primary that a Sentinel names."""

        harness = SentinelHarness

    @pytest.mark.server("redis@binary")
    class TestPlainRedis(QueueConformance):
        """A server of this machine, which is an older one."""

        harness = PlainRedisHarness

    @pytest.mark.server("redis-cluster@binary")
    class TestPlainCluster(QueueConformance):
        """Three servers of this machine."""

        harness = PlainClusterHarness

    @pytest.mark.server("valkey")
    class TestValkey(QueueConformance):
        """Valkey, through redis-py."""

        harness = ValkeyHarness

    @pytest.mark.server("valkey-cluster")
    class TestValkeyCluster(QueueConformance):
        """Three nodes of Valkey, through redis-py."""

        harness = ValkeyClusterHarness
