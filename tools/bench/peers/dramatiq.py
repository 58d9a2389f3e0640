"""Dramatiq on Redis, or on RabbitMQ with confirms; it knows only classic queues there.

Its worker has `threads` threads, and takes `prefetch` messages at once.
"""

# Its imports are there only where the benchmark runs it.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import threading
import time

#: Seconds that the worker may take.
_PATIENCE = 120


def main(*, address: str, singly: int, bulk: int, threads: int, prefetch: int) -> dict[str, float]:
    """Its rates; there is no call that enqueues many at once."""
    # It looks there when it is imported.
    os.environ["dramatiq_queue_prefetch"] = str(prefetch)  # noqa: SIM112 - its name
    import dramatiq
    from dramatiq.brokers.rabbitmq import RabbitmqBroker
    from dramatiq.brokers.redis import RedisBroker

    logging.disable()
    on_rabbitmq = address.startswith("amqp:")
    broker = (
        RabbitmqBroker(url=address, confirm_delivery=True)
        if on_rabbitmq
        else RedisBroker(url=address)
    )
    queue = f"bench_{secrets.token_hex(4)}"
    dramatiq.set_broker(broker)
    total = singly + bulk
    lock = threading.Lock()
    done = 0
    last = 0.0
    ended = threading.Event()

    @dramatiq.actor(queue_name=queue)
    def noop(text: str) -> None:
        nonlocal done, last
        del text
        with lock:
            done += 1
            last = time.perf_counter()
            if done == total:
                ended.set()

    start = time.perf_counter()
    for _ in range(total):
        noop.send("x" * 100)
    rates = {"singly": total / (time.perf_counter() - start)}

    worker = dramatiq.Worker(broker, worker_threads=threads)
    start = time.perf_counter()
    worker.start()
    if not ended.wait(_PATIENCE):
        raise SystemExit(f"{done} of {total} jobs were done")
    rates["drain"] = total / (last - start)
    worker.stop()
    if on_rabbitmq:
        for name in (queue, f"{queue}.DQ", f"{queue}.XQ"):
            broker.channel.queue_delete(name)
    return rates


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
