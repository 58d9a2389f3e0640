"""arq over uvloop; `concurrency` is its worker's."""

# Its imports are there only where the benchmark runs it.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

import uvloop
from arq import Worker, create_pool, func
from arq.connections import RedisSettings

#: Jobs that are enqueued at the same time.
_MANY = 100
#: Seconds between two looks for jobs, which it otherwise spends asleep.
_POLL = 0.001


async def main(*, address: str, singly: int, bulk: int, concurrency: int) -> dict[str, float]:
    """Its rates; many at once are many calls at the same time."""
    logging.disable()
    pool = await create_pool(RedisSettings.from_dsn(address))
    done = 0
    last = 0.0

    async def noop(_context: dict[Any, Any], text: str) -> None:
        nonlocal done, last
        del text
        done += 1
        last = time.perf_counter()

    start = time.perf_counter()
    for _ in range(singly):
        await pool.enqueue_job("noop", "x" * 100)
    rates = {"singly": singly / (time.perf_counter() - start)}

    start = time.perf_counter()
    for first in range(0, bulk, _MANY):
        calls = [pool.enqueue_job("noop", "x" * 100) for _ in range(min(_MANY, bulk - first))]
        await asyncio.gather(*calls)
    rates["bulk"] = bulk / (time.perf_counter() - start)

    start = time.perf_counter()
    worker = Worker(
        [func(noop, name="noop", keep_result=0)],
        redis_pool=pool,
        burst=True,
        max_jobs=concurrency,
        poll_delay=_POLL,
        handle_signals=False,
        log_results=False,
    )
    await worker.async_run()
    if done != singly + bulk:
        raise SystemExit(f"{done} of {singly + bulk} jobs were done")
    # Up to the last handler: how it ends is not measured.
    rates["drain"] = done / (last - start)
    return rates


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(main(**json.load(sys.stdin)))))
