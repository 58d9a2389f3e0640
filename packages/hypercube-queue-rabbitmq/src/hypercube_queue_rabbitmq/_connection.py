"""One connection to the broker, opened when it is needed, and again when it was lost.

All of it, and of the modules above it, runs on the event loop of the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from pika.channel import MAX_CHANNELS  # type: ignore[import-untyped]  # pika ships no types
from pika.connection import Parameters  # type: ignore[import-untyped]
from pika.credentials import PlainCredentials  # type: ignore[import-untyped]
from pika.exceptions import AMQPConnectionError, AMQPError  # type: ignore[import-untyped]
from pika.spec import FRAME_MAX_SIZE, FRAME_MIN_SIZE  # type: ignore[import-untyped]

from hypercube_queue_rabbitmq._channel import Channel
from hypercube_queue_rabbitmq._errors import innermost
from hypercube_queue_rabbitmq._frames import TolerantConnection

logger = logging.getLogger("hypercube_queue_rabbitmq")


class Connection:
    """A connection that its users share, to one of `places`.

    The first attempt begins at random, each later one with the place after the last that answered:
    a node which was cut off from its cluster accepts connections and does nothing else. `on_lost`
    is called each time the connection ends. Methods raise what pika raises.
    """

    def __init__(self, places: Sequence[Parameters], on_lost: Callable[[], None]) -> None:
        self._places = places
        self._next = random.randrange(len(places))  # noqa: S311 - no secret
        self._on_lost = on_lost
        self._raw: Any = None
        self._opening: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        credentials = places[0].credentials
        #: The user that it logs in as; None if only the broker knows, by a certificate.
        self.user: str | None = (
            credentials.username if isinstance(credentials, PlainCredentials) else None
        )
        #: The broker has no room, and reads nothing more from this connection.
        self.blocked = False
        #: Called when `blocked` becomes true.
        self.on_blocked: list[Callable[[], None]] = []
        #: The broker's version, once connected.
        self.version = (0, 0)
        #: How many channels it may have, once connected.
        self.max_channels = MAX_CHANNELS
        #: How many bytes a frame may have, such as the properties of a message, once connected.
        self.max_frame = FRAME_MIN_SIZE

    async def open(self) -> None:
        """Be connected, by one attempt that all who need it share."""
        if self._raw is not None and self._raw.is_open:
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
            self._opening.add_done_callback(self._opened)
        await asyncio.shield(self._opening)

    async def channel(self) -> Channel:
        """A new channel, connected if need be."""
        await self.open()
        return await Channel.open(self._raw)

    def abort(self, reason: Exception) -> None:
        """Give up a connection that does not answer: whatever waits on it fails at once."""
        if self._raw is not None and not self._raw.is_closed:
            # pika's own close waits for the broker to agree.
            self._raw._terminate_stream(reason)

    async def close(self, seconds: float) -> None:
        """Close in good order, so that all that was sent arrives; or after so long, at once."""
        if self._opening is not None:
            self._opening.cancel()
        if self._raw is None or self._raw.is_closed or self._ended is None:
            return
        try:
            async with asyncio.timeout(seconds):
                if not self._raw.is_closing:
                    self._raw.close()
                await asyncio.shield(self._ended)
        except TimeoutError as error:
            self.abort(error)
            await asyncio.wait([self._ended], timeout=seconds)

    async def _connect(self) -> None:
        order = [(self._next + step) % len(self._places) for step in range(len(self._places))]
        for index in order:
            place = self._places[index]
            try:
                await self._connect_to(place)
            except (AMQPError, OSError) as error:
                if index == order[-1]:
                    raise
                logger.warning(
                    "%s:%s is not reached: %s; trying the next host",
                    place.host,
                    place.port,
                    innermost(error),
                )
            else:
                self._next = (index + 1) % len(self._places)
                return

    async def _connect_to(self, place: Parameters) -> None:
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Any] = loop.create_future()
        ended: asyncio.Future[None] = loop.create_future()

        def fail(_raw: Any, error: Exception) -> None:
            if not opened.done():
                # What pika raises while it connects is of no type that it raises elsewhere.
                known = isinstance(error, AMQPError | OSError)
                opened.set_exception(error if known else AMQPConnectionError(error))

        def succeed(raw: Any) -> None:
            if not opened.done():
                opened.set_result(raw)

        def end(_raw: Any, _error: Exception) -> None:
            ended.set_result(None)
            self.blocked = False
            self._on_lost()

        raw = TolerantConnection(
            place,
            on_open_callback=succeed,
            on_open_error_callback=fail,
            on_close_callback=end,
            custom_ioloop=loop,
        )
        raw.add_on_connection_blocked_callback(self._block)
        raw.add_on_connection_unblocked_callback(self._unblock)
        try:
            await opened
        except asyncio.CancelledError:
            if not raw.is_closed:
                raw.close()
            raise
        version = str(raw.server_properties.get("version", "0.0"))
        self.version = _numbers(version)
        self.max_channels = raw.params.channel_max or MAX_CHANNELS
        self.max_frame = raw.params.frame_max or FRAME_MAX_SIZE
        self._raw, self._ended = raw, ended

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # everybody who waited may be gone

    def _block(self, *_: object) -> None:
        self.blocked = True
        logger.warning("the broker takes no messages: it is short of memory or disk space")
        for tell in list(self.on_blocked):
            tell()

    def _unblock(self, *_: object) -> None:
        self.blocked = False


def _numbers(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    if major.isdecimal() and minor.isdecimal():
        return int(major), int(minor)
    return 0, 0
