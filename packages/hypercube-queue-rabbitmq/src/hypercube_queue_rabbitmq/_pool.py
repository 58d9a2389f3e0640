"""The channels that pops use, one for each pop whose deliveries are not settled."""

from __future__ import annotations

from collections.abc import Callable

from hypercube_queue_rabbitmq._connection import Connection
from hypercube_queue_rabbitmq._consuming import ConsumingChannel

#: Channels that are kept for the next pop.
_MOST_IDLE = 16
#: From this share of the connection's channels on, which are 2047 unless somebody limits them,
#: pops share them, and with them what the broker does to those who hold a delivery for too long.
#: The others are for pops under way, which have one to themselves.
_SHARE = 0.5


class ChannelPool:
    """Channels of one connection. A pop has one to itself, so a slow job endangers no other."""

    def __init__(self, connection: Connection, max_hold: float) -> None:
        self._connection = connection
        self._max_hold = max_hold
        self._all: set[ConsumingChannel] = set()
        self._idle: dict[ConsumingChannel, None] = {}

    async def take(self, limit: int) -> ConsumingChannel:
        """A channel without a consumer, for a pop of so many."""
        await self._connection.open()
        channel = self._free(limit)
        if channel is None:
            channel = ConsumingChannel(
                await self._connection.channel(), self, self._max_hold, self._put_back
            )
            self._all.add(channel)
            made = channel
            channel.channel.on_closed.append(lambda _: self._drop(made))
        channel.taken = True
        return channel

    def end_all(self, make: Callable[[], Exception]) -> None:
        """End every waiting consumer, each with an error of its own."""
        for channel in self._all:
            if channel.consumer is not None:
                channel.consumer.end(make())

    def _free(self, limit: int) -> ConsumingChannel | None:
        idle = next((each for each in self._idle if each.prefetch == limit), None)
        if idle is None and self._idle:
            idle = next(iter(self._idle))
        if idle is not None:
            del self._idle[idle]
            return idle
        if len(self._all) >= _SHARE * self._connection.max_channels:
            shared = [each for each in self._all if not each.taken and each.is_open]
            return min(shared, key=lambda each: len(each.unsettled), default=None)
        return None

    def _put_back(self, channel: ConsumingChannel) -> None:
        if len(self._idle) < _MOST_IDLE:
            self._idle[channel] = None
        else:
            self._drop(channel)
            channel.channel.close()

    def _drop(self, channel: ConsumingChannel) -> None:
        self._all.discard(channel)
        self._idle.pop(channel, None)
