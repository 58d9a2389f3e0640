"""The same object after another server took over from the one that it knew."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from glide_sync import GlideClient, GlideClientConfiguration, NodeAddress, RequestError
from tools.backends import exclusive, server
from tools.backends.clusters import (
    calls,
    cut_off,
    fail_over,
    forget_calls,
    identity,
    is_caught_up,
    is_primary,
    join,
    leave,
    mend,
    move_slot,
    owner,
    wait_until,
)
from tools.backends.kind import Address
from tools.backends.redis import ask

from hypercube_queue import BackendError, BatchError, Message, Queue, QueueError, open_queue
from hypercube_queue.driver import Deadline
from hypercube_queue_lua import Call, slot_of
from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_lua._scripts import script
from hypercube_queue_valkey import _client

ALL = os.environ.get("HYPERCUBE_TEST_ALL") == "1"

_NOW = timedelta(0)
_PATIENCE_SECONDS = 60.0


def eventually(call: Callable[[], None]) -> None:
    """Repeat a call until it raises no QueueError any more."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return call()
        except QueueError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _connect(place: Any) -> GlideClient:
    return GlideClient.create(
        GlideClientConfiguration([NodeAddress(place.host, place.port)], request_timeout=10_000)
    )


def _refuse(old: GlideClient, code: str) -> None:
    """Make a server refuse to serve, while it keeps its connections."""
    if code == "NOREPLICAS":
        old.config_set({"min-replicas-to-write": "1"})
        return
    old.config_set({"replica-serve-stale-data": "yes" if code == "READONLY" else "no"})
    old.custom_command(["REPLICAOF", "127.0.0.1", "1"])


def _serve(old: GlideClient, prefix: str) -> None:
    old.config_set({"min-replicas-to-write": "0", "replica-serve-stale-data": "yes"})
    old.custom_command(["REPLICAOF", "NO", "ONE"])
    for key in old.custom_command(["KEYS", f"{prefix}:*"]):
        old.delete([key])


@pytest.mark.server("valkey")
@pytest.mark.parametrize("code", ["READONLY", "MASTERDOWN", "NOREPLICAS"])
def test_clients_of_a_server_that_was_replaced_are_replaced(code: str, prefix: str) -> None:
    """A forwarder leads new ones to another server, and the old one lives on (LIFE-2)."""
    new = server("valkey")
    with (
        exclusive("valkey") as place,
        _connect(place) as old,
        place.relay() as relay,
        open_queue(f"valkey://{relay.host}:{relay.port}/0?prefix={prefix}") as queue,
        open_queue(new.url("valkey", "0", prefix=prefix)) as direct,
    ):
        try:
            queue.push(Message("q", id="old"))
            _refuse(old, code)
            with pytest.raises(BatchError) as caught:
                queue.push(Message("q", id="refused"))
            error = caught.value.failed[0].error
            assert isinstance(error, BackendError)
            assert not error.outcome_unknown
            relay.lead_to(new.host, new.port)
            eventually(lambda: queue.push(Message("q", id="new")))
            assert [each.id for each in queue.pop("q", 10, wait=_NOW)] == ["new"]
            assert direct.stats("q").in_flight == 1
        finally:
            _serve(old, prefix)


@pytest.mark.server("valkey")
def test_a_pop_that_waits_on_a_server_that_is_demoted_moves_on(prefix: str) -> None:
    """It goes on waiting on the server that took over, without an error."""
    new = server("valkey")
    with (
        exclusive("valkey") as place,
        _connect(place) as old,
        place.relay() as relay,
        open_queue(f"valkey://{relay.host}:{relay.port}/0?prefix={prefix}") as queue,
        open_queue(new.url("valkey", "0", prefix=prefix)) as direct,
    ):
        try:
            received: list[Message] = []
            popping = threading.Thread(
                target=lambda: received.extend(queue.pop("q", wait=timedelta(seconds=30)))
            )
            popping.start()
            while b" cmd=blpop " not in old.custom_command(["CLIENT", "LIST"]):
                time.sleep(0.01)
            relay.lead_to(new.host, new.port)
            old.custom_command(["REPLICAOF", "127.0.0.1", "1"])
            direct.push(Message("q", id="new"))
            popping.join()
            assert [each.id for each in received] == ["new"]
        finally:
            _serve(old, prefix)


@pytest.mark.parametrize("code", ["Moved", "Ask", "TryAgain", "ClusterDown"])
def test_what_a_cluster_says_while_it_fails_over_is_not_the_last_word(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node has run the call, so it is repeated; GLIDE gives up sooner than a failover ends."""
    refusals = [f"An error was signalled by the server: - {code}: 1 127.0.0.1:1"] * 4
    asked: list[int] = []

    def exchange(client: object, commands: Sequence[object], end: object) -> list[object]:
        asked.append(len(commands))
        # The second of three is refused.
        answers: list[object] = [[0, 0, 0, each] for each in range(len(commands))]
        if refusals:
            answers[len(commands) // 2] = RequestError(refusals.pop())
        return answers

    monkeypatch.setattr(_client, "_exchange", exchange)
    made: list[_NoClient] = []

    def make(_: object) -> _NoClient:
        made.append(_NoClient())
        return made[-1]

    client = _client.ValkeyClient(make, "valkey+cluster://host", cluster=True)
    calls = [Call(script("stats"), queue_keys("p", name).all, ()) for name in "abc"]
    answers = client.run(calls, Deadline(timedelta(seconds=30)))
    assert not any(isinstance(each, Exception) for each in answers)
    assert asked == [3, 1, 1, 1, 1]


class _NoClient:
    """Stands in for GLIDE's, and knows of no nodes."""

    def custom_command(self, command: object, route: object) -> list[object]:
        return []

    def close(self) -> None:
        pass


def _in_first_shard(prefix: str) -> str:
    """A queue in a slot of the first node, and so of the one that has a replica."""
    return next(name for name in map(str, range(100)) if _slot(prefix, name) < 5000)


def _slot(prefix: str, name: str) -> int:
    return slot_of(queue_keys(prefix, name).wake)


def _keys(prefix: str, name: str) -> list[str]:
    return [key.decode() for key in queue_keys(prefix, name).all]


def _assert_idle_pop_is_cheap(queue: Queue, name: str, nodes: Sequence[Address]) -> None:
    """A look and a blocking command a second, and a few that are sent elsewhere."""
    forget_calls(nodes)
    assert queue.pop(name, wait=timedelta(seconds=3)) == []
    assert calls(nodes, "eval", "evalsha", "blpop", "cluster|slots") <= 2 * 3 + 1 + 20


@pytest.mark.server("valkey-cluster")
def test_a_slot_that_moved_is_followed(prefix: str) -> None:
    """Behind the back of an object that knew the old place; no error reaches the caller."""
    with (
        exclusive("valkey-cluster") as place,
        open_queue(place.url("valkey+cluster", "0", prefix=prefix)) as queue,
    ):
        name = _in_first_shard(prefix)
        slot, old = _slot(prefix, name), place.nodes[0]
        queue.push(Message(name, id="1"), Message(name, id="2"))
        [held] = queue.pop(name, wait=_NOW)
        move_slot(place.nodes, slot, place.nodes[1], _keys(prefix, name))
        try:
            queue.ack(held)
            queue.push(Message(name, id="3"))
            assert [each.id for each in queue.pop(name, 10, wait=_NOW)] == ["2", "3"]
            _assert_idle_pop_is_cheap(queue, name, place.nodes)
        finally:
            move_slot(place.nodes, slot, old, _keys(prefix, name))


if ALL:

    @pytest.mark.server("valkey-cluster-replica")
    def test_an_orderly_failover_is_followed(prefix: str) -> None:
        """Under pushes that never stop, without an error, and everything is there."""
        with (
            exclusive("valkey-cluster-replica") as place,
            open_queue(place.url("valkey+cluster", "0", prefix=prefix)) as queue,
            ThreadPoolExecutor(1) as threads,
        ):
            name = _in_first_shard(prefix)
            joined = place.nodes[:4]
            pushed: list[str] = []
            done = threading.Event()

            def push() -> None:
                while not done.is_set():
                    id = str(len(pushed))
                    queue.push(Message(name, id=id))
                    pushed.append(id)

            pushing = threads.submit(push)
            try:
                for _ in range(2):
                    _wait_for_more(pushed)
                    fail_over(joined, _replica(joined))
                _wait_for_more(pushed)
            finally:
                done.set()
            pushing.result()
            received: list[str] = []
            while held := queue.pop(name, 1000, wait=_NOW):
                received += [each.id for each in held]
            assert received == pushed
            _assert_idle_pop_is_cheap(queue, name, joined)

    @pytest.mark.server("valkey-cluster-replica")
    def test_a_node_that_joins_later_is_reached(prefix: str) -> None:
        """It is in nobody's map when a slot moves to it."""
        with (
            exclusive("valkey-cluster-replica") as place,
            open_queue(place.url("valkey+cluster", "0", prefix=prefix)) as queue,
        ):
            *joined, spare = place.nodes
            name = _in_first_shard(prefix)
            slot = _slot(prefix, name)
            queue.push(Message(name, id="1"))
            old = owner(joined, slot)
            join(spare, joined[1])
            try:
                here = identity(spare)
                wait_until(lambda: all(here in ask(each, "CLUSTER", "NODES") for each in joined))
                move_slot(place.nodes, slot, spare, _keys(prefix, name))
                queue.push(Message(name, id="2"))
                held = queue.pop(name, 10, wait=_NOW)
                assert [each.id for each in held] == ["1", "2"]
                queue.ack(*held)
                _assert_idle_pop_is_cheap(queue, name, place.nodes)
                move_slot(place.nodes, slot, old, _keys(prefix, name))
                queue.push(Message(name, id="3"))
            finally:
                leave(spare, joined)
            assert [each.id for each in queue.pop(name, wait=_NOW)] == ["3"]

    @pytest.mark.server("valkey-cluster-replica")
    def test_a_killed_node_that_is_promoted_again_is_reached(prefix: str) -> None:
        """Its replica takes over, it comes back as a replica, and takes over in its turn."""
        with (
            exclusive("valkey-cluster-replica") as place,
            open_queue(place.url("valkey+cluster", "0", prefix=prefix)) as queue,
        ):
            joined = place.nodes[:4]
            name = _in_first_shard(prefix)
            queue.push(Message(name, id="1"))
            old = owner(joined, _slot(prefix, name))
            new = _replica(joined)
            wait_until(lambda: is_caught_up(old, new))
            old.kill()
            eventually(lambda: queue.push(Message(name, id="2")))
            old.start()
            wait_until(lambda: "master_link_status:up" in ask(old, "INFO", "replication"))
            fail_over(joined, old)
            eventually(lambda: queue.push(Message(name, id="3")))
            assert [each.id for each in queue.pop(name, 10, wait=_NOW)] == ["1", "2", "3"]
            _assert_idle_pop_is_cheap(queue, name, joined)

    @pytest.mark.server("valkey-cluster-replica")
    def test_a_primary_that_is_cut_off_is_left_for_the_one_that_took_over(prefix: str) -> None:
        """It says CLUSTERDOWN for as long as it is cut off, and clients reach both (LIFE-2)."""
        with (
            exclusive("valkey-cluster-replica") as place,
            open_queue(place.url("valkey+cluster", "0", prefix=prefix)) as queue,
        ):
            joined = place.nodes[:4]
            name = _in_first_shard(prefix)
            queue.push(Message(name, id="1"))
            old = owner(joined, _slot(prefix, name))
            new = _replica(joined)
            wait_until(lambda: is_caught_up(old, new))
            cut_off(old, new, [node for node in joined if node is not old])
            try:
                assert is_primary(old)
                eventually(lambda: queue.push(Message(name, id="2")))
                assert [each.id for each in queue.pop(name, 10, wait=_NOW)] == ["1", "2"]
                _assert_idle_pop_is_cheap(queue, name, joined)
            finally:
                mend(old)
                wait_until(lambda: not is_primary(old))


def _wait_for_more(pushed: list[str]) -> None:
    before = len(pushed)
    wait_until(lambda: len(pushed) > before + 10)


def _replica(nodes: Sequence[Any]) -> Any:
    [found] = [node for node in nodes if not is_primary(node)]
    return found
