"""Huey on SQLite or Redis, its consumer with one thread; `fsync` is what SQLite does."""

# Its imports are there only where the benchmark runs it.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import json
import sys
import threading
import time

import huey

#: Seconds that the consumer may take.
_PATIENCE = 120


def main(*, address: str, singly: int, bulk: int, fsync: bool = True) -> dict[str, float]:
    """Its rates; there is no call that enqueues many at once."""
    if address.startswith("redis:"):
        app = huey.RedisHuey(url=address, results=False)
    else:
        app = huey.SqliteHuey(filename=address, fsync=fsync, results=False)
    total = singly + bulk
    done = 0
    last = 0.0
    ended = threading.Event()

    @app.task()
    def noop(text: str) -> None:
        nonlocal done, last
        del text
        done += 1
        last = time.perf_counter()
        if done == total:
            ended.set()

    start = time.perf_counter()
    for _ in range(total):
        noop("x" * 100)
    rates = {"singly": total / (time.perf_counter() - start)}

    consumer = app.create_consumer(workers=1, periodic=False)
    start = time.perf_counter()
    consumer.start()
    if not ended.wait(_PATIENCE):
        raise SystemExit(f"{done} of {total} jobs were done")
    rates["drain"] = total / (last - start)
    consumer.stop(graceful=True)
    return rates


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
