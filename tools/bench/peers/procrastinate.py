"""Procrastinate over psycopg; `concurrency` is its worker's."""

# Its imports are there only where the benchmark runs it.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

import procrastinate

#: Jobs in one call.
_MANY = 1_000


async def main(*, address: str, singly: int, bulk: int, concurrency: int) -> dict[str, float]:
    """Its rates."""
    logging.disable()  # it warns of an application in the main module
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=address))
    done = 0
    last = 0.0

    @app.task(name="noop")
    async def noop(text: str) -> None:
        nonlocal done, last
        del text
        done += 1
        last = time.perf_counter()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        job = {"text": "x" * 90}

        start = time.perf_counter()
        for _ in range(singly):
            await noop.defer_async(**job)
        rates = {"singly": singly / (time.perf_counter() - start)}

        start = time.perf_counter()
        for first in range(0, bulk, _MANY):
            await noop.batch_defer_async(*[job] * min(_MANY, bulk - first))
        rates["bulk"] = bulk / (time.perf_counter() - start)

        start = time.perf_counter()
        # Without listening it is a little faster, and there is nothing to hear.
        await app.run_worker_async(wait=False, listen_notify=False, concurrency=concurrency)
    if done != singly + bulk:
        raise SystemExit(f"{done} of {singly + bulk} jobs were done")
    # Up to the last handler: how it ends is not measured.
    rates["drain"] = done / (last - start)
    return rates


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(**json.load(sys.stdin)))))
