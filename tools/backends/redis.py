"""Redis and Valkey: alone, as a cluster, and watched by a Sentinel."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from io import BufferedRWPair
from pathlib import Path
from typing import ClassVar

from tools.backends.kind import PROBE_TIMEOUT, Address, Kind, NotReady, Runner, Site

#: An answered write survives a killed server.
_DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
#: A replica need not wait for others.
_AT_ONCE = ("--repl-diskless-sync-delay", "0")

#: Seconds for a replica to catch up with a primary that has nothing.
_PATIENCE = 60.0

#: How many slots a cluster has.
_SLOTS = 16_384


class Redis(Kind):
    """One server; without a password, as most run it."""

    name = "redis"
    title = "Redis"
    image = "redis:8"
    port = 6379
    programs: ClassVar[Sequence[str]] = ("redis-server",)
    packages: ClassVar[Sequence[str]] = ("redis-server",)
    user = "redis"

    def probe(self, address: Address) -> str:
        info = ask(address, "INFO")
        found = dict(re.findall(r"^(\w+):(.*?)\r?$", info, re.MULTILINE))
        version = found.get("valkey_version") or found.get("redis_version")
        if version is None or found.get("loading", "0") != "0":
            raise NotReady("it has not read its data yet")
        return str(version)

    def options(self, port: int) -> list[str]:
        """What the server is told wherever it runs."""
        return ["--port", str(port), *_DURABLE, *_AT_ONCE]

    def arguments(self, port: int) -> list[str]:
        return [*self.options(port), "--protected-mode", "no"]

    def command(self, site: Site) -> list[str | Path]:
        return [site.program, *self.options(site.port), "--bind", "127.0.0.1", "--dir", site.folder]


class Valkey(Redis):
    """One server; without a password."""

    name = "valkey"
    title = "Valkey"
    image = "valkey/valkey:9"
    programs = ("valkey-server",)
    packages = ("valkey-server",)
    user = "valkey"
    remedy = "run as root on Debian 13 or newer with --install-servers"


class _Node(Redis):
    """A server of a group: one that is told more."""

    def __init__(self, like: Redis, *extra: str) -> None:
        self._like = like
        self._extra = extra

    def options(self, port: int) -> list[str]:
        return [*Redis.options(self._like, port), *self._extra]


class RedisCluster(Redis):
    """Three servers that share the slots; none has a replica."""

    name = "redis-cluster"
    title = "Redis Cluster"
    size = 3

    def member(self, index: int, ports: Sequence[int]) -> Kind:
        bus = str(ports[index] + 10_000)
        timeout = ("--cluster-node-timeout", "2000")
        return _Node(self, "--cluster-enabled", "yes", "--cluster-port", bus, *timeout)

    def assemble(self, nodes: Sequence[Address]) -> None:
        first = nodes[0]
        for index, node in enumerate(nodes):
            begin = index * _SLOTS // len(nodes)
            end = (index + 1) * _SLOTS // len(nodes) - 1
            ask(node, "CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
            ask(node, "CLUSTER", "ADDSLOTSRANGE", str(begin), str(end))
            ask(node, "CLUSTER", "MEET", first.host, str(first.port))

    def probe_group(self, nodes: Sequence[Address]) -> None:
        for node in nodes:
            info = ask(node, "CLUSTER", "INFO")
            known = f"cluster_known_nodes:{len(nodes)}\r"
            if "cluster_state:ok\r" not in info or known not in info:
                raise NotReady(info)
            if "fail" in ask(node, "CLUSTER", "NODES"):
                raise NotReady("a node holds another for failed")


class RedisReplicatedCluster(RedisCluster):
    """Three servers that share the slots, a replica of the first, and one that has not joined."""

    name = "redis-cluster-replica"
    title = "Redis Cluster with a replica"
    size = 5

    def member(self, index: int, ports: Sequence[int]) -> Kind:
        bus = str(ports[index] + 10_000)
        more = ("--cluster-node-timeout", "2000", "--cluster-replica-validity-factor", "0")
        # Whoever gives its last slot away stays a primary.
        stays = ("--cluster-allow-replica-migration", "no")
        cluster = ("--cluster-enabled", "yes", "--cluster-port", bus, *more, *stays)
        return _Node(self, *cluster, "--enable-debug-command", "yes")

    def assemble(self, nodes: Sequence[Address]) -> None:
        *primaries, replica, _ = nodes
        super().assemble(primaries)
        first = primaries[0]
        ask(replica, "CLUSTER", "MEET", first.host, str(first.port))
        identity = ask(first, "CLUSTER", "MYID").strip()
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                ask(replica, "CLUSTER", "REPLICATE", identity)
                break
            except NotReady:  # it has not heard of the first one yet
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def probe_group(self, nodes: Sequence[Address]) -> None:
        *joined, _ = nodes
        super().probe_group(joined)
        replication = [ask(node, "INFO", "replication") for node in joined]
        if sum("master_link_status:up\r" in each for each in replication) != 1:
            raise NotReady("there is not one replica that is up to date")


class ValkeyCluster(RedisCluster):
    """Three servers that share the slots; none has a replica."""

    name = "valkey-cluster"
    title = "Valkey Cluster"
    image = Valkey.image
    programs = Valkey.programs
    packages = Valkey.packages
    user = Valkey.user
    remedy = Valkey.remedy


class ValkeyReplicatedCluster(RedisReplicatedCluster):
    """Three servers that share the slots, a replica of the first, and one that has not joined."""

    name = "valkey-cluster-replica"
    title = "Valkey Cluster with a replica"
    image = Valkey.image
    programs = Valkey.programs
    packages = Valkey.packages
    user = Valkey.user
    remedy = Valkey.remedy


class _Sentinel(Redis):
    """The watcher, which writes down what it learns in its configuration."""

    def arguments(self, port: int) -> list[str]:
        configuration = f"port {port}\nprotected-mode no\n"
        start = 'test -e own.conf || printf %s "$1" > own.conf; exec redis-server own.conf "$2"'
        return ["sh", "-c", start, "sh", configuration, "--sentinel"]

    def prepare(self, site: Site, run: Runner) -> None:
        del run
        file = site.folder / "own.conf"
        file.write_text(f"port {site.port}\nbind 127.0.0.1\n")
        file.chmod(0o666)

    def command(self, site: Site) -> list[str | Path]:
        return [site.program, site.folder / "own.conf", "--sentinel"]


class RedisSentinel(Redis):
    """A Sentinel, which is its address, then a primary and a replica: its nodes in this order.

    One Sentinel decides alone, within about two seconds of silence.
    """

    name = "redis-sentinel"
    title = "Redis Sentinel"
    service = "primary"
    size = 3

    def member(self, index: int, ports: Sequence[int]) -> Kind:
        _, primary, _ = ports
        if index == 0:
            return _Sentinel()
        return _Node(self, *(("--replicaof", "127.0.0.1", str(primary)) if index == 2 else ()))

    def assemble(self, nodes: Sequence[Address]) -> None:
        """Tell the Sentinel now: it looks for replicas at once, then every ten seconds only."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                self._check_replication(nodes[1:])
                break
            except NotReady:
                time.sleep(0.05)
        watched = ("SENTINEL", "MONITOR", self.service, nodes[1].host, str(nodes[1].port), "1")
        ask(nodes[0], *watched)
        for option, value in (("down-after-milliseconds", "1500"), ("failover-timeout", "5000")):
            ask(nodes[0], "SENTINEL", "SET", self.service, option, value)

    def probe_group(self, nodes: Sequence[Address]) -> None:
        self._check_replication(nodes[1:])
        watching = ask(nodes[0], "INFO", "sentinel")
        if f"name={self.service},status=ok" not in watching or ",slaves=1," not in watching:
            raise NotReady(watching)

    def _check_replication(self, nodes: Sequence[Address]) -> None:
        replication = [ask(node, "INFO", "replication") for node in nodes]
        if sorted("role:master\r" in each for each in replication) != [False, True]:
            raise NotReady("there is not one primary")
        if not any("master_link_status:up\r" in each for each in replication):
            raise NotReady("the replica is not up to date")


def ask(address: Address, *words: str) -> str:
    """One command, and its answer, which is one line or one bulk, as text."""
    with (
        socket.create_connection((address.host, address.port), PROBE_TIMEOUT) as connection,
        connection.makefile("rwb") as stream,
    ):
        if address.password:
            user = [address.username] if address.username else []
            _call(stream, "AUTH", *user, address.password)
        return _call(stream, *words)


def _call(stream: BufferedRWPair, *words: str) -> str:
    encoded = [word.encode() for word in words]
    stream.write(b"*%d\r\n" % len(encoded))
    stream.writelines(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
    stream.flush()
    line = stream.readline().decode()
    if line[:1] == "$":
        return stream.read(int(line[1:]) + 2).decode(errors="replace")
    if line[:1] not in ("+", ":"):
        raise NotReady(line.strip() or "it closed the connection")
    return line[1:].strip()
