"""The same object after a server forgot its scripts, changed its place, or fell silent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from glide_sync import (
    ClosingError,
    GlideClient,
    GlideClientConfiguration,
    GlideClusterClient,
    GlideClusterClientConfiguration,
    NodeAddress,
)
from tools.backends import exclusive
from tools.backends.clusters import wait_until
from tools.backends.redis import ask

from hypercube_queue import BackendError, BatchError, Message, QueueError, open_queue
from hypercube_queue_lua import slot_of
from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_valkey import ValkeyQueue

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


@pytest.mark.server("valkey")
def test_scripts_that_the_server_forgot_are_sent_again(
    queue: ValkeyQueue, client: GlideClient
) -> None:
    """Between two calls and under running ones; nobody notices."""
    for _ in range(3):
        client.custom_command(["SCRIPT", "FLUSH"])
        queue.push(*(Message(f"q{number % 3}") for number in range(600)))
    client.custom_command(["SCRIPT", "FLUSH"])
    received = [each for number in range(3) for each in queue.pop(f"q{number}", 1000, wait=_NOW)]
    queue.ack(*received)
    assert len(received) == 1800


@pytest.mark.server("valkey-cluster")
def test_queues_of_a_cluster_are_spread_and_pushed_to_in_one_call() -> None:
    """All are found, and odd names are names as others."""
    names = [f"queue {number} {{tag}} é:{{}}" for number in range(30)]
    with (
        exclusive("valkey-cluster") as place,
        open_queue(place.url("valkey+cluster", "0", prefix="spread")) as queue,
    ):
        queue.push(*(Message(name, b"%d" % n) for name in names for n in range(3)))
        assert queue.queues() == sorted(names)
        held = [each for name in names for each in queue.pop(name, 10, wait=_NOW)]
        queue.ack(*held)
        assert queue.queues() == []


@pytest.mark.server("valkey-cluster")
def test_a_node_that_is_down_takes_only_its_queues_along() -> None:
    """Items for the others are stored, and all work again when it is back (ERR-1, LIFE-2)."""
    names = [f"q{number}" for number in range(12)]
    with exclusive("valkey-cluster") as place:
        url = place.url("valkey+cluster", "0", prefix="down", operation_timeout=5)
        address = NodeAddress(place.host, place.port)
        configuration = GlideClusterClientConfiguration([address], request_timeout=10_000)
        with GlideClusterClient.create(configuration) as client:
            # Or they stop all work when one is down.
            client.config_set({"cluster-require-full-coverage": "no"})
        with open_queue(url) as queue:
            queue.push(*(Message(name) for name in names))
            lost = [name for name in names if slot_of(queue_keys("down", name).wake) >= 10922]
            assert 0 < len(lost) < len(names)
            place.nodes[2].kill()
            try:
                with pytest.raises(BatchError) as caught:
                    queue.push(*(Message(name) for name in names))
                assert [names[each.index] for each in caught.value.failed] == lost
            finally:
                place.start()
            eventually(lambda: queue.push(*(Message(name) for name in names)))


@pytest.mark.server("valkey")
def test_an_operation_without_an_answer_is_not_sent_twice() -> None:
    """The outcome is unknown, the time limit is kept, and the same object works again."""
    with exclusive("valkey") as place, place.relay() as relay:
        url = f"valkey://{relay.host}:{relay.port}/0?prefix=silent&operation_timeout=1"
        with (
            open_queue(url) as queue,
            open_queue(place.url("valkey", "0", prefix="silent")) as direct,
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
            # The connection that lost something stays silent for good; another one is used.
            relay.mend()
            assert direct.stats("q").in_flight == 2
            queue.ack(first, second)
            assert direct.stats("q").in_flight == 0


@pytest.mark.server("valkey")
def test_a_waiting_pop_does_not_wait_on_a_server_that_fell_silent() -> None:
    """It looks once a second, and the first look without an answer ends it (ERR-5)."""
    with exclusive("valkey") as place, place.relay() as relay, ThreadPoolExecutor(1) as threads:
        url = f"valkey://{relay.host}:{relay.port}/0?prefix=mute&operation_timeout=2"
        with open_queue(url) as queue:
            popping = threads.submit(queue.pop, "q", wait=timedelta(seconds=120))
            wait_until(lambda: "blocked_clients:0" not in ask(place, "INFO", "clients"))
            relay.cut()
            error = popping.exception(60)
            assert isinstance(error, BackendError)
            relay.drop()


@pytest.mark.server("valkey")
def test_a_waiting_pop_that_loses_its_connection_is_not_deaf() -> None:
    """It raises, or goes on waiting; and the next push is noticed."""
    with exclusive("valkey") as place, place.relay() as relay:
        url = f"valkey://{relay.host}:{relay.port}/0?prefix=dropped&operation_timeout=5"
        with (
            open_queue(url) as queue,
            open_queue(place.url("valkey", "0", prefix="dropped")) as direct,
            ThreadPoolExecutor(1) as threads,
        ):
            popping = threads.submit(queue.pop, "q", wait=timedelta(seconds=20))
            time.sleep(0.5)
            relay.drop()
            time.sleep(0.5)
            direct.push(Message("q", b"0"))
            error = popping.exception(30)
            if error is not None:
                assert isinstance(error, BackendError)
                popping = threads.submit(queue.pop, "q", wait=timedelta(seconds=20))
            assert [each.payload for each in popping.result(30)] == [b"0"]


@pytest.mark.server("valkey")
def test_the_outage_of_a_server_makes_no_crowd_of_clients() -> None:
    """GLIDE comes back by itself, and threads that wait each have a client, not each call."""
    with (
        exclusive("valkey") as place,
        open_queue(place.url("valkey", "0", prefix="outage", operation_timeout=2)) as queue,
    ):
        assert isinstance(queue, ValkeyQueue)
        queue.push(Message("q"))
        made = _threads()
        place.kill()
        for _ in range(5):
            with pytest.raises(BackendError):
                queue.pop("q", wait=_NOW)
        assert _threads() <= made + 4
        place.start()
        eventually(lambda: queue.push(Message("q")))


def _threads() -> int:
    """Of this process, GLIDE's included."""
    with open("/proc/self/status") as status:  # noqa: PTH123 - no file in a folder
        return int(status.read().split("Threads:")[1].split()[0])


if os.environ.get("HYPERCUBE_TEST_ALL") == "1":

    @pytest.mark.server("redis-sentinel")
    def test_the_same_object_finds_the_new_primary() -> None:
        """Of two servers that the URL names, after the old one died."""
        with exclusive("redis-sentinel") as place:
            _sentinel, *servers = place.nodes
            primary, replica = sorted(servers, key=_is_replica)
            url = f"valkey://{replica.host}:{replica.port}/0?prefix=failover&operation_timeout=4"
            with open_queue(f"{url}&also={primary.host}:{primary.port}") as queue:
                queue.push(*(Message("q", id=str(number)) for number in range(10)))
                [held] = queue.pop("q", wait=_NOW)
                _until_replicated(primary)
                primary.kill()
                eventually(lambda: queue.push(Message("q", id="after")))
                queue.ack(held)
                received = queue.pop("q", 100, wait=_NOW)
                assert {each.id for each in received} == {*map(str, range(1, 10)), "after"}


def _is_replica(node: object) -> bool:
    """GLIDE does not connect to a replica alone."""
    try:
        return _told(node, "PING") != b"PONG"
    except ClosingError:
        return True


def _until_replicated(primary: object) -> None:
    """A failover may lose what the replica does not have yet."""
    assert _told(primary, "WAIT", "1", "10000") == 1


def _told(node: object, *words: str) -> bytes | int:
    configuration = GlideClientConfiguration(
        [NodeAddress(node.host, node.port)], request_timeout=15_000
    )
    with GlideClient.create(configuration) as client:
        return client.custom_command(list(words))
