"""The contract, kept on one server and on a cluster."""

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
from glide_sync import (
    GlideClient,
    GlideClientConfiguration,
    GlideClusterClient,
    GlideClusterClientConfiguration,
    NodeAddress,
)
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
from hypercube_queue_valkey import ValkeyQueue


class ValkeyHarness(Harness):
    """A prefix of its own on the server that all tests share, and that ends with them."""

    guarantees = Guarantees(
        durable=True,
        failover="may_lose",
        ordering="fifo",
        max_message_bytes=64 * 1024 * 1024,
    )
    capabilities = frozenset(
        {VisibilityExtender, Redriver, StatsProvider, DeadLetterStore, Releaser}
    )
    backend: ClassVar[str] = "valkey"
    scheme: ClassVar[str] = "valkey"
    protocol: ClassVar[int] = 3

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
        self._undo.close()

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
        return Borrowed(ValkeyQueue(client, prefix=self._prefix), lambda: client.ping() == b"PONG")

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
            client.hset(bodies, {"unreadable": b"no envelope"})
            client.rpush(ready, ["unreadable"])
        return b"no envelope"

    def _client(self) -> GlideClient | GlideClusterClient:
        address = NodeAddress(self._place.host, self._place.port)
        return GlideClient.create(GlideClientConfiguration([address]))


class ClusterHarness(ValkeyHarness):
    """The same on three nodes."""

    backend = "valkey-cluster"
    scheme = "valkey+cluster"

    def _client(self) -> GlideClient | GlideClusterClient:
        address = NodeAddress(self._place.host, self._place.port)
        return GlideClusterClient.create(GlideClusterClientConfiguration([address]))


@pytest.mark.server("valkey")
class TestValkey(QueueConformance):
    """One server."""

    harness = ValkeyHarness


@pytest.mark.server("valkey-cluster")
class TestCluster(QueueConformance):
    """Three nodes."""

    harness = ClusterHarness


if os.environ.get("HYPERCUBE_TEST_ALL") == "1":

    class RESP2Harness(ValkeyHarness):
        protocol = 2

    class RESP2ClusterHarness(ClusterHarness):
        protocol = 2

    class RedisHarness(ValkeyHarness):
        backend = "redis"

    class RedisClusterHarness(ClusterHarness):
        backend = "redis-cluster"

    class PlainRedisHarness(ValkeyHarness):
        backend = "redis@binary"

    class PlainClusterHarness(ClusterHarness):
        backend = "redis-cluster@binary"

    @pytest.mark.server("valkey")
    class TestRESP2(QueueConformance):
        """One server, by the older protocol."""

        harness = RESP2Harness

    @pytest.mark.server("valkey-cluster")
    class TestRESP2Cluster(QueueConformance):
        """Three nodes, by the older protocol."""

        harness = RESP2ClusterHarness

    @pytest.mark.server("redis")
    class TestRedis(QueueConformance):
        """Redis, through GLIDE."""

        harness = RedisHarness

    @pytest.mark.server("redis-cluster")
    class TestRedisCluster(QueueConformance):
        """Three nodes of Redis, through GLIDE."""

        harness = RedisClusterHarness

    @pytest.mark.server("redis@binary")
    class TestPlainRedis(QueueConformance):
        """A server of this machine, which is an older Redis."""

        harness = PlainRedisHarness

    @pytest.mark.server("redis-cluster@binary")
    class TestPlainCluster(QueueConformance):
        """Three servers of this machine."""

        harness = PlainClusterHarness
