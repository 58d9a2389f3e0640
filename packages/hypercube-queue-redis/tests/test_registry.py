"""The registry of names: what it loses, and what it never loses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis
from tools.backends import server

from hypercube_queue import Message, QueueError, open_queue
from hypercube_queue.driver import Deadline, PushBatch
from hypercube_queue_lua import GUARANTEES, Call, Reply, _registry
from hypercube_queue_lua._keys import queue_keys, registry_key
from hypercube_queue_lua._storage import Storage
from hypercube_queue_redis import RedisQueue
from hypercube_queue_redis._client import RedisClient
from hypercube_queue_redis._nodes import OneServer

_NOW = timedelta(0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is empty counts as unused at once."""
    monkeypatch.setattr(_registry, "_UNUSED_US", 0)


def _use(queue: RedisQueue, *names: str) -> None:
    queue.push(*(Message(name) for name in names))
    for name in names:
        queue.ack(*queue.pop(name, wait=_NOW))


@pytest.mark.server("redis")
def test_names_of_unused_queues_are_removed_by_a_listing(
    queue: RedisQueue, client: Redis, prefix: str, impatient: None
) -> None:
    """More of them than one page; those that retain anything stay, whatever its state."""
    names = [f"once {number}" for number in range(2500)]
    queue.push(*(Message(name) for name in names))
    for name in names:
        client.unlink(*queue_keys(prefix, name).all[1:])  # as if all were acknowledged
    queue.push(Message("ready"), Message("dead"), Message("held"))
    queue.push(Message("delayed", delay=timedelta(hours=1)))
    queue.dead_letter(*queue.pop("dead"))
    [held] = queue.pop("held")
    assert queue.queues() == ["dead", "delayed", "held", "ready"]
    assert client.hlen(registry_key(prefix)) == 4
    queue.ack(held)
    assert queue.queues() == ["dead", "delayed", "ready"]
    assert client.hlen(registry_key(prefix)) == 3


@pytest.mark.server("redis")
def test_a_queue_that_was_used_of_late_stays_in_the_registry(
    queue: RedisQueue, client: Redis, prefix: str
) -> None:
    """Its next push would cost more."""
    _use(queue, "q")
    assert queue.queues() == []
    assert client.hlen(registry_key(prefix)) == 1


@pytest.mark.server("redis", "redis-cluster")
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_a_queue_comes_back_with_its_next_push(scheme: str, prefix: str, impatient: None) -> None:
    """Through an object that knew the name, and through one that did not (STA-3)."""
    url = server(scheme.replace("+", "-")).url(scheme, "0", prefix=prefix)
    with open_queue(url) as queue, open_queue(url) as other, open_queue(url) as third:
        for each in (queue, other, queue, third, other):
            _use(queue, "q", "p")
            assert queue.queues() == []
            each.push(*(Message("q", b"%d" % number) for number in range(300)), Message("p"))
            assert queue.queues() == ["p", "q"]
            received = [held for _ in range(3) for held in queue.pop("q", 300, wait=_NOW)]
            assert [held.payload for held in received] == [b"%d" % n for n in range(300)]
            queue.ack(*received, *queue.pop("p"))


@pytest.mark.server("redis")
def test_what_somebody_wrote_into_the_registry_disturbs_nobody(
    queue: RedisQueue, client: Redis, prefix: str, impatient: None
) -> None:
    """What is no name is not listed, and what is no generation is not trusted."""
    queue.push(Message("q"), Message("p"))
    registry = registry_key(prefix)
    for name in (b"\xff", b"", b"line\nbreak", b"x" * 256):
        client.hset(registry, name, 0)
    client.hset(registry, "q", "none")
    client.hset(registry, "p", "1e99")
    assert queue.queues() == ["p", "q"]
    queue.ack(*queue.pop("q"), *queue.pop("p"))
    assert queue.queues() == []
    queue.push(Message("q"), Message("p"))
    assert queue.queues() == ["p", "q"]


class _Killed(BaseException):
    """Ends an actor in the middle of what it does."""


class _Actor:
    """Something that calls scripts, one at a time, each when it is told to.

    It is the client of a storage, and runs what is done with that in a thread of its own.
    """

    def __init__(self, client: RedisClient, prefix: str) -> None:
        self._client = client
        self._turn = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self.was_killed = False
        self.pushes = False
        self.storage = Storage(self, prefix)
        self.steps = 0
        self.is_done = False

    def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
        replies: list[Reply | QueueError] = []
        for call in calls:
            if self._thread is not None:
                self._waits.release()
                self._turn.acquire()
                if self.was_killed:
                    raise _Killed
                self.steps += 1
            replies += self._client.run([call], end)
        return replies

    def begin(self, work: Callable[[Storage], object]) -> None:
        def act() -> None:
            try:
                work(self.storage)
            except _Killed:
                pass
            finally:
                self.is_done = True
                self._waits.release()

        self._thread = threading.Thread(target=act)
        self._thread.start()
        self._waits.acquire()

    def step(self) -> None:
        self._turn.release()
        self._waits.acquire()

    def kill(self) -> None:
        if not self.is_done:
            self.was_killed = True
            self.step()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join()


def _push(storage: Storage) -> None:
    batch = PushBatch([Message("q")], GUARANTEES)
    storage.push(batch, Deadline(timedelta(seconds=30)))
    batch.raise_failures()


def _list(storage: Storage) -> None:
    storage.names(Deadline(timedelta(seconds=30)))


class _World:
    """A queue that is empty and registered, pushers that know it or do not, and listings."""

    def __init__(self, client: Redis, prefix: str, works: Sequence[str]) -> None:
        self._redis = client
        self._scripts = RedisClient(lambda: OneServer(client), "redis", owned=False)
        self._registry = registry_key(prefix)
        self._bodies = queue_keys(prefix, "q").all[1]
        self._keys = [*queue_keys(prefix, "q").all, self._registry]
        client.delete(*self._keys)
        self.actors = [_Actor(self._scripts, prefix) for _ in works]
        for actor, work in zip(self.actors, works, strict=True):
            if work == "push, knows the name":
                _push(actor.storage)
        if not client.exists(self._registry):
            _push(Storage(self._scripts, prefix))
        client.delete(*self._keys[1:-2])  # what acks would leave: no message, no token
        for actor, work in zip(self.actors, works, strict=True):
            actor.pushes = work != "list"
            actor.begin(_push if actor.pushes else _list)

    @property
    def is_registered(self) -> bool:
        return bool(self._redis.hexists(self._registry, "q"))

    @property
    def retained(self) -> int:
        return int(self._redis.hlen(self._bodies))


def _explore(
    make: Callable[[], _World], death: tuple[int, int] | None
) -> Iterator[tuple[list[bool], _World]]:
    """Every order in which the actors can take their steps.

    Gives whether the name was registered after each step, and the world at the end. `death` says
    which actor dies before which of its steps.
    """
    prefixes: list[list[int]] = [[]]
    while prefixes:
        prefix = prefixes.pop()
        world, trace, seen = make(), [], []
        while True:
            if death is not None and world.actors[death[0]].steps == death[1]:
                world.actors[death[0]].kill()
            able = [number for number, actor in enumerate(world.actors) if not actor.is_done]
            if not able:
                break
            chosen = prefix[len(trace)] if len(trace) < len(prefix) else able[0]
            if len(trace) >= len(prefix):
                prefixes += [[*trace, other] for other in able[1:]]
            trace.append(chosen)
            world.actors[chosen].step()
            registered = world.is_registered
            assert registered or not world.retained, f"lost in the order {trace}, death {death}"
            seen.append(registered)
        for actor in world.actors:
            actor.join()
        yield seen, world


@pytest.mark.server("redis")
@pytest.mark.parametrize(
    "works",
    [
        ("push, knows the name", "list"),
        ("push", "list"),
        ("push, knows the name", "push"),
    ],
    ids=" and ".join,
)
def test_no_order_of_steps_leaves_a_message_in_a_queue_that_is_not_registered(
    client: Redis, prefix: str, impatient: None, works: tuple[str, ...]
) -> None:
    """Of a push and a removal of the name, also where one of them dies between two steps."""
    removed = orders = 0
    pushes = sum(work != "list" for work in works)
    deaths: list[Any] = [None, *((actor, step) for actor in (0, 1) for step in range(5))]
    for death in deaths:
        for seen, world in _explore(lambda: _World(client, prefix, works), death):
            orders += 1
            removed += False in seen
            died = sum(actor.was_killed for actor in world.actors if actor.pushes)
            assert pushes - died <= world.retained <= pushes
    assert orders > len(deaths)
    assert bool(removed) == ("list" in works)
