"""What failovers of Redis and Valkey cost, measured on real servers.

    python -m tools.redis_failovers            # prints the table
    python -m tools.redis_failovers --write    # writes it between the markers of its document
    python -m tools.redis_failovers killed     # only what has this word in its name

One thread pushes without a pause, through one queue object, while something is done to the
servers, and another one pops and acknowledges before and afterwards. It fails if the objects do
not work again by themselves, or if a message is lost where the servers had everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.backends import exclusive, servers
from tools.backends.clusters import (
    cut_off,
    fail_over,
    is_caught_up,
    is_primary,
    mend,
    move_slot,
    owner,
    wait_until,
)
from tools.backends.redis import ask
from tools.backends.traffic import AROUND, NAME, Arguments, Traffic, report

from hypercube_queue_lua import slot_of
from hypercube_queue_lua._keys import queue_keys

_TABLE = "redis-failovers"

_PREFIX = "failovers"


def _slot() -> int:
    return slot_of(queue_keys(_PREFIX, NAME).wake)


def _shard(place: Any) -> tuple[Any, Any, list[Any]]:
    """The primary that has a replica, the replica, and all that have joined."""
    joined = list(place.nodes[:4])
    [replica] = [node for node in joined if not is_primary(node)]
    address = ask(replica, "INFO", "replication")
    [primary] = [node for node in joined if f"master_port:{node.port}\r" in address]
    return primary, replica, joined


def _bring_here(place: Any, traffic: Traffic) -> None:
    """Give the queue to the shard that has a replica."""
    del traffic
    primary, _, joined = _shard(place)
    if owner(joined, _slot()) is not primary:
        keys = [key.decode() for key in queue_keys(_PREFIX, NAME).all]
        move_slot(joined, _slot(), primary, keys)


def _move(place: Any, traffic: Traffic) -> None:
    primary, _, joined = _shard(place)
    other = next(node for node in joined if is_primary(node) and node is not primary)
    move_slot(joined, _slot(), other, [key.decode() for key in queue_keys(_PREFIX, NAME).all])
    traffic.wait_for_pushes()
    _bring_here(place, traffic)


def _fail_over(place: Any, traffic: Traffic) -> None:
    del traffic
    _, replica, joined = _shard(place)
    fail_over(joined, replica)


def _kill(place: Any, traffic: Traffic) -> None:
    primary, _, _ = _shard(place)
    primary.kill()
    traffic.wait_for_pushes()
    primary.start()


def _cut_off(place: Any, traffic: Traffic) -> None:
    primary, replica, joined = _shard(place)
    cut_off(primary, replica, [node for node in joined if node is not primary])
    traffic.wait_for_pushes()
    mend(primary)
    wait_until(lambda: not is_primary(primary))


def _kill_watched(place: Any, traffic: Traffic) -> None:
    _, *nodes = place.nodes
    [primary] = [node for node in nodes if is_primary(node)]
    primary.kill()
    traffic.wait_for_pushes()
    primary.start()


def _isolate(place: Any, traffic: Traffic, least_replicas: str) -> None:
    """The primary hears of no failover and has no replica any more; clients still reach it."""
    sentinel, *nodes = place.nodes
    [old] = [node for node in nodes if is_primary(node)]
    [new] = [node for node in nodes if node is not old]
    ask(old, "CONFIG", "SET", "min-replicas-to-write", least_replicas)
    ask(old, "ACL", "SETUSER", "default", "-replicaof", "-slaveof")
    try:
        ask(sentinel, "SENTINEL", "FAILOVER", place.service)
        wait_until(lambda: is_primary(new))
        traffic.wait_for_pushes()
    finally:
        ask(old, "ACL", "SETUSER", "default", "+@all")
        ask(old, "CONFIG", "SET", "min-replicas-to-write", "0")
        ask(old, "REPLICAOF", new.host, str(new.port))


def _isolate_careful(place: Any, traffic: Traffic) -> None:
    _isolate(place, traffic, "1")


def _isolate_careless(place: Any, traffic: Traffic) -> None:
    _isolate(place, traffic, "0")


@dataclass(frozen=True)
class Case:
    """Something that happens to servers of one kind."""

    kind: str
    scheme: str
    what: str
    do: Callable[[Any, Traffic], None]
    #: Whether the new primary had everything.
    is_orderly: bool = False


def _cases() -> list[Case]:
    careful = "Sentinel: primary cut off, with `min-replicas-to-write 1`"
    careless = f"the same without it, healed after {AROUND:g} s"
    cases = [
        Case("redis-sentinel", "redis+sentinel", "Sentinel: primary killed", _kill_watched),
        Case("redis-sentinel", "redis+sentinel", careful, _isolate_careful),
        Case("redis-sentinel", "redis+sentinel", careless, _isolate_careless),
    ]
    for kind, scheme, title in (
        ("redis-cluster-replica", "redis+cluster", "Redis Cluster"),
        ("valkey-cluster-replica", "redis+cluster", "Valkey Cluster by redis-py"),
        ("valkey-cluster-replica", "valkey+cluster", "Valkey Cluster by GLIDE"),
    ):
        cases += [
            Case(kind, scheme, f"{title}: slot moved, and back", _move, is_orderly=True),
            Case(kind, scheme, f"{title}: `CLUSTER FAILOVER`", _fail_over, is_orderly=True),
            Case(kind, scheme, f"{title}: primary killed", _kill),
        ]
        if kind.startswith("valkey"):
            cases.append(
                Case(kind, scheme, f"{title}: primary cut off, replica took over", _cut_off)
            )
    return cases


def run(case: Case) -> str:
    """The row of a case; raises SystemExit where something was lost that was safe."""
    with exclusive(case.kind) as place:
        path = place.service or "0"
        url = place.url(
            case.scheme, path, prefix=_PREFIX, operation_timeout=5, visibility_timeout=5
        )
        traffic = Traffic(url)
        if place.service:
            _, *nodes = place.nodes
        else:
            _bring_here(place, traffic)
            nodes = [*_shard(place)[:2]]
        old, new = sorted(nodes, key=is_primary, reverse=True)
        wait_until(lambda: is_caught_up(old, new))
        begun = traffic.endure(lambda: case.do(place, traffic))
    return traffic.row(case.what, begun, may_lose=not case.is_orderly)


def main() -> None:
    arguments = Arguments.parse("The table of failovers of Redis and Valkey.")
    cases = [case for case in _cases() if arguments.names(f"{case.kind} {case.what}")]
    with servers(*sorted({case.kind for case in cases})):
        report(map(run, cases), _TABLE, write=arguments.write)


if __name__ == "__main__":
    main()
