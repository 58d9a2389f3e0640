"""Celery on Redis with late acknowledgement, its worker's pool "solo": the process itself."""

# Its imports are there only where the benchmark runs it.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import json
import logging
import sys
import time
import warnings

from celery import Celery
from celery.worker import state


def main(*, address: str, singly: int, bulk: int, prefetch: int) -> dict[str, float]:
    """Its rates; there is no call that enqueues many at once."""
    warnings.simplefilter("ignore")  # it warns of root
    app = Celery("bench", broker=address)
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=prefetch,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    total = singly + bulk
    done = 0
    last = 0.0

    @app.task(name="noop")
    def noop(text: str) -> None:
        nonlocal done, last
        del text
        done += 1
        last = time.perf_counter()
        if done == total:
            state.should_stop = 0  # an exit status

    start = time.perf_counter()
    for _ in range(total):
        noop.delay("x" * 100)
    rates = {"singly": total / (time.perf_counter() - start)}

    logging.disable()
    worker = app.Worker(
        pool="solo",
        concurrency=1,
        loglevel="ERROR",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    start = time.perf_counter()
    worker.start()
    if done != total:
        raise SystemExit(f"{done} of {total} jobs were done")
    # Up to the last handler: how it ends is not measured.
    rates["drain"] = total / (last - start)
    return rates


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
