"""PgQueuer over asyncpg and uvloop; `batch_size` is its worker's."""

# Its imports are there only where the benchmark runs it.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import asyncio
import json
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

#: Jobs in one call.
_MANY = 1_000


async def main(*, address: str, singly: int, bulk: int, batch_size: int) -> dict[str, float]:
    """Its rates."""
    connection = await asyncpg.connect(address)
    queries = Queries.from_asyncpg_connection(connection)
    await queries.install()
    payload = b"x" * 100

    start = time.perf_counter()
    for _ in range(singly):
        await queries.enqueue("noop", payload)
    rates = {"singly": singly / (time.perf_counter() - start)}

    start = time.perf_counter()
    for first in range(0, bulk, _MANY):
        count = min(_MANY, bulk - first)
        await queries.enqueue(["noop"] * count, [payload] * count, [0] * count)
    rates["bulk"] = bulk / (time.perf_counter() - start)

    queue = PgQueuer.from_asyncpg_connection(connection)
    done = 0
    last = 0.0

    @queue.entrypoint("noop")
    async def noop(_job: Job) -> None:
        nonlocal done, last
        done += 1
        last = time.perf_counter()

    start = time.perf_counter()
    await queue.run(batch_size=batch_size, mode=QueueExecutionMode.drain)
    if done != singly + bulk:
        raise SystemExit(f"{done} of {singly + bulk} jobs were done")
    # Up to the last handler: how it ends is not measured.
    rates["drain"] = done / (last - start)
    await connection.close()
    return rates


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(main(**json.load(sys.stdin)))))
