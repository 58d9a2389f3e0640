"""Taking deliveries one by one, where a consumer would spoil the count of attempts.

When a consumer of a quorum queue is cancelled, the broker puts back what was on its way to it.
Before 4.3 that counts as a lost delivery, so a message might be at attempt 7 that nobody has
seen. A single get has no such moment: what it takes, it gives to who asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypercube_queue_rabbitmq._consuming import Arrival, ConsumingChannel

#: The first version in which such messages are not counted.
TELLS_LOST_FROM_RETURNED = (4, 3)
#: How often a waiting pop looks, in seconds. Looking reads a number and writes nothing.
LOOKS_EVERY = 0.1


async def get(channel: ConsumingChannel, queue: str, limit: int, enough: float) -> list[Arrival]:
    """What is ready, up to `limit`, or until this moment on the loop's clock."""
    time = asyncio.get_running_loop().time
    arrivals: list[Arrival] = []
    try:
        while len(arrivals) < limit and (not arrivals or time() < enough):
            arrival = await _get_one(channel, queue)
            if arrival is None:
                break
            arrivals.append(arrival)
    except BaseException:
        channel.give_back(arrival.tag for arrival in arrivals)
        raise
    return arrivals


async def ready(channel: ConsumingChannel, queue: str) -> int:
    """How many messages a get would find."""
    raw = channel.channel.raw
    frame = await channel.channel.call(
        lambda done: raw.queue_declare(queue, passive=True, callback=done)
    )
    return int(frame.method.message_count)


async def _get_one(channel: ConsumingChannel, queue: str) -> Arrival | None:
    raw = channel.channel.raw
    gone = False

    def start(done: Callable[[Any], None]) -> None:
        def take(_raw: Any, method: Any, properties: Any, body: bytes) -> None:
            tag = method.delivery_tag
            channel.add(tag)
            if gone:
                channel.give_back([tag])
            done(Arrival(channel, tag, method.redelivered, properties, body))

        channel.on_nothing = lambda: done(None)
        raw.basic_get(queue, take)

    try:
        arrival: Arrival | None = await channel.channel.call(start)
    except BaseException:
        gone = True
        raise
    return arrival
