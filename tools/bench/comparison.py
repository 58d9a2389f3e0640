"""The same jobs through us and through other queues, in turns on the same server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from tools.bench.backends import Backend
from tools.bench.contestants import Peer
from tools.bench.jobs import Noop, dispatch_many, drain, noop_jobs

from hypercube_queue import open_queue

_ROUNDS = 5
_SINGLY, _BULK = 500, 10_000


@dataclass(frozen=True)
class Standing:
    """Median rates of one queue in jobs per second; `bulk` is None where it has no call for it."""

    title: str
    singly: float
    bulk: float | None
    drain: float
    delivery: str
    #: How many times as fast we drain, with handlers that are functions.
    ratio: float


def compare(backend: Backend, peers: Sequence[Peer], *, scale: float) -> list[Standing]:
    """Us with either kind of handler first, then the peers."""
    for peer in peers:
        peer.install()
    titles = ["hypercube, sync", "hypercube, async", *(peer.title for peer in peers)]
    rates: dict[str, list[dict[str, float]]] = {title: [] for title in titles}
    for _ in range(_ROUNDS):
        for kind in ("sync", "async"):
            rates[f"hypercube, {kind}"].append(_ours(backend, kind, scale))
        for peer in peers:
            with backend.fresh() as store:
                rates[peer.title].append(peer.rates(store.address, scale))
    deliveries = ["at least once"] * 2 + [peer.delivery for peer in peers]
    reference = [each["drain"] for each in rates[titles[0]]]
    return [
        _standing(title, rates[title], delivery, reference)
        for title, delivery in zip(titles, deliveries, strict=True)
    ]


def _ours(backend: Backend, kind: str, scale: float) -> dict[str, float]:
    singly, bulk = int(_SINGLY * scale), int(_BULK * scale)
    with backend.fresh() as store, open_queue(store.url) as queue:
        jobs = noop_jobs(queue, kind)
        queue.pop("default", wait=timedelta(0))
        start = time.perf_counter()
        for number in range(singly):
            jobs.dispatch(Noop(number))
        dispatched = time.perf_counter()
        dispatch_many(jobs, bulk)
        stored = time.perf_counter()
        drain(jobs)
        drained = time.perf_counter()
    return {
        "singly": singly / (dispatched - start),
        "bulk": bulk / (stored - dispatched),
        "drain": (singly + bulk) / (drained - stored),
    }


def _standing(
    title: str, rates: Sequence[dict[str, float]], delivery: str, reference: Sequence[float]
) -> Standing:
    bulk = [each["bulk"] for each in rates if "bulk" in each]
    ratios = [ours / each["drain"] for ours, each in zip(reference, rates, strict=True)]
    return Standing(
        title,
        statistics.median(each["singly"] for each in rates),
        statistics.median(bulk) if bulk else None,
        statistics.median(each["drain"] for each in rates),
        delivery,
        statistics.median(ratios),
    )
