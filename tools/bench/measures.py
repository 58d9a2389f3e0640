"""The measurements. Each returns figures; none judges them."""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from backends import Backend
from hypercube_jobs import Jobs, Worker
from hypercube_queue import Message, Queue, open_queue
from raw import PAYLOAD, Raw

#: Turns of each side of a comparison, taken alternately so that a slow moment hits both.
ROUNDS = 5
#: The two backlogs whose pops are compared.
SHALLOW, DEEP = 1_000, 100_000
_NOW = timedelta(0)


@dataclass(frozen=True)
class Figure:
    """A median rate, and what part of the raw limit it is where there is one."""

    name: str
    value: float
    unit: str
    of_raw: float | None = None


def measure(backend: Backend, *, scale: float) -> Iterator[Figure]:
    """All figures of one backend; `scale` shrinks the amounts for a quick look."""
    for batch in (1, 100):
        yield from _compared(backend, batch, max(batch, int(_amount(batch) * scale)))
    yield from _pop_cost(backend, scale)
    drained = int(10_000 * scale)
    yield _drain(backend, drained, kind="sync")
    yield _drain(backend, drained, kind="async")
    yield _idle(backend, seconds=max(0.5, 3 * scale))


def _amount(batch: int) -> int:
    return 1_000 if batch == 1 else 10_000


def _compared(backend: Backend, batch: int, amount: int) -> Iterator[Figure]:
    """Push, then pop and ack, `amount` messages in batches, ours and raw in turns."""
    push: list[float] = []
    raw_push: list[float] = []
    take: list[float] = []
    raw_take: list[float] = []
    with _fresh(backend) as (queue, raw):
        for _ in range(ROUNDS):
            for _step in range(2):  # the first time round warms up both sides
                raw_push.append(_rate(amount, lambda: raw.push(batch), batch))
                push.append(_rate(amount, lambda: queue.push(*_messages(batch)), batch))
                raw_take.append(_rate(amount, lambda: raw.pop_and_ack(batch), batch))
                take.append(_rate(amount, lambda: _pop_and_ack(queue, batch), batch))
    yield _against_raw(f"push({batch})", push, raw_push)
    yield _against_raw(f"pop+ack({batch})", take, raw_take)


def _against_raw(name: str, ours: list[float], raw: list[float]) -> Figure:
    pairs = [our / limit for our, limit in zip(ours, raw, strict=True)]
    return Figure(name, statistics.median(ours), "msg/s", statistics.median(pairs))


def _pop_cost(backend: Backend, scale: float) -> Iterator[Figure]:
    costs = []
    for behind in (int(SHALLOW * scale), int(DEEP * scale)):
        with _fresh(backend) as (queue, _raw):
            for _ in range(0, behind, 1_000):
                queue.push(*_messages(min(1_000, behind)))
            samples = []
            for _ in range(100):
                start = time.perf_counter()
                popped = queue.pop("bench", wait=_NOW)
                samples.append(time.perf_counter() - start)
                queue.ack(*popped)
            costs.append(statistics.median(samples))
            yield Figure(f"pop with {behind:,} behind", costs[-1] * 1e6, "us")
    yield Figure("pop cost, deep by shallow", costs[1] / costs[0], "x")


def _drain(backend: Backend, amount: int, *, kind: str) -> Figure:
    """A worker with default settings empties the queue of no-op jobs."""
    rates = []
    for _ in range(3):
        with _fresh(backend) as (queue, _raw):
            jobs = Jobs(queue)
            if kind == "sync":
                jobs.handler("noop")(_noop)
            else:
                jobs.handler("noop")(_async_noop)
            template = jobs.message(Noop(1))
            for _ in range(0, amount, 100):
                queue.push(
                    *(
                        Message(
                            template.queue_name,
                            template.payload,
                            template.job_name,
                            template.namespace,
                            extra=template.extra,
                        )
                        for _ in range(100)
                    )
                )
            start = time.perf_counter()
            Worker(jobs, stop_when_empty=True).run()
            rates.append(amount / (time.perf_counter() - start))
    return Figure(f"worker drain of {amount:,}, {kind}", statistics.median(rates), "jobs/s")


@dataclass
class Noop:
    """A job of about the size of a real one's reference."""

    number: int


def _noop(_job: Noop) -> None: ...


async def _async_noop(_job: Noop) -> None: ...


def _idle(backend: Backend, *, seconds: float) -> Figure:
    """What waiting costs: processor time of this process while one pop finds nothing."""
    with _fresh(backend) as (queue, _raw):
        queue.pop("bench", wait=_NOW)
        start = time.process_time()
        queue.pop("bench", wait=timedelta(seconds=seconds))
        return Figure("idle pop", (time.process_time() - start) / seconds * 100, "% of a core")


@contextmanager
def _fresh(backend: Backend) -> Iterator[tuple[Queue, Raw]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = backend.raw(folder)
        with open_queue(backend.url(folder)) as queue:
            yield queue, raw
        raw.close()


def _messages(count: int) -> list[Message]:
    return [Message("bench", PAYLOAD) for _ in range(count)]


def _pop_and_ack(queue: Queue, batch: int) -> None:
    queue.ack(*queue.pop("bench", batch, wait=_NOW))


def _rate(amount: int, step: Callable[[], None], batch: int) -> float:
    start = time.perf_counter()
    for _ in range(0, amount, batch):
        step()
    return amount / (time.perf_counter() - start)


logging.getLogger("hypercube_jobs").setLevel(logging.WARNING)
