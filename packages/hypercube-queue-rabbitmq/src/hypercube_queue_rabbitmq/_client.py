"""What a queue object does at the broker: the coroutines behind its methods."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from pika.connection import Parameters  # type: ignore[import-untyped]  # pika ships no types
from pika.exceptions import AMQPError  # type: ignore[import-untyped]

from hypercube_queue import BackendError, Message, QueueClosed, QueueError
from hypercube_queue.driver import (
    SettlementItem,
    UnreadableEnvelope,
    checked_envelope,
    encode_envelope,
    safe_repr,
)
from hypercube_queue_rabbitmq._careful import (
    LOOKS_EVERY,
    TELLS_LOST_FROM_RETURNED,
    CarefulTaking,
    Source,
)
from hypercube_queue_rabbitmq._connection import Connection
from hypercube_queue_rabbitmq._consuming import Arrival, ConsumingChannel
from hypercube_queue_rabbitmq._delivery import RabbitMQDelivery
from hypercube_queue_rabbitmq._errors import NOT_FOUND, closed_with, translation
from hypercube_queue_rabbitmq._incoming import received
from hypercube_queue_rabbitmq._outgoing import Outgoing, set_aside
from hypercube_queue_rabbitmq._pool import ChannelPool
from hypercube_queue_rabbitmq._publishing import Publisher
from hypercube_queue_rabbitmq._topology import Topology

logger = logging.getLogger("hypercube_queue_rabbitmq")

Settled: TypeAlias = SettlementItem[RabbitMQDelivery]

#: Items that failed, with the error; None for those that are stale.
Fates: TypeAlias = list[tuple[Settled, QueueError | None]]

#: A classic queue delivers so many, and goes on when the client's channel has sent them. A batch
#: that was cut short there has at least so many.
_AT_ONCE = 100
#: How many dead letters are on their way at once.
_REDRIVEN_AT_ONCE = 256


class Client:
    """Two connections, since a broker that has no room stops one that has published.

    It must still read acknowledgements then, or it would never have room again. Each method
    is to be run on the loop of the I/O thread, and ends by `end` on the loop's clock.
    """

    def __init__(
        self,
        publishing: Sequence[Parameters],
        consuming: Sequence[Parameters],
        topology: Topology,
        place: str,
        *,
        counts_attempts: bool,
        max_hold: float,
    ) -> None:
        self._counts_attempts = counts_attempts
        self._topology = topology
        self._place = place
        self._publishing = Connection(publishing, topology.forget)
        self._consuming = Connection(consuming, topology.forget)
        self._publisher = Publisher(self._publishing, topology, place)
        self._careful = CarefulTaking(self._publisher)
        self._pool = ChannelPool(self._consuming, max_hold)
        self._closed_by: str | None = None

    async def push(self, batch: Sequence[Outgoing], end: float) -> None:
        """Publish; what became of each stands in its `error`."""
        await self._publisher.publish(batch, end)

    async def pop(
        self, owner: object, queue_name: str, limit: int, until: float, end: float
    ) -> list[Message]:
        """Deliveries, waiting for the first one `until` this moment."""
        try:
            async with asyncio.timeout_at(end):
                work = await self._topology.work(self._consuming, queue_name)
                source = Source(work, queue_name, "work")
                while True:
                    arrivals = await self._take(source, limit, until, end)
                    messages = await self._read(arrivals, owner, queue_name, end)
                    if messages or not arrivals:
                        return messages
        except (AMQPError, OSError, TimeoutError) as error:
            self._topology.forget(self._topology.names.work(queue_name))
            if isinstance(error, TimeoutError):
                self._consuming.abort(error)
            sent = isinstance(error, TimeoutError)
            raise translation(error, self._place, sent=sent) from error

    async def ack(self, items: Sequence[Settled], end: float) -> Fates:
        """Remove deliveries."""
        owned, fates = await self._owned(items)
        return fates + await self._remove(owned, end)

    async def move(self, items: Sequence[Settled], batch: Sequence[Outgoing], end: float) -> Fates:
        """Publish each message anew, then remove the delivery that it was (SET-6)."""
        owned, fates = await self._owned(items)
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for item in owned:
            item.delivery.channel.moving[item.delivery.tag] = moved
        outgoing = {each.index: each for each in batch}
        for each in batch:
            each.user = self._publisher.user
        try:
            await self._publisher.publish([outgoing[item.index] for item in owned], end)
            stored = []
            for item in owned:
                if (error := outgoing[item.index].error) is not None:
                    fates.append((item, error))
                elif self._owns(item):
                    stored.append(item)
                else:
                    fates.append((item, self._twice()))
            removed = await self._remove(stored, end)
            return fates + [(item, self._twice(error)) for item, error in removed]
        finally:
            for item in owned:
                item.delivery.channel.moving.pop(item.delivery.tag, None)
            moved.set_result(None)

    async def redrive(self, queue_name: str, count: int, end: float) -> int:
        """Move dead letters back; how many surely moved."""
        moved = 0
        source = Source(self._topology.names.dead(queue_name), queue_name, "dead")
        try:
            while moved < count:
                left = min(count - moved, _REDRIVEN_AT_ONCE)
                async with asyncio.timeout_at(end):
                    arrivals = await self._take(source, left, 0, end)
                if not arrivals:
                    break
                # It keeps to the time itself, and says what moved until then (RED-4).
                stored, error = await self._revive(arrivals, queue_name, end)
                moved += stored
                if error is not None:
                    raise error
        except (AMQPError, OSError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                self._consuming.abort(error)
            if not moved and not closed_with(error, NOT_FOUND):
                raise translation(error, self._place, sent=False) from error
        except QueueError:
            if not moved:
                raise
        return moved

    def wake_all(self, reason: str) -> None:
        """End every waiting pop, as closed."""
        self._closed_by = reason
        self._pool.end_all(lambda: QueueClosed(reason))

    def hand_back(self, messages: Iterable[Message]) -> None:
        """Put deliveries back that reached nobody."""
        for message in messages:
            delivery = message.driver_data
            if isinstance(delivery, RabbitMQDelivery):
                delivery.channel.give_back([delivery.tag])

    async def close(self, seconds: float) -> None:
        """Close both connections; what was sent arrives."""
        await self._careful.finish(seconds)
        await asyncio.gather(self._publishing.close(seconds), self._consuming.close(seconds))

    # Within

    async def _take(self, source: Source, limit: int, until: float, end: float) -> list[Arrival]:
        await self._consuming.open()
        if self._counts_attempts and self._consuming.version < TELLS_LOST_FROM_RETURNED:
            return await self._take_carefully(source, limit, until, end)
        channel = await self._pool.take(limit)
        arrivals = await self._consume(channel, source.name, limit, until)
        try:
            came = len(arrivals)
            while not self._counts_attempts and came >= _AT_ONCE and len(arrivals) < limit:
                left = limit - len(arrivals)
                more = await self._consume(await self._pool.take(left), source.name, left, until=0)
                arrivals += more
                came = len(more)
        except BaseException:
            _give_back(arrivals)
            raise
        return arrivals

    async def _consume(
        self, channel: ConsumingChannel, name: str, limit: int, until: float
    ) -> list[Arrival]:
        consumer = await channel.consume(name, limit)
        try:
            if self._closed_by is not None:
                consumer.end(QueueClosed(self._closed_by))
            await consumer.arrival(until - asyncio.get_running_loop().time())
            await consumer.stop()
        except BaseException:
            consumer.abandon()
            raise
        return consumer.arrivals

    async def _take_carefully(
        self, source: Source, limit: int, until: float, end: float
    ) -> list[Arrival]:
        time = asyncio.get_running_loop().time
        # A pop returns what it has rather than running out of time.
        enough = end - (end - max(time(), until)) / 5
        while True:
            if self._closed_by is not None:
                raise QueueClosed(self._closed_by)
            channel = await self._pool.take(limit)
            left = until - time()
            last = left <= 0
            arrivals = await self._careful.take(channel, source, limit, enough, certainly=last)
            if arrivals or last:
                return arrivals
            await asyncio.sleep(min(left, LOOKS_EVERY))

    async def _read(
        self, arrivals: Sequence[Arrival], owner: object, queue_name: str, end: float
    ) -> list[Message]:
        """The messages; what cannot be read is set aside."""
        messages = []
        unreadable = []
        for arrival in arrivals:
            try:
                messages.append(
                    received(
                        arrival,
                        owner,
                        queue_name,
                        counts_attempts=self._counts_attempts,
                        user=self._publisher.user,
                    )
                )
            except UnreadableEnvelope as reason:
                unreadable.append((arrival, str(reason)))
        if unreadable:
            try:
                await self._set_aside(unreadable, queue_name, end)
            except BaseException:
                self.hand_back(messages)
                raise
        return messages

    async def _set_aside(
        self, unreadable: Sequence[tuple[Arrival, str]], queue_name: str, end: float
    ) -> None:
        batch: list[Outgoing] = []
        for arrival, reason in unreadable:
            logger.warning(
                "a message in queue %s cannot be read: %s", safe_repr(queue_name), reason
            )
            batch.append(
                set_aside(
                    queue_name,
                    arrival.body,
                    arrival.properties,
                    reason,
                    max_frame=self._publishing.max_frame,
                )
            )
        await self._publisher.publish(batch, end)
        # What could not be set aside stays with us until the connection ends.
        stored = [
            arrival for (arrival, _), each in zip(unreadable, batch, strict=True) if each.stored
        ]
        await _ack(stored, end)

    async def _revive(
        self, arrivals: Sequence[Arrival], queue_name: str, end: float
    ) -> tuple[int, QueueError | None]:
        """How many became ready, and why the first of the others did not."""
        readable = []
        unreadable = []
        batch: list[Outgoing] = []
        for arrival in arrivals:
            try:
                envelope = checked_envelope(arrival.body)
            except UnreadableEnvelope as reason:
                unreadable.append((arrival, str(reason)))
                continue
            readable.append(arrival)
            body = encode_envelope(replace(envelope, queue_name=queue_name, attempt_base=0))
            batch.append(Outgoing(len(batch), queue_name, envelope.id, body))
        try:
            if unreadable:
                await self._set_aside(unreadable, queue_name, end)
            await self._publisher.publish(batch, end)
        finally:
            outcomes = list(zip(readable, batch, strict=True))
            stored = [arrival for arrival, each in outcomes if each.stored]
            _give_back(arrival for arrival, each in outcomes if not each.stored)
            # Where this fails they come twice; moved they are in any case.
            with contextlib.suppress(AMQPError, OSError):
                await _ack(stored, end)
        return len(stored), next((each.error for each in batch if each.error is not None), None)

    async def _owned(self, items: Sequence[Settled]) -> tuple[list[Settled], Fates]:
        """The items whose deliveries can be settled, once nobody else is at it, and the stale."""
        for item in items:
            channel = item.delivery.channel
            while channel.owner is self._pool and (moving := channel.moving.get(item.delivery.tag)):
                await asyncio.shield(moving)
        owned = [item for item in items if self._owns(item)]
        return owned, [(item, None) for item in items if not self._owns(item)]

    def _owns(self, item: Settled) -> bool:
        channel = item.delivery.channel
        return (
            channel.owner is self._pool
            and channel.is_open
            and item.delivery.tag in channel.unsettled
        )

    async def _remove(self, items: Iterable[Settled], end: float) -> Fates:
        by_channel: dict[ConsumingChannel, list[Settled]] = {}
        for item in items:
            by_channel.setdefault(item.delivery.channel, []).append(item)
        fates: Fates = []

        async def remove(channel: ConsumingChannel, group: list[Settled]) -> None:
            try:
                async with asyncio.timeout_at(end):
                    await channel.ack([item.delivery.tag for item in group])
            except (AMQPError, OSError, TimeoutError) as error:
                if isinstance(error, TimeoutError):
                    self._consuming.abort(error)
                fates.extend((item, translation(error, self._place, sent=True)) for item in group)

        # At once for all, since tags are taken out before anything is awaited.
        await asyncio.gather(*(remove(channel, group) for channel, group in by_channel.items()))
        return fates

    def _twice(self, cause: BaseException | None = None) -> QueueError:
        error = BackendError(
            f"{self._place}: the message was stored anew, but the connection was lost over which "
            "the old copy was to be removed; it may come twice",
            outcome_unknown=True,
        )
        error.__cause__ = cause
        return error


async def _ack(arrivals: Iterable[Arrival], end: float) -> None:
    """Remove what is still there to be removed."""
    by_channel: dict[ConsumingChannel, list[int]] = {}
    for arrival in arrivals:
        if arrival.tag in arrival.channel.unsettled:
            by_channel.setdefault(arrival.channel, []).append(arrival.tag)
    async with asyncio.timeout_at(end):
        for channel, tags in by_channel.items():
            await channel.ack(tags)


def _give_back(arrivals: Iterable[Arrival]) -> None:
    for arrival in arrivals:
        arrival.channel.give_back([arrival.tag])
