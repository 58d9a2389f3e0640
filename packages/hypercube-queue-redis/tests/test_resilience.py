"""The same object after a server forgot its scripts, changed its place, or fell silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from redis import Redis, RedisCluster
from tools.backends import exclusive
from tools.backends.clusters import wait_until
from tools.backends.redis import ask

from hypercube_queue import BackendError, BatchError, Message, QueueError, open_queue
from hypercube_queue_lua import slot_of
from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_redis import RedisQueue

_NOW = timedelta(0)
_PATIENCE_SECONDS = 30.0


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


@pytest.mark.server("redis")
def test_scripts_that_the_server_forgot_are_sent_again() -> None:
    """Between two calls and under running ones; nobody notices."""
    with (
        exclusive("redis") as place,
        Redis(host=place.host, port=place.port) as client,
        open_queue(place.url("redis", "0", prefix="flushed")) as queue,
    ):
        for _ in range(3):
            client.script_flush()
            queue.push(*(Message(f"q{number % 3}") for number in range(600)))
        stop = threading.Event()

        def flush() -> None:
            while not stop.is_set():
                client.script_flush()

        flushing = threading.Thread(target=flush)
        flushing.start()
        try:
            received = 0
            for number in range(3):
                while deliveries := queue.pop(f"q{number}", 50, wait=_NOW):
                    queue.ack(*deliveries)
                    received += len(deliveries)
        finally:
            stop.set()
            flushing.join()
        assert received == 1800


@pytest.mark.server("redis")
def test_a_server_that_lost_everything_is_filled_again() -> None:
    """Names of queues are noted again, although the object has noted them before (STA-3)."""
    with (
        exclusive("redis") as place,
        Redis(host=place.host, port=place.port) as client,
        open_queue(place.url("redis", "0", prefix="lost")) as queue,
    ):
        queue.push(Message("q"))
        client.flushall()
        assert queue.queues() == []
        queue.push(Message("q"))
        assert queue.queues() == ["q"]


@pytest.mark.server("redis-sentinel")
def test_the_same_object_finds_the_new_primary() -> None:
    """Through Sentinel, after the old one died; messages and deliveries are there."""
    with exclusive("redis-sentinel") as place:
        url = place.url("redis+sentinel", place.service, prefix="failover", operation_timeout=3)
        with open_queue(url) as queue:
            queue.push(*(Message("q", id=str(number)) for number in range(10)))
            [held] = queue.pop("q", wait=_NOW)
            _until_replicated(place.nodes[1:])
            primary = next(node for node in place.nodes[1:] if _role(node) == "master")
            primary.kill()
            eventually(lambda: queue.push(Message("q", id="after")))
            queue.ack(held)
            received = queue.pop("q", 100, wait=_NOW)
            assert {each.id for each in received} == {*map(str, range(1, 10)), "after"}
            queue.ack(*received)


def _role(node: object) -> str:
    try:
        with Redis(host=node.host, port=node.port, socket_timeout=3) as client:
            return client.info("replication")["role"]
    except ConnectionError:
        return "down"


def _until_replicated(nodes: object) -> None:
    """A failover may lose what the replica does not have yet."""
    for node in nodes:
        with Redis(host=node.host, port=node.port) as client:
            if client.info("replication")["role"] == "master":
                assert client.wait(1, 10_000) == 1


@pytest.mark.server("redis")
def test_an_operation_without_an_answer_is_not_sent_twice() -> None:
    """The outcome is unknown, the time limit is kept, and the same object works again."""
    with exclusive("redis") as place, place.relay() as relay:
        url = f"redis://{relay.host}:{relay.port}/0?prefix=silent&operation_timeout=1"
        with (
            open_queue(url) as queue,
            open_queue(place.url("redis", "0", prefix="silent")) as direct,
        ):
            queue.push(Message("q", id="0"), Message("q", id="1"))
            first, second = queue.pop("q", 2)
            relay.cut()
            begun = time.monotonic()
            with pytest.raises(BatchError) as caught:
                queue.ack(first, second)
            assert time.monotonic() - begun < 1 + 3
            assert [failure.index for failure in caught.value.failed] == [0, 1]
            for failure in caught.value.failed:
                assert isinstance(failure.error, BackendError)
                assert failure.error.outcome_unknown
            relay.mend()
            assert direct.stats("q").in_flight == 2
            eventually(lambda: queue.ack(first, second))
            assert direct.stats("q").in_flight == 0


@pytest.mark.server("redis")
def test_a_waiting_pop_does_not_wait_on_a_server_that_fell_silent() -> None:
    """It looks once a second, and the first look without an answer ends it (ERR-5)."""
    with exclusive("redis") as place, place.relay() as relay, ThreadPoolExecutor(1) as threads:
        url = f"redis://{relay.host}:{relay.port}/0?prefix=mute&operation_timeout=2"
        with open_queue(url) as queue:
            popping = threads.submit(queue.pop, "q", wait=timedelta(seconds=120))
            wait_until(lambda: "blocked_clients:0" not in ask(place, "INFO", "clients"))
            relay.cut()
            error = popping.exception(60)
            assert isinstance(error, BackendError)
            relay.drop()


@pytest.mark.server("redis")
def test_a_waiting_pop_that_loses_its_connection_says_so() -> None:
    """And the next one waits on a new connection, and is woken as ever."""
    with exclusive("redis") as place, place.relay() as relay:
        url = f"redis://{relay.host}:{relay.port}/0?prefix=dropped"
        with (
            open_queue(url) as queue,
            open_queue(place.url("redis", "0", prefix="dropped")) as direct,
        ):
            assert isinstance(queue, RedisQueue)
            dropping = threading.Timer(0.3, relay.drop)
            dropping.start()
            with pytest.raises(BackendError, match="lost"):
                queue.pop("q", wait=timedelta(seconds=20))
            pushing = threading.Timer(0.3, lambda: direct.push(Message("q")))
            pushing.start()
            assert len(queue.pop("q", wait=timedelta(seconds=20))) == 1
            dropping.join()
            pushing.join()


@pytest.mark.server("redis-cluster")
def test_a_queue_that_moves_to_another_node_goes_on_working() -> None:
    """While it moves and afterwards, through an object that knew the old place."""
    with (
        exclusive("redis-cluster") as place,
        RedisCluster(host=place.host, port=place.port) as client,
        open_queue(place.url("redis+cluster", "0", prefix="moving")) as queue,
    ):
        queue.push(*(Message("q", id=str(number)) for number in range(5)))
        [held] = queue.pop("q", wait=_NOW)
        keys = queue_keys("moving", "q").all
        slot = slot_of(keys[0])
        source = client.nodes_manager.get_node_from_slot(slot)
        target = next(node for node in client.get_primaries() if node != source)
        source_id, target_id = (
            client.execute_command("CLUSTER MYID", target_nodes=node).decode()
            for node in (source, target)
        )
        old, new = client.get_redis_connection(source), client.get_redis_connection(target)

        def hand_over(giver: Redis, taker: Redis, name: str) -> None:
            # As redis-cli does: what has come into the slot meanwhile goes, too.
            while late := giver.execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
                host, port = (
                    taker.get_connection_kwargs()["host"],
                    taker.get_connection_kwargs()["port"],
                )
                giver.execute_command("MIGRATE", host, port, "", 0, 5000, "REPLACE", "KEYS", *late)
            for node in (taker, giver):
                node.execute_command("CLUSTER SETSLOT", slot, "NODE", name)
            taker.execute_command("CLUSTER BUMPEPOCH")  # so that the others believe it

        there = [key for key in keys if old.exists(key)]
        try:
            new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
            old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
            to = (target.host, target.port, "", 0, 5000)
            old.execute_command("MIGRATE", *to, "KEYS", *there)
            # The old node asks to go to the new one, which wants to be left in peace.
            done = threading.Timer(0.5, hand_over, (old, new, target_id))
            done.start()
            queue.push(Message("q", id="moving"))
            queue.ack(held)
            done.join()
            received = queue.pop("q", 10, wait=_NOW)
            assert [each.id for each in received] == ["1", "2", "3", "4", "moving"]
            queue.ack(*received)
        finally:
            client.nodes_manager.initialize()
            client.delete(*keys)
            hand_over(new, old, source_id)


@pytest.mark.server("redis-cluster")
def test_queues_are_spread_and_pushed_to_in_one_call() -> None:
    """Of thirty queues each node has some, all are found, and odd names are names as others."""
    names = [f"queue {number} {{tag}} é:{{}}" for number in range(30)]
    with (
        exclusive("redis-cluster") as place,
        open_queue(place.url("redis+cluster", "0", prefix="spread")) as queue,
    ):
        queue.push(*(Message(name, b"%d" % n) for name in names for n in range(3)))
        assert queue.queues() == sorted(names)
        slots = {slot_of(queue_keys("spread", name).wake) * 3 // 16384 for name in names}
        assert slots == {0, 1, 2}
        held = [each for name in names for each in queue.pop(name, 10, wait=_NOW)]
        queue.ack(*held)
        assert queue.queues() == []


@pytest.mark.server("redis-cluster")
def test_a_node_that_is_down_takes_only_its_queues_along() -> None:
    """Items for the others are stored, and all work again when it is back (ERR-1, LIFE-2)."""
    names = [f"q{number}" for number in range(12)]
    with exclusive("redis-cluster") as place:
        url = place.url("redis+cluster", "0", prefix="down", operation_timeout=6)
        with RedisCluster(host=place.host, port=place.port) as client, open_queue(url) as queue:
            for node in client.get_primaries():  # or they stop all work when one is down
                client.config_set("cluster-require-full-coverage", "no", target_nodes=node)
            queue.push(*(Message(name) for name in names))
            down = place.nodes[2]
            lost = [name for name in names if slot_of(queue_keys("down", name).wake) >= 10922]
            assert 0 < len(lost) < len(names)
            down.kill()
            try:
                with pytest.raises(BatchError) as caught:
                    queue.push(*(Message(name) for name in names))
                assert [names[each.index] for each in caught.value.failed] == lost
            finally:
                place.start()
            eventually(lambda: queue.push(*(Message(name) for name in names)))
