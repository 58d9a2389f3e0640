"""A cluster of three nodes, of which one is cut off or killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from tools.backends import exclusive
from tools.backends.instance import ExclusiveServer, Server
from tools.backends.rabbitmq_nodes import cut_off, join

from hypercube_queue import BatchError, Message, QueueError
from hypercube_queue_rabbitmq import RabbitMQQueue

pytestmark = [pytest.mark.server("rabbitmq-cluster"), pytest.mark.nightly]

_LIMIT = 5.0


@pytest.fixture
def cluster() -> Iterator[ExclusiveServer]:
    """Three nodes for this test alone."""
    with exclusive("rabbitmq-cluster") as place:
        yield place


@pytest.fixture
def queue(
    cluster: ExclusiveServer, prefix: str, open_: Callable[[str], RabbitMQQueue]
) -> RabbitMQQueue:
    """A queue on all nodes, with both connections to the same one."""
    hosts = ",".join(f"{each.host}:{each.port}" for each in cluster.nodes)
    url = cluster.url("amqp", prefix=prefix, operation_timeout=_LIMIT)
    queue = open_(url.replace(f"{cluster.host}:{cluster.port}", hosts))
    queue._client._publishing._next = queue._client._consuming._next = 0
    queue.push(Message("work", id="before"))
    queue.ack(*queue.pop("work", wait=timedelta(seconds=20)))
    time.sleep(2)  # a node that is killed forgets quorum queues of its last moment
    return queue


def _failures(call: Callable[[], object]) -> int:
    """How often it failed until it did not; each time within its limit."""
    count = 0
    end = time.monotonic() + 60
    while True:
        begun = time.monotonic()
        try:
            call()
        except (BatchError, QueueError):
            assert time.monotonic() < end
            assert time.monotonic() - begun < _LIMIT + 5
            count += 1
            time.sleep(0.1)
        else:
            return count


def _drained(queue: RabbitMQQueue) -> set[str]:
    found: set[str] = set()
    while deliveries := queue.pop("work", 100, wait=timedelta(seconds=2)):
        found.update(each.id for each in deliveries)
        queue.ack(*deliveries)
    return found


def _others(cluster: ExclusiveServer) -> list[Server]:
    return list(cluster.nodes[1:])


def test_a_node_that_was_cut_off_is_left_after_one_time_limit(
    cluster: ExclusiveServer, queue: RabbitMQQueue
) -> None:
    """It accepts connections and confirms nothing; each of the two connections finds that out."""
    node, others = cluster.nodes[0], _others(cluster)
    cut_off(node, others)
    try:
        # The queue may need a moment to choose another leader.
        failed = [
            _failures(lambda n=number: queue.push(Message("work", id=f"during {n}")))  # type: ignore[misc]
            for number in range(10)
        ]
        assert sum(failed) <= 2
        assert queue._client._publishing._raw.params.port != node.port
        failed = [_failures(lambda: queue.pop("other", wait=timedelta(0))) for _ in range(3)]
        assert sum(failed) <= 2
        assert queue._client._consuming._raw.params.port != node.port
        found = _drained(queue)
    finally:
        join(node, others)
    assert found >= {f"during {n}" for n in range(10)}


def test_a_node_that_was_killed_is_left_at_once(
    cluster: ExclusiveServer, queue: RabbitMQQueue
) -> None:
    """What was confirmed before is still there."""
    queue.push(*(Message("work", id=f"before {n}") for n in range(20)))
    cluster.nodes[0].kill()  # type: ignore[attr-defined]  # each node of it is exclusive as well
    _failures(lambda: queue.push(Message("work", id="after")))
    assert _drained(queue) >= {"after", *(f"before {n}" for n in range(20))}
