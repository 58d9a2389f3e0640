"""What tests do to a cluster of Redis or Valkey servers: move slots, fail over, cut off."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from tools.backends.kind import Address, NotReady
from tools.backends.redis import ask

#: Seconds for the nodes to agree on something, on a machine that may be busy.
_PATIENCE = 60.0

#: The bus packets of the others that a node ignores: all, or none.
_ALL, _NONE = "-2", "-1"


def identity(node: Address) -> str:
    """The name of a node in its cluster."""
    return ask(node, "CLUSTER", "MYID").strip()


def is_primary(node: Address) -> bool:
    """Whether a node takes itself for a primary; False if it does not answer."""
    try:
        return "role:master\r" in ask(node, "INFO", "replication")
    except OSError:
        return False


def is_caught_up(primary: Address, replica: Address) -> bool:
    """Whether a replica has everything; a failover may lose what it has not."""
    ours, theirs = (ask(node, "INFO", "replication") for node in (primary, replica))
    [offset] = re.findall(r"master_repl_offset:(\d+)", ours)
    return f"slave_repl_offset:{offset}\r" in theirs


def owner(nodes: Sequence[Address], slot: int) -> Address:
    """The node that takes itself for the owner of a slot."""
    for node in nodes:
        if is_primary(node) and slot in _slots(node):
            return node
    raise NotReady(f"nobody has slot {slot}")


def move_slot(
    nodes: Sequence[Address], slot: int, target: Address, keys: Sequence[str] = ()
) -> None:
    """Give a slot with these keys to another node, as `redis-cli --cluster reshard` does."""
    source = owner(nodes, slot)
    name = identity(target)
    ask(target, "CLUSTER", "SETSLOT", str(slot), "IMPORTING", identity(source))
    ask(source, "CLUSTER", "SETSLOT", str(slot), "MIGRATING", name)
    if keys:
        to = (target.host, str(target.port), "", "0", "5000")
        ask(source, "MIGRATE", *to, "KEYS", *keys)
    primaries = [node for node in nodes if is_primary(node) and node not in (source, target)]
    for node in (target, source, *primaries):
        ask(node, "CLUSTER", "SETSLOT", str(slot), "NODE", name)
    wait_until(lambda: all(_owner_in_view(node, slot) == name for node in nodes))


def fail_over(nodes: Sequence[Address], replica: Address, *how: str) -> None:
    """Make a replica the primary: in good order, or by `FORCE` or `TAKEOVER`.

    With a primary that hears the others, it returns when all agree.
    """
    ask(replica, "CLUSTER", "FAILOVER", *how)
    wait_until(lambda: is_primary(replica))
    if not how:
        wait_until(lambda: all("fail" not in ask(node, "CLUSTER", "NODES") for node in nodes))
        wait_until(lambda: sum(map(is_primary, nodes)) == len(nodes) - 1)


def join(node: Address, other: Address) -> None:
    """Let a node meet a cluster, by one of its members; it has no slots."""
    ask(node, "CLUSTER", "MEET", other.host, str(other.port))
    name = identity(node)
    wait_until(lambda: name in ask(other, "CLUSTER", "NODES"))
    wait_until(lambda: "cluster_state:ok\r" in ask(node, "CLUSTER", "INFO"))


def leave(node: Address, others: Sequence[Address]) -> None:
    """Take a node that has no slots out of a cluster."""
    name = identity(node)
    ask(node, "CLUSTER", "RESET", "HARD")
    for other in others:
        with suppress(NotReady):
            ask(other, "CLUSTER", "FORGET", name)
    wait_until(lambda: all(name not in ask(other, "CLUSTER", "NODES") for other in others))


def cut_off(primary: Address, replica: Address, others: Sequence[Address]) -> None:
    """Let a primary hear the others no more, while clients reach it; its replica takes over.

    The old one says CLUSTERDOWN until it is mended. Only Valkey can do that.
    """
    ask(primary, "DEBUG", "DROP-CLUSTER-PACKET-FILTER", _ALL)
    wait_until(lambda: "cluster_state:fail" in ask(primary, "CLUSTER", "INFO"))
    fail_over(others, replica, "TAKEOVER")
    wait_until(lambda: all("cluster_state:ok\r" in ask(node, "CLUSTER", "INFO") for node in others))


def mend(node: Address) -> None:
    """Let a node hear the others again; it follows who took over."""
    ask(node, "DEBUG", "DROP-CLUSTER-PACKET-FILTER", _NONE)


def calls(nodes: Sequence[Address], *commands: str) -> int:
    """How often these commands reached the nodes since the last `forget_calls`."""
    count = 0
    for node in nodes:
        for line in ask(node, "INFO", "commandstats").splitlines():
            name, _, figures = line.removeprefix("cmdstat_").partition(":")
            if name in commands:
                for each in re.findall(r"(?:^|,)(?:rejected_)?calls=(\d+)", figures):
                    count += int(each)
    return count


def forget_calls(nodes: Sequence[Address]) -> None:
    """Begin to count calls anew."""
    for node in nodes:
        ask(node, "CONFIG", "RESETSTAT")


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until nodes agree on something; raises NotReady if they never do."""
    end = time.monotonic() + _PATIENCE
    while True:
        with suppress(NotReady, OSError):
            if holds():
                return
        if time.monotonic() > end:
            raise NotReady("the nodes do not agree in time")
        time.sleep(0.05)


def _slots(node: Address) -> set[int]:
    """The slots that a node says are its own."""
    [mine] = [line for line in ask(node, "CLUSTER", "NODES").splitlines() if "myself" in line]
    return _slots_in(mine)


def _owner_in_view(node: Address, slot: int) -> str:
    for line in ask(node, "CLUSTER", "NODES").splitlines():
        if slot in _slots_in(line):
            return line.split()[0]
    return ""


def _slots_in(line: str) -> set[int]:
    found: set[int] = set()
    for each in line.split()[8:]:
        if match := re.fullmatch(r"(\d+)(?:-(\d+))?", each):
            found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found
