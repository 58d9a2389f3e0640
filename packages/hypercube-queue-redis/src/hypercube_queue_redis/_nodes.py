"""Which pool of connections leads to a key: that of one server, or of a node of a cluster."""

from __future__ import annotations

import threading
from typing import Protocol

from redis import ConnectionPool, Redis, RedisCluster

from hypercube_queue_lua import slot_of


class Nodes(Protocol):
    """A client of redis-py's, seen as pools of connections."""

    def pool(self, key: bytes) -> ConnectionPool:
        """The pool of the server that has the key."""
        ...

    def pool_at(self, host: str, port: int) -> ConnectionPool | None:
        """The pool of this server, if it is known."""
        ...

    @property
    def can_change(self) -> bool:
        """Whether a key can move to another server."""
        ...

    def refresh(self) -> None:
        """Ask the servers who has what."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class OneServer:
    """A single server, or the primary that Sentinel names."""

    can_change = False

    def __init__(self, client: Redis) -> None:
        self._client = client

    def pool(self, key: bytes) -> ConnectionPool:  # noqa: ARG002 - it has every key
        return self._client.connection_pool

    def pool_at(self, host: str, port: int) -> None:
        """It knows of no other server."""

    def refresh(self) -> None:
        """There is nobody to ask."""

    def close(self) -> None:
        self._client.close()
        self._client.connection_pool.disconnect()


class ClusterNodes:
    """The primaries of a cluster."""

    can_change = True

    def __init__(self, client: RedisCluster) -> None:
        self._client = client
        self._refreshing = threading.Lock()

    def pool(self, key: bytes) -> ConnectionPool:
        node = self._client.nodes_manager.get_node_from_slot(slot_of(key))
        return self._client.get_redis_connection(node).connection_pool

    def pool_at(self, host: str, port: int) -> ConnectionPool | None:
        node = self._client.nodes_manager.get_node(host, port)
        return None if node is None else self._client.get_redis_connection(node).connection_pool

    def refresh(self) -> None:
        with self._refreshing:
            self._client.nodes_manager.initialize()

    def close(self) -> None:
        self._client.close()
