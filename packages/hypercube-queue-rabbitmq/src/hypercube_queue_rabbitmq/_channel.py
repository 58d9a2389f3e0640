"""pika's channel, with coroutines in the place of callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Channel:
    """One channel. What waits on it when it ends fails with the reason."""

    def __init__(self) -> None:
        #: pika's own.
        self.raw: Any = None
        #: Why it ended, once it did.
        self.closed_by: Exception | None = None
        #: Called with the reason when it ends.
        self.on_closed: list[Callable[[Exception], None]] = []
        self._waiting: set[asyncio.Future[Any]] = set()

    @classmethod
    async def open(cls, connection: Any) -> Channel:
        """A new channel on a connection of pika's."""
        channel = cls()

        def start(done: Callable[[Any], None]) -> None:
            channel.raw = connection.channel(on_open_callback=done)
            channel.raw.add_on_close_callback(channel._on_closed)

        await channel.call(start)
        return channel

    async def call(self, start: Callable[[Callable[[Any], None]], object]) -> Any:
        """What the broker answers to a request that `start` makes with the callback it gets."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.closed_by is not None:
            raise self.closed_by

        def done(frame: Any) -> None:
            if not answer.done():
                answer.set_result(frame)

        self._waiting.add(answer)
        try:
            start(done)
            return await answer
        finally:
            self._waiting.discard(answer)

    def close(self) -> None:
        """Close it without waiting; unsettled deliveries on it go back to their queues."""
        if self.raw.is_open:
            self.raw.close()

    def _on_closed(self, _raw: Any, reason: Exception) -> None:
        self.closed_by = reason
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(reason)
        for tell in list(self.on_closed):
            tell(reason)
