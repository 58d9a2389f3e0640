"""Taskiq over uvloop, on a stream of Redis or a quorum queue of RabbitMQ.

`concurrency` is its receiver's.
"""

# Its imports are there only where the benchmark runs it.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sys
import time
from typing import Any

import uvloop
from taskiq.acks import AcknowledgeType
from taskiq.receiver import Receiver
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue
from taskiq_redis import RedisStreamBroker

#: Jobs that are enqueued at the same time.
_MANY = 100
#: Seconds that the receiver may take.
_PATIENCE = 120


async def main(
    *, address: str, singly: int, bulk: int, concurrency: int, prefetch: int
) -> dict[str, float]:
    """Its rates; many at once are many calls at the same time."""
    logging.disable()
    broker = (
        _on_rabbitmq(address, prefetch)
        if address.startswith("amqp:")
        else _on_redis(address, prefetch)
    )
    total = singly + bulk
    done = 0
    last = 0.0
    ended = asyncio.Event()

    @broker.task
    async def noop(text: str) -> None:
        nonlocal done, last
        del text
        done += 1
        last = time.perf_counter()
        if done == total:
            ended.set()

    await broker.startup()
    start = time.perf_counter()
    for _ in range(singly):
        await noop.kiq("x" * 100)
    rates = {"singly": singly / (time.perf_counter() - start)}

    start = time.perf_counter()
    for first in range(0, bulk, _MANY):
        calls = [noop.kiq("x" * 100) for _ in range(min(_MANY, bulk - first))]
        await asyncio.gather(*calls)
    rates["bulk"] = bulk / (time.perf_counter() - start)

    start = time.perf_counter()
    receiver = Receiver(
        broker,
        max_async_tasks=concurrency,
        max_prefetch=prefetch,
        run_startup=False,
        ack_type=AcknowledgeType.WHEN_EXECUTED,
    )
    listening = asyncio.create_task(receiver.listen(ended))
    await asyncio.wait_for(ended.wait(), _PATIENCE)
    rates["drain"] = total / (last - start)
    await listening
    if isinstance(broker, AioPikaBroker):
        await _delete(broker)
    await broker.shutdown()
    return rates


def _on_redis(address: str, prefetch: int) -> Any:
    return RedisStreamBroker(address, xread_count=prefetch, max_connection_pool_size=_MANY)


def _on_rabbitmq(address: str, prefetch: int) -> Any:
    name = f"bench_{secrets.token_hex(4)}"
    broker = AioPikaBroker(
        address,
        qos=prefetch,
        exchange=Exchange(name=name),
        task_queues=[Queue(name=name, arguments={"x-delivery-limit": -1})],
        dead_letter_queue=Queue(name=f"{name}.dead"),
    )
    # It takes messages in no other.
    broker.is_worker_process = True
    return broker


async def _delete(broker: Any) -> None:
    for queue in (*broker._task_queues, broker._dead_letter_queue):
        await broker.write_channel.queue_delete(queue.name)
    await broker.write_channel.exchange_delete(broker._exchange.name)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(main(**json.load(sys.stdin)))))
