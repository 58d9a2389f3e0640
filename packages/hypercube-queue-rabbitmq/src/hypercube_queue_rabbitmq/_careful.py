"""Taking from quorum queues of brokers before 4.3, where a cancelled consumer spoils attempts.

When a consumer is cancelled, the broker puts back what was on its way to it. Before 4.3 that
counts as a lost delivery, so a message might be at attempt 7 that nobody has seen. Only a
consumer that holds as many unsettled deliveries as its prefetch allows can be cancelled without
that.

So a consumer asks for a part of what is surely there, and few messages are taken by single gets,
which have no such moment. Where others were faster and the consumer is short of some, it is left
alone, and what still comes to it is published anew with its attempts as they were. The old copies
are removed only when the consumer holds enough to be cancelled: a message that nobody else takes
comes to it again and again, and soon fills it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pika.exceptions import AMQPError  # type: ignore[import-untyped]  # pika ships no types

from hypercube_queue.driver import UnreadableEnvelope, checked_envelope, encode_envelope
from hypercube_queue_rabbitmq._consuming import Arrival, Consumer, ConsumingChannel
from hypercube_queue_rabbitmq._incoming import attempts_of, delivered_before
from hypercube_queue_rabbitmq._outgoing import Destination, Outgoing
from hypercube_queue_rabbitmq._publishing import Publisher

#: The first version in which such messages are not counted.
TELLS_LOST_FROM_RETURNED = (4, 3)
#: How often a waiting pop looks, in seconds. Looking reads a number and writes nothing.
LOOKS_EVERY = 0.1

#: A consumer asks for at most one in so many of the messages that are ready, since others take
#: some meanwhile, and for no fewer than that.
_SHARE = 4
_WORTH_A_CONSUMER = 8
#: The prefetch of a consumer, so that one which is short of some is filled soon.
_MOST_AT_ONCE = 64
#: Seconds for which an old copy is kept to fill a consumer. If its connection is lost meanwhile,
#: both copies are delivered.
_HELD = 5.0
#: Seconds in which nothing came, so that others must have been faster.
_SILENCE = 0.1
#: Seconds for publishing anew what came too late.
_PATIENCE = 30.0


class Source(NamedTuple):
    """Where messages are taken from: the broker's name, and whose place it is."""

    name: str
    queue_name: str
    destination: Destination


class CarefulTaking:
    """Takes messages so that none is counted which reaches nobody."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._passing_on: set[asyncio.Task[None]] = set()
        #: Consumers that are short of some and are left alone.
        self._short: list[Consumer] = []

    async def take(
        self,
        channel: ConsumingChannel,
        source: Source,
        limit: int,
        enough: float,
        *,
        certainly: bool,
    ) -> list[Arrival]:
        """What is ready, up to `limit`; not all of it after `enough` on the loop's clock.

        Nothing means little unless it is to be nothing `certainly`, which takes one get more. It
        comes over this channel, which is let go once it is not needed any more.
        """
        time = asyncio.get_running_loop().time
        arrivals: list[Arrival] = []
        try:
            while (left := limit - len(arrivals)) and (not arrivals or time() < enough):
                there = await ready(channel, source.name)
                wanted = min(left, there // _SHARE, _MOST_AT_ONCE)
                if wanted < _WORTH_A_CONSUMER:
                    if there or arrivals or certainly:
                        arrivals += await get(channel, source.name, left, enough)
                    break
                consumer = await channel.consume(source.name, wanted)
                try:
                    filled = await consumer.filled(_SILENCE)
                except BaseException:
                    consumer.abandon()
                    raise
                arrivals += consumer.arrivals
                if not filled:
                    self._pass_on(consumer, source)
                    return arrivals
                await consumer.stop(entirely=True)
                channel.taken = True
        except BaseException:
            channel.give_back(arrival.tag for arrival in arrivals)
            if channel.consumer is None:  # else that lets it go, once it is cancelled
                channel.let_go()
            raise
        channel.let_go()
        return arrivals

    async def finish(self, seconds: float) -> None:
        """Stop passing on, within about so many seconds.

        A connection that is closed in the middle of it would leave two copies.
        """
        passing_on = [each for each in self._short if each.unsettled]
        await asyncio.gather(*(each.stopped(seconds / 2) for each in passing_on))
        for each in self._short:
            with contextlib.suppress(AMQPError, OSError, TimeoutError):
                async with asyncio.timeout(seconds / 2):
                    await each.stop(entirely=True)
        if self._passing_on:
            await asyncio.wait(self._passing_on, timeout=seconds / 2)

    def _pass_on(self, consumer: Consumer, source: Source) -> None:
        def begin(late: Arrival) -> None:
            task = asyncio.get_running_loop().create_task(self._renew(late, consumer, source))
            self._passing_on.add(task)
            task.add_done_callback(self._passing_on.discard)

        self._short = [each for each in self._short if not each.is_over]
        self._short.append(consumer)
        consumer.pass_on(begin)

    async def _renew(self, late: Arrival, consumer: Consumer, source: Source) -> None:
        stored = False
        try:
            envelope = checked_envelope(late.body)
            before = delivered_before(late, counts_attempts=True)
            base = attempts_of(envelope, late, self._publisher.user) + before
            body = encode_envelope(replace(envelope, attempt_base=base))
            renewed = Outgoing(0, source.queue_name, envelope.id, body, source.destination)
            renewed.user = self._publisher.user
            end = asyncio.get_running_loop().time() + _PATIENCE
            await self._publisher.publish([renewed], end)
            stored = renewed.stored
        except UnreadableEnvelope:
            pass  # it has no attempts that anybody counts
        await consumer.stopped(_HELD)
        if stored and late.tag in late.channel.unsettled:
            await late.channel.ack([late.tag])
        else:
            late.channel.give_back([late.tag])


async def ready(channel: ConsumingChannel, queue: str) -> int:
    """How many messages are ready; 0 as well where the queue does not answer within 250 ms."""
    raw = channel.channel.raw
    frame = await channel.channel.call(
        lambda done: raw.queue_declare(queue, passive=True, callback=done)
    )
    return int(frame.method.message_count)


async def get(channel: ConsumingChannel, queue: str, limit: int, enough: float) -> list[Arrival]:
    """Messages one by one."""
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
