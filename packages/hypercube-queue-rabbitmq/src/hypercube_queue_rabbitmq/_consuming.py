"""Taking deliveries: a consumer for the length of a pop.

A consumer with a prefetch of n gets at most n messages, and is cancelled once some have come.
Everything that arrives before the broker confirms the cancel belongs to the pop, so no message
is held by somebody who does not know of it, and none goes back that somebody could have had.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pika import spec  # type: ignore[import-untyped]  # pika ships no types
from pika.exceptions import (  # type: ignore[import-untyped]  # pika ships no types
    AMQPError,
    ConsumerCancelled,
)

from hypercube_queue_rabbitmq._channel import Channel

logger = logging.getLogger("hypercube_queue_rabbitmq")

_tags = itertools.count(1)


def _nothing() -> None:
    """Nobody asked."""


class Arrival(NamedTuple):
    """What the broker delivered."""

    channel: ConsumingChannel
    tag: int
    redelivered: bool
    #: pika's properties.
    properties: Any
    body: bytes


class ConsumingChannel:
    """A channel, the deliveries on it that are not settled, and the consumer it may have.

    `on_free` is called when it has neither.
    """

    def __init__(
        self,
        channel: Channel,
        owner: object,
        max_hold: float,
        on_free: Callable[[ConsumingChannel], None],
    ) -> None:
        self.channel = channel
        #: What may settle its deliveries: not a copy in a forked process.
        self.owner = owner
        self.prefetch = 0
        #: A pop has it, with a consumer or about to make one.
        self.taken = False
        self.consumer: Consumer | None = None
        #: When each came, by tag, in the order of their arrival.
        self.unsettled: dict[int, float] = {}
        #: Those of them whose settlement is under way, until it ends.
        self.moving: dict[int, asyncio.Future[None]] = {}
        #: Called when a get finds its queue empty.
        self.on_nothing: Callable[[], None] = _nothing
        self._max_hold = max_hold
        self._expiry: asyncio.TimerHandle | None = None
        self._on_free = on_free
        channel.on_closed.append(self._on_closed)
        channel.raw.add_on_cancel_callback(self._on_cancelled_by_broker)
        channel.raw.add_callback(lambda _: self.on_nothing(), [spec.Basic.GetEmpty], one_shot=False)

    @property
    def is_open(self) -> bool:
        """Whether deliveries on it can still be settled."""
        return self.channel.closed_by is None and bool(self.channel.raw.is_open)

    def add(self, tag: int) -> None:
        """Note a delivery, from now on held for max_hold at most."""
        loop = asyncio.get_running_loop()
        self.unsettled[tag] = loop.time()
        if self._expiry is None:
            self._expiry = loop.call_later(self._max_hold, self._expire)

    async def ack(self, tags: Iterable[int]) -> None:
        """Remove these for good; each is unsettled, and named once.

        There is no confirm of an ack. But when this returns, the broker's end of the channel has
        taken it in, so it does not matter what becomes of this process.
        """
        raw = self.channel.raw
        settling = set(tags)
        # All up to the first that stays can be named at once.
        last = 0
        for tag in self.unsettled:
            if tag not in settling:
                break
            last = tag
        if last:
            raw.basic_ack(last, multiple=True)
        for tag in sorted(settling):
            if tag > last:
                raw.basic_ack(tag)
            del self.unsettled[tag]
        # A channel answers in the order in which it was asked; this changes nothing.
        await self.channel.call(
            lambda done: raw.basic_qos(prefetch_count=self.prefetch, callback=done)
        )
        self._look_free()

    def give_back(self, tags: Iterable[int]) -> None:
        """Put these back into their queue, as the end of their connection would."""
        for tag in list(tags):
            if self.is_open and tag in self.unsettled:
                del self.unsettled[tag]
                self.channel.raw.basic_nack(tag, requeue=True)
        self._look_free()

    async def consume(self, queue: str, limit: int) -> Consumer:
        """A consumer that gets up to `limit` messages of a queue."""
        raw = self.channel.raw
        try:
            if self.prefetch != limit:
                # Before it is sent, since an ack that comes next would undo it.
                self.prefetch = limit
                await self.channel.call(
                    lambda done: raw.basic_qos(prefetch_count=limit, callback=done)
                )
        except BaseException:
            self.let_go()
            raise
        consumer = self.consumer = Consumer(self, limit)
        try:
            await self.channel.call(
                lambda done: raw.basic_consume(
                    queue, consumer.on_delivery, consumer_tag=consumer.tag, callback=done
                )
            )
        except asyncio.CancelledError:
            consumer.abandon()
            raise
        return consumer

    def let_go(self) -> None:
        """The pop that has it is over, but for its deliveries."""
        self.taken = False
        self.consumer = None
        self._look_free()

    def _look_free(self) -> None:
        if not self.unsettled:
            self._stop_clock()
            if not self.taken and self.is_open:
                self._on_free(self)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        expires = min(self.unsettled.values()) + self._max_hold
        if expires > loop.time():
            self._expiry = loop.call_at(expires, self._expire)
            return
        # The broker would do the same soon, and some versions of it would not count it.
        logger.warning(
            "%d deliveries were held for longer than max_hold and are given back",
            len(self.unsettled),
        )
        self.channel.close()

    def _stop_clock(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _on_closed(self, reason: Exception) -> None:
        self.unsettled.clear()
        self._stop_clock()
        if self.consumer is not None:
            self.consumer.lose(reason)

    def _on_cancelled_by_broker(self, frame: Any) -> None:
        if self.consumer is not None and self.consumer.tag == frame.method.consumer_tag:
            self.consumer.lose(ConsumerCancelled(self.consumer.tag))


class Consumer:
    """Collects what arrives for one pop."""

    def __init__(self, channel: ConsumingChannel, limit: int) -> None:
        self.arrivals: list[Arrival] = []
        self.tag = f"pop-{next(_tags)}"
        self._channel = channel
        self._limit = limit
        #: Its deliveries, of which some may be settled.
        self._tags: set[int] = set()
        self._over = asyncio.Event()
        self._abandoned = False
        self._heir: Callable[[Arrival], None] | None = None
        self._error: Exception | None = None
        self._next: asyncio.Future[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def arrival(self, seconds: float) -> None:
        """Wait until something has come, for so many seconds at most."""
        if not self.arrivals:
            await self._wait(seconds)
        elif self._error is not None:
            raise self._error

    async def filled(self, silence: float) -> bool:
        """Whether all that it may get has come; False once nothing did for so many seconds."""
        while (came := len(self.arrivals)) < self._limit:
            await self._wait(silence)
            if len(self.arrivals) == came:
                return False
        return True

    async def _wait(self, seconds: float) -> None:
        """Until something comes, for so many seconds at most."""
        if self._error is not None:
            raise self._error
        if seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        self._next = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._next
        finally:
            timer.cancel()

    async def stop(self, *, entirely: bool = False) -> None:
        """Get nothing more; when it returns, everything has come that was on its way.

        Then the channel is let go, or soon after, unless this is to happen `entirely`.
        """
        self._begin_to_stop()
        if self._stopping is not None and (entirely or len(self.arrivals) < self._limit):
            # With the prefetch exhausted nothing can come, and nobody has to wait.
            await asyncio.shield(self._stopping)
        if not self._channel.is_open and self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Nobody wants it any more: give back what came, and what is still to come."""
        self._abandoned = True
        self._channel.give_back(arrival.tag for arrival in self.arrivals)
        self._begin_to_stop()

    def end(self, reason: Exception) -> None:
        """Nothing more will come, for this reason."""
        self._error = reason
        if self._next is not None and not self._next.done():
            self._next.set_exception(reason)

    def lose(self, reason: Exception) -> None:
        """The broker has ended it, for this reason."""
        self._over.set()
        self.end(reason)

    def pass_on(self, to: Callable[[Arrival], None]) -> None:
        """Hand what still comes to `to`, now that the pop is over.

        It stops once as many of its deliveries are unsettled as it may get. Each that is settled
        entitles it to another one, so before that something may be on its way at any time.
        """
        self._heir = to

    @property
    def is_over(self) -> bool:
        """Whether it gets nothing more."""
        return self._over.is_set()

    @property
    def unsettled(self) -> int:
        """How many of its deliveries are not settled."""
        self._tags.intersection_update(self._channel.unsettled)
        return len(self._tags)

    async def stopped(self, seconds: float) -> None:
        """Wait until it gets nothing more, for so many seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    def on_delivery(self, _raw: Any, method: Any, properties: Any, body: bytes) -> None:
        """Something came."""
        tag = method.delivery_tag
        self._channel.add(tag)
        self._tags.add(tag)
        arrival = Arrival(self._channel, tag, method.redelivered, properties, body)
        if self._abandoned:
            self._channel.give_back([tag])
        elif self._heir is not None:
            self._heir(arrival)
            if self.unsettled == self._limit:
                self._begin_to_stop()
        else:
            self.arrivals.append(arrival)
            self._wake()

    def _wake(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)

    def _begin_to_stop(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._cancel())

    async def _cancel(self) -> None:
        raw = self._channel.channel.raw

        def cancel(done: Callable[[Any], None]) -> None:
            raw.basic_cancel(self.tag, callback=done)
            # pika would send back what still arrives, and that would count as a delivery.
            raw._cancelled.discard(self.tag)

        try:
            if self.tag in raw.consumer_tags:  # else the broker has cancelled it
                await self._channel.channel.call(cancel)
        except (AMQPError, OSError) as error:
            self._error = error
        self._over.set()
        if self._channel.consumer is self:
            self._channel.let_go()
