"""The same object after another server took over from the one that it knew."""

from __future__ import annotations

import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, BinaryIO

import pytest
from redis import Redis
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
from tools.backends.kind import Address, NotReady
from tools.backends.redis import ask

from hypercube_queue import BackendError, BatchError, Message, Queue, QueueError, open_queue
from hypercube_queue_lua import slot_of
from hypercube_queue_lua._keys import queue_keys

ALL = os.environ.get("HYPERCUBE_TEST_ALL") == "1"

_NOW = timedelta(0)
_PATIENCE_SECONDS = 60.0
_MOMENT = timedelta(seconds=0.2)


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


def _refuse(old: Redis, code: str) -> None:
    """Make a server refuse to serve, while it keeps its connections."""
    if code == "NOREPLICAS":
        old.config_set("min-replicas-to-write", 1)
        return
    old.config_set("replica-serve-stale-data", "yes" if code == "READONLY" else "no")
    old.replicaof("127.0.0.1", 1)


@pytest.mark.server("redis")
@pytest.mark.parametrize("code", ["READONLY", "MASTERDOWN", "NOREPLICAS"])
def test_connections_to_a_server_that_was_replaced_are_replaced(code: str, prefix: str) -> None:
    """A forwarder leads new ones to another server, and the old one lives on (LIFE-2)."""
    new = server("redis")
    with (
        exclusive("redis") as place,
        Redis(host=place.host, port=place.port) as old,
        place.relay() as relay,
        open_queue(f"redis://{relay.host}:{relay.port}/0?prefix={prefix}") as queue,
        open_queue(new.url("redis", "0", prefix=prefix)) as direct,
    ):
        try:
            # As many idle connections as there were calls at once.
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda _: queue.pop("q", wait=_MOMENT), range(4)))
            queue.push(Message("q", id="old"))
            _refuse(old, code)
            with pytest.raises(BatchError) as caught:
                queue.push(Message("q", id="refused"))
            error = caught.value.failed[0].error
            assert isinstance(error, BackendError)
            assert not error.outcome_unknown
            relay.lead_to(new.host, new.port)
            queue.push(Message("q", id="new"))
            assert [each.id for each in queue.pop("q", 10, wait=_NOW)] == ["new"]
            assert direct.stats("q").in_flight == 1
        finally:
            old.config_set("min-replicas-to-write", 0)
            old.config_set("replica-serve-stale-data", "yes")
            old.replicaof("NO", "ONE")
            old.delete(*old.keys(f"{prefix}:*") or ["-"])


@pytest.mark.server("redis")
def test_a_pop_that_waits_on_a_server_that_is_demoted_moves_on(prefix: str) -> None:
    """It goes on waiting on the server that took over, without an error."""
    new = server("redis")
    with (
        exclusive("redis") as place,
        Redis(host=place.host, port=place.port) as old,
        place.relay() as relay,
        open_queue(f"redis://{relay.host}:{relay.port}/0?prefix={prefix}") as queue,
        open_queue(new.url("redis", "0", prefix=prefix)) as direct,
    ):
        try:
            received: list[Message] = []
            popping = threading.Thread(
                target=lambda: received.extend(queue.pop("q", wait=timedelta(seconds=30)))
            )
            popping.start()
            while not any(each["cmd"] == "blpop" for each in old.client_list()):
                time.sleep(0.01)
            relay.lead_to(new.host, new.port)
            old.replicaof("127.0.0.1", 1)
            direct.push(Message("q", id="new"))
            popping.join()
            assert [each.id for each in received] == ["new"]
        finally:
            old.replicaof("NO", "ONE")


class _LoadingOnce(socketserver.StreamRequestHandler):
    """A server that is still loading for its first connection, and loaded for later ones."""

    def handle(self) -> None:
        first = self.server.connections == 0
        self.server.connections += 1
        while words := _command(self.rfile):
            if words[0] != b"EVALSHA":
                self.wfile.write(b"+OK\r\n")
            elif first:
                self.wfile.write(b"-LOADING Redis is loading the dataset in memory\r\n")
            else:
                self.wfile.write(b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n")


def _command(stream: BinaryIO) -> list[bytes]:
    """The next command that a client sends; nothing when it has hung up."""
    words = []
    for _ in range(int(stream.readline()[1:] or 0)):
        length = int(stream.readline()[1:])
        words.append(stream.read(length + 2)[:-2])
    return words


@contextmanager
def _listening(
    handler: type[socketserver.BaseRequestHandler],
) -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as listening:
        listening.daemon_threads = True
        listening.connections = 0
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield listening
        finally:
            listening.shutdown()
            thread.join()


def test_a_server_that_loads_is_asked_again_over_another_connection() -> None:
    """The forwarder may have found one that serves; the caller sees no error."""
    with _listening(_LoadingOnce) as listening:
        host, port = listening.server_address
        with open_queue(f"redis://{host}:{port}/0") as queue:
            assert queue.stats("q").dead == 4
        assert listening.connections == 2


@pytest.mark.server("redis-sentinel")
def test_a_primary_that_is_cut_off_from_its_replicas_is_left(prefix: str) -> None:
    """It refuses changes, and as soon as the Sentinels know who took over, that one is used.

    What is called from then on meets no error; a pop that waited before may have met one.
    """
    with exclusive("redis-sentinel") as place:
        url = place.url("redis+sentinel", place.service, prefix=prefix)
        with open_queue(url) as queue, ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: queue.pop("q", wait=_MOMENT), range(4)))
            queue.push(Message("q", id="old"))
            sentinel, *servers = place.nodes
            [old] = [node for node in servers if is_primary(node)]
            [new] = [node for node in servers if node is not old]
            wait_until(lambda: is_caught_up(old, new))
            popping = threads.submit(
                eventually, lambda: queue.ack(*queue.pop("other", wait=timedelta(seconds=60)))
            )
            try:
                _isolate(sentinel, place.service, old, new)
                assert is_primary(old)
                queue.push(Message("q", id="new"))
                queue.push(Message("other"))
                popping.result()
                assert queue.queues() == ["q"]
                assert [each.id for each in queue.pop("q", 10, wait=_NOW)] == ["old", "new"]
            finally:
                ask(old, "ACL", "SETUSER", "default", "+@all")
                ask(old, "CONFIG", "SET", "min-replicas-to-write", "0")
                ask(old, "REPLICAOF", new.host, str(new.port))


@pytest.mark.server("redis-sentinel")
def test_one_time_out_is_enough_to_leave_a_silent_primary(prefix: str) -> None:
    """After it the Sentinels are asked, and idle connections to the silent one are closed."""
    with exclusive("redis-sentinel") as place:
        url = place.url("redis+sentinel", place.service, prefix=prefix, operation_timeout=6)
        with open_queue(url) as queue, ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: queue.pop("q", wait=_MOMENT), range(4)))
            sentinel, *servers = place.nodes
            [old] = [node for node in servers if is_primary(node)]
            [new] = [node for node in servers if node is not old]
            old.pause()
            wait_until(lambda: is_primary(new))
            wait_until(lambda: f":{new.port},slaves" in ask(sentinel, "INFO", "sentinel"))
            with pytest.raises(BatchError):
                queue.push(Message("q"))
            list(threads.map(lambda _: queue.push(Message("q")), range(4)))
            assert queue.stats("q").ready == 4


@pytest.mark.server("redis")
def test_the_newest_word_of_several_sentinels_counts(prefix: str) -> None:
    """One that was cut off together with the old primary is asked first, and not believed."""
    new = server("redis")
    with (
        _sentinel("127.0.0.1", 1, epoch=1) as behind,
        _sentinel(new.host, new.port, epoch=2) as current,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        first, *others = (each.server_address for each in (behind, current))
        also = ",".join(f"{host}:{port}" for host, port in (silent.getsockname(), *others))
        url = f"redis+sentinel://{first[0]}:{first[1]}/primary?prefix={prefix}&also={also}"
        with open_queue(f"{url}&operation_timeout=12") as queue:
            queue.push(Message("q"))
            queue.ack(*queue.pop("q"))


class _SentinelHandler(socketserver.StreamRequestHandler):
    """Answers SENTINEL MASTERS."""

    def handle(self) -> None:
        while words := _command(self.rfile):
            if words[0] != b"SENTINEL":
                self.wfile.write(b"+OK\r\n")
                continue
            state = [part for pair in self.server.state.items() for part in pair]
            self.wfile.write(b"*1\r\n*%d\r\n" % len(state))
            self.wfile.writelines(b"$%d\r\n%s\r\n" % (len(part), part) for part in state)


@contextmanager
def _sentinel(host: str, port: int, epoch: int) -> Iterator[socketserver.ThreadingTCPServer]:
    """A Sentinel that names this primary, and has heard of so many failovers."""
    state = {"name": "primary", "ip": host, "port": port, "flags": "master"}
    state |= {"num-other-sentinels": 2, "config-epoch": epoch}
    with _listening(_SentinelHandler) as listening:
        listening.state = {key.encode(): str(value).encode() for key, value in state.items()}
        yield listening


def _isolate(sentinel: Address, service: str, old: Address, new: Address) -> None:
    """Promote the replica, while the old primary hears nothing of it and misses its replica."""
    ask(old, "CONFIG", "SET", "min-replicas-to-write", "1")
    ask(old, "ACL", "SETUSER", "default", "-replicaof", "-slaveof")
    ask(sentinel, "SENTINEL", "FAILOVER", service)
    wait_until(lambda: is_primary(new))
    wait_until(lambda: f":{new.port},slaves" in ask(sentinel, "INFO", "sentinel"))
    wait_until(lambda: _refuses(old))


def _refuses(node: Address) -> bool:
    try:
        ask(node, "SET", "any", "thing")
    except NotReady as error:
        return "NOREPLICAS" in str(error)
    return False


def _in_first_shard(prefix: str) -> str:
    """A queue in a slot of the first node, and so of the one that has a replica."""
    return next(name for name in map(str, range(100)) if _slot(prefix, name) < 5000)


def _slot(prefix: str, name: str) -> int:
    return slot_of(queue_keys(prefix, name).wake)


def _keys(prefix: str, name: str) -> list[str]:
    return [key.decode() for key in queue_keys(prefix, name).all]


#: What a pop sends, and what the driver asks a node for the map of slots.
_SENT = ("eval", "evalsha", "blpop", "cluster|slots")


def _assert_idle_pop_is_cheap(queue: Queue, name: str, nodes: Sequence[Address]) -> None:
    """A look and a blocking command a second, and a few to find the way."""
    forget_calls(nodes)
    assert queue.pop(name, wait=timedelta(seconds=3)) == []
    assert calls(nodes, *_SENT) <= 2 * 3 + 1 + 10


@pytest.mark.server("redis-cluster")
def test_a_slot_that_moved_is_followed(prefix: str) -> None:
    """Behind the back of an object that knew the old place: at once, and for good."""
    with (
        exclusive("redis-cluster") as place,
        open_queue(place.url("redis+cluster", "0", prefix=prefix)) as queue,
    ):
        name = _in_first_shard(prefix)
        slot, old = _slot(prefix, name), place.nodes[0]
        queue.push(Message(name, id="1"), Message(name, id="2"))
        [held] = queue.pop(name, wait=_NOW)
        move_slot(place.nodes, slot, place.nodes[1], _keys(prefix, name))
        try:
            queue.ack(held)
            forget_calls(place.nodes)
            queue.push(Message(name, id="3"))
            assert calls([old], *_SENT) == 0
            assert [each.id for each in queue.pop(name, 10, wait=_NOW)] == ["2", "3"]
            _assert_idle_pop_is_cheap(queue, name, place.nodes)
        finally:
            move_slot(place.nodes, slot, old, _keys(prefix, name))


@pytest.mark.server("redis-cluster")
def test_a_waiting_pop_follows_a_slot_that_moves(prefix: str) -> None:
    """It is sent away by MOVED, and learns from it."""
    with (
        exclusive("redis-cluster") as place,
        open_queue(place.url("redis+cluster", "0", prefix=prefix)) as queue,
        open_queue(place.url("redis+cluster", "0", prefix=prefix)) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        name = _in_first_shard(prefix)
        slot, old = _slot(prefix, name), place.nodes[0]
        queue.push(Message(name))
        queue.ack(*queue.pop(name))
        popping = threads.submit(queue.pop, name, wait=timedelta(seconds=30))
        wait_until(lambda: "blocked_clients:1\r" in ask(old, "INFO", "clients"))
        forget_calls(place.nodes)
        move_slot(place.nodes, slot, place.nodes[1], _keys(prefix, name))
        try:
            wait_until(lambda: "blocked_clients:1\r" in ask(place.nodes[1], "INFO", "clients"))
            assert calls(place.nodes, *_SENT) <= 100
            other.push(Message(name, id="1"))
            assert [each.id for each in popping.result()] == ["1"]
        finally:
            move_slot(place.nodes, slot, old, _keys(prefix, name))


@pytest.mark.server("redis-cluster")
def test_a_node_that_never_answers_is_asked_last_for_the_map(prefix: str) -> None:
    """A silent one among those that the URL names delays a call and stops none."""
    with (
        exclusive("redis-cluster") as place,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        others = ",".join(f"{node.host}:{node.port}" for node in place.nodes)
        port = silent.getsockname()[1]
        options = f"prefix={prefix}&operation_timeout=6&also={others}"
        with open_queue(f"redis+cluster://127.0.0.1:{port}/0?{options}") as queue:
            queue.push(Message("q"))
            assert queue.queues() == ["q"]
            queue.ack(*queue.pop("q"))


if ALL:

    @pytest.mark.server("redis-cluster-replica")
    def test_an_orderly_failover_is_followed(prefix: str) -> None:
        """An idle pop costs no more than before, and everything is there."""
        with (
            exclusive("redis-cluster-replica") as place,
            open_queue(place.url("redis+cluster", "0", prefix=prefix)) as queue,
        ):
            name = _in_first_shard(prefix)
            queue.push(Message(name, id="1"), Message(name, id="2"))
            [held] = queue.pop(name, wait=_NOW)
            joined = place.nodes[:4]
            fail_over(joined, _replica(joined))
            queue.ack(held)
            assert [each.id for each in queue.pop(name, 10, wait=_NOW)] == ["2"]
            _assert_idle_pop_is_cheap(queue, name, joined)
            fail_over(joined, _replica(joined))
            _assert_idle_pop_is_cheap(queue, name, joined)

    @pytest.mark.server("redis-cluster-replica")
    def test_a_failover_under_a_waiting_pop_is_followed(prefix: str) -> None:
        """Without an error, and without a storm."""
        with (
            exclusive("redis-cluster-replica") as place,
            open_queue(place.url("redis+cluster", "0", prefix=prefix)) as queue,
            open_queue(place.url("redis+cluster", "0", prefix=prefix)) as other,
            ThreadPoolExecutor(1) as threads,
        ):
            name = _in_first_shard(prefix)
            joined = place.nodes[:4]
            old = owner(joined, _slot(prefix, name))
            popping = threads.submit(queue.pop, name, wait=timedelta(seconds=60))
            wait_until(lambda: "blocked_clients:1\r" in ask(old, "INFO", "clients"))
            forget_calls(joined)
            new = _replica(joined)
            fail_over(joined, new)
            wait_until(lambda: "blocked_clients:1\r" in ask(new, "INFO", "clients"))
            assert calls(joined, *_SENT) <= 300
            other.push(Message(name, id="1"))
            assert [each.id for each in popping.result()] == ["1"]

    @pytest.mark.server("redis-cluster-replica")
    def test_a_node_that_joins_later_is_reached(prefix: str) -> None:
        """It is in nobody's map when a slot moves to it."""
        with (
            exclusive("redis-cluster-replica") as place,
            open_queue(place.url("redis+cluster", "0", prefix=prefix)) as queue,
        ):
            *joined, spare = place.nodes
            name = _in_first_shard(prefix)
            slot = _slot(prefix, name)
            queue.push(Message(name, id="1"))
            old = owner(joined, slot)
            join(spare, joined[1])
            try:
                wait_until(
                    lambda: all(identity(spare) in ask(n, "CLUSTER", "NODES") for n in joined)
                )
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

    @pytest.mark.server("redis-cluster-replica")
    def test_a_killed_node_that_is_promoted_again_is_reached(prefix: str) -> None:
        """Its replica takes over, it comes back as a replica, and takes over in its turn."""
        with (
            exclusive("redis-cluster-replica") as place,
            open_queue(place.url("redis+cluster", "0", prefix=prefix)) as queue,
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
            queue.push(Message(name, id="3"))
            assert [each.id for each in queue.pop(name, 10, wait=_NOW)] == ["1", "2", "3"]
            _assert_idle_pop_is_cheap(queue, name, joined)

    @pytest.mark.server("valkey-cluster-replica")
    def test_a_primary_that_is_cut_off_is_left_for_the_one_that_took_over(prefix: str) -> None:
        """It says CLUSTERDOWN for as long as it is cut off, and clients reach both (LIFE-2)."""
        with (
            exclusive("valkey-cluster-replica") as place,
            open_queue(place.url("redis+cluster", "0", prefix=prefix)) as queue,
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
                queue.push(Message(name, id="2"))
                assert [each.id for each in queue.pop(name, 10, wait=_NOW)] == ["1", "2"]
                _assert_idle_pop_is_cheap(queue, name, joined)
            finally:
                mend(old)
                wait_until(lambda: not is_primary(old))


def _replica(nodes: Sequence[Any]) -> Any:
    [found] = [node for node in nodes if not is_primary(node)]
    return found
