"""The measurements. Each returns figures; none judges them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from tools.bench.backends import Backend
from tools.bench.jobs import dispatch_many, drain, noop_jobs
from tools.bench.pickup import pickup_seconds
from tools.bench.raw import PAYLOAD, Raw

from hypercube_queue import Message, Queue, open_queue

#: Turns of each side of a comparison, taken alternately so that a slow moment hits both.
ROUNDS = 10
#: Messages in the backlog that others are compared with; each backend says how long those are.
SHALLOW = 1_000
#: Turns of each drain.
_DRAINS = 5
#: Messages in one call that fills a backlog.
_MANY = 10_000
#: Of the pops that are timed with each backlog.
_POPS = 200
#: Idle pops at a time: a core that has slept runs its first instructions at a tenth of its
#: speed, and one pop alone would be measured by that.
_IDLE = 20
_NOW = timedelta(0)


@dataclass(frozen=True)
class Figure:
    """A median, and what part of the raw limit it is where there is one."""

    name: str
    value: float
    unit: str
    of_raw: float | None = None


def measure(backend: Backend, *, scale: float) -> Iterator[Figure]:
    """All figures of one backend; `scale` shrinks the amounts for a quick look."""
    for batch in backend.batches:
        yield from _compared(backend, batch, max(batch, int(_amount(batch) * scale)))
    yield from _pop_costs(backend, scale)
    yield from _drains(backend, int(10_000 * scale))
    if backend.shared:
        yield _pickup(backend, max(5, int(20 * scale)))
    yield from _idle(backend, seconds=max(0.5, 3 * scale))


def _amount(batch: int) -> int:
    return 500 if batch == 1 else 10_000


def _compared(backend: Backend, batch: int, amount: int) -> Iterator[Figure]:
    """Push, then pop and ack, `amount` messages in batches, ours and raw in turns."""
    push: list[float] = []
    raw_push: list[float] = []
    take: list[float] = []
    raw_take: list[float] = []
    with _beside_raw(backend) as (queue, raw):
        for number in range(ROUNDS + 1):
            raw_push.append(_rate(amount, lambda: raw.push(batch), batch))
            push.append(_rate(amount, lambda: queue.push(*_messages(batch)), batch))
            raw_take.append(_rate(amount, lambda: raw.pop_and_ack(batch), batch))
            take.append(_rate(amount, lambda: _pop_and_ack(queue, batch), batch))
            if number == 0:  # it warms up both sides
                for rates in (push, raw_push, take, raw_take):
                    rates.clear()
    yield _against_raw(f"push({batch})", push, raw_push)
    yield _against_raw(f"pop+ack({batch})", take, raw_take)


def _against_raw(name: str, ours: list[float], raw: list[float]) -> Figure:
    pairs = [our / limit for our, limit in zip(ours, raw, strict=True)]
    return Figure(name, statistics.median(ours), "msg/s", statistics.median(pairs))


def _pop_costs(backend: Backend, scale: float) -> Iterator[Figure]:
    """Pops of one message before several backlogs, in turns."""
    shallow, deep, buried = (int(all * scale) for all in (SHALLOW, backend.deep, backend.dead))
    with ExitStack() as opened:
        places = [opened.enter_context(backend.fresh()) for _ in range(3)]
        few, many, dead = queues = [opened.enter_context(open_queue(store.url)) for store in places]
        _fill(few, shallow)
        _fill(many, deep)
        _bury(dead, buried)
        _fill(dead, shallow)
        cleanings = [store.clean for store in places if store.clean]
        just = _medians_of_pops((few, dead)) if cleanings else []
        for clean in cleanings:
            clean()
        costs = _medians_of_pops(queues)
    yield Figure(f"pop before {shallow:,} ready", costs[0] * 1e6, "us")
    yield Figure(f"pop before {deep:,} ready", costs[1] * 1e6, "us")
    yield Figure(f"pop before {shallow:,} ready, {buried:,} dead", costs[2] * 1e6, "us")
    yield Figure("pop cost, many ready by few", costs[1] / costs[0], "x")
    yield Figure("pop cost, many dead by none", costs[2] / costs[0], "x")
    if just:
        yield Figure("pop cost, many who have just died", just[1] / just[0], "x")


def _medians_of_pops(queues: Sequence[Queue]) -> list[float]:
    samples: list[list[float]] = [[] for _ in queues]
    for _ in range(_POPS):
        for queue, times in zip(queues, samples, strict=True):
            start = time.perf_counter()
            popped = queue.pop("bench", wait=_NOW)
            times.append(time.perf_counter() - start)
            queue.ack(*popped)
            queue.push(*_messages(1))  # the backlog stays
    return [statistics.median(times) for times in samples]


def _fill(queue: Queue, count: int) -> None:
    for first in range(0, count, _MANY):
        queue.push(*_messages(min(_MANY, count - first)))


def _bury(queue: Queue, count: int) -> None:
    for first in range(0, count, _MANY):
        some = min(_MANY, count - first)
        queue.push(*_messages(some))
        while some > 0:
            popped = queue.pop("bench", some, wait=_NOW)
            queue.dead_letter(*popped)
            some -= len(popped)


def _drains(backend: Backend, amount: int) -> Iterator[Figure]:
    """Workers empty a queue of no-op jobs, in turns with a loop that just pops and acknowledges."""
    loops: list[float] = []
    drains: dict[str, list[float]] = {"sync": [], "async": []}
    for _ in range(_DRAINS):
        with _fresh(backend) as queue:
            dispatch_many(noop_jobs(queue, "sync"), amount)
            loops.append(_rate(amount, partial(_pop_and_ack, queue, 100, "default"), 100))
            for kind, rates in drains.items():
                jobs = noop_jobs(queue, kind)
                dispatch_many(jobs, amount)
                rates.append(_rate(amount, partial(drain, jobs), amount))
    for kind, rates in drains.items():
        yield Figure(f"worker drain of {amount:,}, {kind}", statistics.median(rates), "jobs/s")
    for kind, rates in drains.items():
        ratios = [rate / loop for rate, loop in zip(rates, loops, strict=True)]
        yield Figure(f"worker drain by pop+ack(100), {kind}", statistics.median(ratios), "x")


def _pickup(backend: Backend, count: int) -> Figure:
    """How long after the call of a push a pop of another process has the message."""
    with backend.fresh() as store, open_queue(store.url) as queue:
        seconds = statistics.median(pickup_seconds(queue, store.url, count))
    return Figure("pick-up by another process", seconds * 1_000, "ms")


def _idle(backend: Backend, *, seconds: float) -> Iterator[Figure]:
    """What waiting costs: processor time of this process, and statements of the server."""
    with backend.fresh() as store:
        with open_queue(store.url) as queue:
            _wait_for_nothing(queue, _NOW)  # makes what is made once
        counts = []
        for wait in (seconds, 3 * seconds):
            before = store.statements() if store.statements else 0
            with open_queue(store.url) as queue:
                _wait_for_nothing(queue, _NOW)
                start = time.process_time()
                _wait_for_nothing(queue, timedelta(seconds=wait))
                spent = (time.process_time() - start) / wait
            time.sleep(0.5)  # PostgreSQL counts when the connection is gone
            counts.append((store.statements() if store.statements else 0) - before)
    yield Figure("idle pop", spent / _IDLE * 100, "% of a core")
    if store.statements:
        # What opening costs is in both. The server's own housekeeping may be in either.
        each_second = (counts[1] - counts[0]) / (2 * seconds)
        yield Figure("idle pop", each_second / _IDLE, "statements/s")


def _wait_for_nothing(queue: Queue, wait: timedelta) -> None:
    """Idle pops, each of a queue of its own."""
    with ThreadPoolExecutor(_IDLE) as pool:
        pops = [pool.submit(queue.pop, f"idle-{n}", wait=wait) for n in range(_IDLE)]
        for each in pops:
            each.result()


@contextmanager
def _fresh(backend: Backend) -> Iterator[Queue]:
    with backend.fresh() as store, open_queue(store.url) as queue:
        yield queue


@contextmanager
def _beside_raw(backend: Backend) -> Iterator[tuple[Queue, Raw]]:
    with backend.fresh() as store:
        raw = store.raw()
        with open_queue(store.url) as queue:
            yield queue, raw
        raw.close()


def _messages(count: int) -> list[Message]:
    return [Message("bench", PAYLOAD) for _ in range(count)]


def _pop_and_ack(queue: Queue, batch: int, name: str = "bench") -> None:
    while batch > 0:  # a pop may bring less than there is
        popped = queue.pop(name, batch, wait=_NOW)
        queue.ack(*popped)
        batch -= len(popped)


def _rate(amount: int, step: Callable[[], None], batch: int) -> float:
    start = time.perf_counter()
    for _ in range(0, amount, batch):
        step()
    return amount / (time.perf_counter() - start)
