"""Declaring what messages lie in.

Queues are durable, and are never deleted by anybody but people. Nothing has an expiry of its
own: `x-expires` is not renewed by publishing, so a busy queue would vanish with its messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from hypercube_queue_rabbitmq._channel import Channel
from hypercube_queue_rabbitmq._connection import Connection
from hypercube_queue_rabbitmq._names import Names, step_name

Arguments = dict[str, Any]
#: What pika's declaring methods have in common: they take a callback.
Declare = Callable[[Callable[[Any], None]], object]

#: The first version whose quorum queues drop what came back too often, unless told otherwise.
_LIMITS_DELIVERIES = (4, 0)


class Topology:
    """The queues of one driver object, declared once and again after a lost connection.

    With `declare` false, queues and their dead letters are the operator's to create. What only
    the driver can know is declared in any case: delay steps, and where unreadable bytes go.
    Methods raise what pika raises.
    """

    def __init__(self, names: Names, queue_type: str, *, declare: bool) -> None:
        self.names = names
        self._queue_type = queue_type
        self._declare = declare
        self._known: set[str] = set()
        self._locks: WeakKeyDictionary[Connection, asyncio.Lock] = WeakKeyDictionary()
        self._channels: WeakKeyDictionary[Connection, Channel] = WeakKeyDictionary()

    def declare_nothing(self) -> None:
        """Leave queues and their dead letters to the operator from now on."""
        self._declare = False

    def forget(self, *names: str) -> None:
        """Declare these queues again when they are needed; without names, all."""
        if names:
            self._known.difference_update(names)
        else:
            self._known.clear()

    async def work(self, connection: Connection, queue_name: str) -> str:
        """The queue to push to and pop from."""
        name = self.names.work(queue_name)
        if self._declare and name not in self._known:
            dead = await self.dead(connection, queue_name)
            await self._queue(
                connection,
                name,
                self._queue_type,
                # What a policy of the operator's throws out is not lost.
                {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
            )
        return name

    async def dead(self, connection: Connection, queue_name: str) -> str:
        """The queue of its dead letters."""
        name = self.names.dead(queue_name)
        if self._declare and name not in self._known:
            await self._queue(connection, name, self._queue_type, {})
        return name

    async def unreadable(self, connection: Connection, queue_name: str) -> str:
        """The queue for what cannot be read."""
        name = self.names.unreadable(queue_name)
        if name not in self._known:
            await self._queue(connection, name, self._queue_type, {})
        return name

    async def step(self, connection: Connection, milliseconds: int) -> str:
        """The exchange that leads into a step of the delay ladder.

        The queue behind it hands each message on to the default exchange when its time is
        over, and keeps it until the queue it is meant for has confirmed it.
        """
        name = step_name(milliseconds)
        if name in self._known:
            return name
        await self._declaring(
            connection,
            name,
            lambda raw, done: raw.exchange_declare(name, "fanout", durable=True, callback=done),
        )
        await self._queue(
            connection,
            name,
            "quorum",
            {
                "x-message-ttl": milliseconds,
                "x-dead-letter-exchange": "",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
            bound=True,
        )
        return name

    async def _queue(
        self,
        connection: Connection,
        name: str,
        queue_type: str,
        arguments: Arguments,
        *,
        bound: bool = False,
    ) -> None:
        def declare(raw: Any, done: Callable[[Any], None]) -> None:
            limits = queue_type == "quorum" and connection.version >= _LIMITS_DELIVERIES
            unlimited = {"x-delivery-limit": -1} if limits else {}
            raw.queue_declare(
                name,
                durable=True,
                arguments={"x-queue-type": queue_type, **unlimited, **arguments},
                callback=done,
            )

        await self._declaring(connection, name, declare)
        if bound:
            await self._declaring(
                connection, name, lambda raw, done: raw.queue_bind(name, name, callback=done)
            )
        self._known.add(name)

    async def _declaring(
        self,
        connection: Connection,
        name: str,
        declare: Callable[[Any, Callable[[Any], None]], object],
    ) -> None:
        """One at a time, since a refusal ends the channel."""
        lock = self._locks.setdefault(connection, asyncio.Lock())
        async with lock:
            if name in self._known:
                return
            channel = self._channels.get(connection)
            if channel is None or channel.closed_by is not None:
                channel = self._channels[connection] = await connection.channel()
            raw = channel.raw
            await channel.call(lambda done: declare(raw, done))
