"""Celery on Redis or RabbitMQ, with late acknowledgement and where there are any, confirms.

Its worker's pool is "solo": the process itself. On RabbitMQ it leaves its queues for delays behind,
which all applications of a vhost share.
"""

# Its imports are there only where the benchmark runs it.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
import warnings

from celery import Celery
from celery.worker import state
from kombu import Queue


def main(*, address: str, singly: int, bulk: int, prefetch: int) -> dict[str, float]:
    """Its rates; there is no call that enqueues many at once."""
    warnings.simplefilter("ignore")  # it warns of root
    app = Celery("bench", broker=address)
    queue = f"bench_{secrets.token_hex(4)}"
    quorum = address.startswith("amqp:")
    if quorum:
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
        app.conf.update(
            task_queues=[Queue(queue, routing_key=queue, queue_arguments=arguments)],
            task_default_queue_type="quorum",
            broker_transport_options={"confirm_publish": True},
        )
    app.conf.update(
        task_default_queue=queue,
        task_acks_late=True,
        # The queue it would make for that is of a kind that RabbitMQ 4.3 refuses.
        worker_enable_remote_control=False,
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
    if quorum:
        with app.connection_for_write() as connection, connection.channel() as channel:
            channel.queue_delete(queue)
            channel.exchange_delete(queue)
    return rates


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
