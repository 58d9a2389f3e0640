"""Which pool of connections leads to a key: that of one server, or of a node of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, cast

from redis import ConnectionPool, Redis, RedisCluster
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.sentinel import SentinelConnectionPool

from hypercube_queue.driver import Deadline
from hypercube_queue_lua import slot_of
from hypercube_queue_redis._errors import CLIENT_ERRORS
from hypercube_queue_redis._trip import NotSent, Trip

Address: TypeAlias = tuple[str, int]


class Nodes(Protocol):
    """A client of redis-py's, seen as pools of connections."""

    def pool(self, key: bytes) -> ConnectionPool:
        """The pool of the server that has the key."""
        ...

    def pool_at(self, address: Address) -> ConnectionPool:
        """The pool of this server."""
        ...

    @property
    def can_change(self) -> bool:
        """Whether a key can move to another server."""
        ...

    def moved(self, slot: int, address: Address) -> None:
        """Note that a server names this one as the owner of a slot."""
        ...

    def doubt(self, pool: ConnectionPool) -> None:
        """Note that this server does not answer, or refuses to serve."""
        ...

    def refresh(self, end: Deadline) -> None:
        """Ask the servers who has what; raises a client error where none answers."""
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

    def pool_at(self, address: Address) -> ConnectionPool:  # noqa: ARG002 - it knows of no other
        return self._client.connection_pool

    def moved(self, slot: int, address: Address) -> None:
        """It knows of no slots."""

    def doubt(self, pool: ConnectionPool) -> None:
        """There is no other."""

    def refresh(self, end: Deadline) -> None:  # noqa: ARG002 - Sentinels have their own limits
        """Ask the Sentinels, if there are any.

        If they name another primary than before, idle connections to the old one are closed.
        Without an answer the known one is kept.
        """
        pool = self._client.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            with suppress(RedisError):
                pool.get_master_address()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._client.close()
        self._client.connection_pool.disconnect()


class ClusterNodes:
    """The nodes of a cluster, and a map of its slots.

    The map is its own: a refresh by redis-py has no time limit, begins with nodes that are known
    to be cut off, and some releases close connections that other threads use.

    `seeds` are nodes to ask at first, `connect` gives the pool of one node, `remap` the address
    under which a node that the cluster names is reached.
    """

    can_change = True

    def __init__(
        self,
        seeds: Iterable[Address],
        connect: Callable[[Address], ConnectionPool],
        *,
        remap: Callable[[str, int], Address] = lambda host, port: (host, port),
    ) -> None:
        self._seeds = tuple(seeds)
        self._connect = connect
        self._remap = remap
        self._lock = threading.Lock()
        self._pools: dict[Address, ConnectionPool] = {}
        #: In the order in which they are asked for the map.
        self._known = list(self._seeds)
        self._owners: dict[int, Address] = {}

    @classmethod
    def of(cls, client: RedisCluster) -> ClusterNodes:
        """The nodes of a caller's client, with its pools where it has them."""
        manager: Any = client.nodes_manager

        def connect(address: Address) -> ConnectionPool:
            node = manager.get_node(*address)
            if node is not None:
                return client.get_redis_connection(node).connection_pool
            return pool_of(manager.create_redis_node(*address, **manager.connection_kwargs))

        def remap(host: str, port: int) -> Address:
            return cast("Address", manager.remap_host_port(host, port))

        seeds = [(node.host, int(node.port)) for node in tuple(manager.nodes_cache.values())]
        return cls(seeds, connect, remap=remap)

    def pool(self, key: bytes) -> ConnectionPool:
        # Where nobody is known, any node tells who has it, or that nobody has.
        return self.pool_at(self._owners.get(slot_of(key)) or self._known[0])

    def pool_at(self, address: Address) -> ConnectionPool:
        with self._lock:
            if address not in self._pools:
                self._pools[address] = self._connect(address)
            return self._pools[address]

    def moved(self, slot: int, address: Address) -> None:
        address = self._remap(*address)
        with self._lock:
            self._owners[slot] = address
            # It surely knows about the slot.
            self._known = [address, *(each for each in self._known if each != address)]

    def doubt(self, pool: ConnectionPool) -> None:
        with self._lock:
            doubtful = [address for address, each in self._pools.items() if each is pool]
            trusted = [each for each in self._known if each not in doubtful]
            self._known = trusted + [each for each in self._known if each in doubtful]

    def refresh(self, end: Deadline) -> None:
        failure: Exception = RedisClusterException("no node is known")
        for address in tuple(self._known):
            try:
                owners, named = self._asked(address, end)
            except NotSent as error:
                failure = error.cause
            except CLIENT_ERRORS as error:
                failure = error
            else:
                self._use(owners, named)
                return
        raise failure

    def close(self) -> None:
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.disconnect()

    # Internal

    def _asked(self, address: Address, end: Deadline) -> tuple[dict[int, Address], set[Address]]:
        """The owner of each slot and all nodes, as one of them says."""
        # If it is silent, the next one needs some of the time.
        half = Deadline(timedelta(seconds=end.seconds_left() / 2))
        with Trip(self.pool_at(address), [(b"CLUSTER", b"SLOTS")], half) as trip:
            reply = trip.read()
        if isinstance(reply, ResponseError):
            raise RedisClusterException(str(reply)) from reply
        if isinstance(reply, Exception):
            raise reply
        owners: dict[int, Address] = {}
        named: set[Address] = set()
        for first, last, nodes in _ranges(reply):
            there = [self._remap(host or address[0], port) for host, port in nodes]
            named.update(there)
            owners.update(dict.fromkeys(range(first, last + 1), there[0]))
        if not owners:
            raise RedisClusterException(f"{address[0]}:{address[1]} knows of no slots")
        return owners, named

    def _use(self, owners: dict[int, Address], named: set[Address]) -> None:
        with self._lock:
            # A slot that nobody serves keeps its owner, who may come back.
            self._owners = {**self._owners, **owners}
            new = [each for each in named if each not in self._known]
            old = [each for each in self._known if each in named or each in self._seeds]
            self._known = new + old
            # The last call that uses a pool closes what is left of it.
            used = {*self._known, *self._owners.values()}
            self._pools = {at: pool for at, pool in self._pools.items() if at in used}


def pool_of(client: Redis) -> ConnectionPool:
    """The pool of a client that is needed for nothing else."""
    client.auto_close_connection_pool = False  # or its end closes connections in use
    return client.connection_pool


def _ranges(reply: object) -> Iterator[tuple[int, int, list[Address]]]:
    """What CLUSTER SLOTS says: first slot, last slot, nodes with the primary first.

    A node that does not know its own host gives none.
    """
    for first, last, *nodes in cast("list[Any]", reply):
        there = [((host or b"").decode(), int(port)) for host, port, *_ in nodes]
        yield int(first), int(last), there
