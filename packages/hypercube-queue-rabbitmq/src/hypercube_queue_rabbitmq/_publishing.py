"""Publishing with mandatory routing and confirms, many messages outstanding at once."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pika.exceptions import AMQPError  # type: ignore[import-untyped]  # pika ships no types

from hypercube_queue import BackendError, CapacityExceeded, MessageTooLarge, QueueError
from hypercube_queue.driver import safe_repr
from hypercube_queue_rabbitmq._channel import Channel
from hypercube_queue_rabbitmq._connection import Connection
from hypercube_queue_rabbitmq._errors import (
    NOT_FOUND,
    PRECONDITION_FAILED,
    closed_with,
    translation,
)
from hypercube_queue_rabbitmq._ladder import step_for
from hypercube_queue_rabbitmq._outgoing import Outgoing
from hypercube_queue_rabbitmq._topology import Topology

logger = logging.getLogger("hypercube_queue_rabbitmq")

#: How much is sent before the first confirm must have come. More would only fill buffers.
_MOST_OUTSTANDING = 1000
_MOST_OUTSTANDING_BYTES = 16 * 1024 * 1024
#: Channels that are kept for the next call.
_MOST_IDLE = 8
_GONE_EXCHANGE = re.compile(r"no exchange '([^']+)'")
_TOO_LARGE = re.compile(r"message size \d+ .*max size (\d+)")


class Publisher:
    """Publishes over one connection, each call on a channel that no other call uses."""

    def __init__(self, connection: Connection, topology: Topology, place: str) -> None:
        self._connection = connection
        self._topology = topology
        self._place = place
        self._idle: list[_ConfirmingChannel] = []
        self._busy: set[_ConfirmingChannel] = set()
        connection.on_blocked.append(self._on_blocked)

    @property
    def user(self) -> str | None:
        """The name that the broker checks in what is published; None if it is not known here."""
        return self._connection.user

    async def publish(self, batch: Sequence[Outgoing], end: float) -> None:
        """Store messages at their destinations, by `end` on the loop's clock.

        Raises nothing: what became of each stands in its `error`.
        """
        sending: list[Outgoing] = []
        try:
            async with asyncio.timeout_at(end):
                if self._connection.blocked:
                    _fail(batch, lambda: _no_room(self._place))
                    return
                await self._connection.open()
                sending = await self._addressed(batch)
                if not sending:
                    return
                await self._send(sending)
                if without_step := [each for each in sending if each.without_step]:
                    await self._renew_steps(without_step)
                    await self._send(without_step)
        except (AMQPError, OSError, TimeoutError) as error:
            reason = error
            _fail(batch, lambda: translation(reason, self._place, sent=False))
            if isinstance(error, TimeoutError) and not self._connection.blocked:
                self._connection.abort(error)
        if failed := [each for each in sending if each.error is not None]:
            # Perhaps somebody deleted it: the next call looks.
            self._topology.forget(*(each.routing_key for each in failed))
            self._topology.forget(*(each.exchange for each in failed))

    async def _send(self, batch: Sequence[Outgoing]) -> None:
        channel = await self._take()
        self._busy.add(channel)
        try:
            await channel.publish(batch)
        finally:
            self._busy.discard(channel)
            self._put_back(channel)

    async def _addressed(self, batch: Sequence[Outgoing]) -> list[Outgoing]:
        """The messages whose queues are there; the others have failed."""
        sending = []
        refused: dict[tuple[str, str, int], Exception] = {}
        find = {
            "work": self._topology.work,
            "dead": self._topology.dead,
            "unreadable": self._topology.unreadable,
        }
        for each in batch:
            step = step_for(each.delay_us) if each.delay_us else 0
            place = (each.destination, each.queue_name, step)
            try:
                if place in refused:
                    raise refused[place]
                each.routing_key = await find[each.destination](self._connection, each.queue_name)
                if step:
                    each.exchange = await self._topology.step(self._connection, step)
            except AMQPError as error:
                refused[place] = error
                each.error = translation(error, self._place, sent=False)
            else:
                sending.append(each)
        return sending

    async def _renew_steps(self, batch: Sequence[Outgoing]) -> None:
        """Declare delay steps again that somebody deleted; none of these messages was stored."""
        for each in batch:
            each.without_step = False
            each.error = None
        for name in {each.exchange for each in batch}:
            logger.warning(
                "%s: the delay step %s was deleted and is declared again; messages that waited "
                "there are lost if its queue was deleted",
                self._place,
                safe_repr(name),
            )
            self._topology.forget(name)
        for each in batch:
            await self._topology.step(self._connection, step_for(each.delay_us))

    async def _take(self) -> _ConfirmingChannel:
        while self._idle:
            channel = self._idle.pop()
            if channel.channel.closed_by is None:
                return channel
        channel = _ConfirmingChannel(await self._connection.channel(), self._place)
        await channel.channel.call(
            lambda done: channel.channel.raw.confirm_delivery(channel.on_confirm, callback=done)
        )
        return channel

    def _put_back(self, channel: _ConfirmingChannel) -> None:
        # Tags go on counting, so confirms that come late are not taken for those of a later call.
        if channel.channel.closed_by is None and len(self._idle) < _MOST_IDLE:
            self._idle.append(channel)
        else:
            channel.channel.close()

    def _on_blocked(self) -> None:
        for channel in self._busy:
            channel.on_blocked()


class _ConfirmingChannel:
    """A channel in confirm mode: every message sent on it is accounted for."""

    def __init__(self, channel: Channel, place: str) -> None:
        self.channel = channel
        self._place = place
        self._sent = 0
        self._unsent: deque[Outgoing] = deque()
        self._outstanding: dict[int, Outgoing] = {}
        self._outstanding_bytes = 0
        self._done: asyncio.Future[None] | None = None
        channel.on_closed.append(self._on_closed)
        channel.raw.add_on_return_callback(self._on_return)

    async def publish(self, batch: Sequence[Outgoing]) -> None:
        """Send and wait for all confirms; when cancelled, say which outcomes are unknown."""
        self._unsent.extend(batch)
        self._done = asyncio.get_running_loop().create_future()
        try:
            self._send()
            await self._done
        except asyncio.CancelledError:
            self._give_up(TimeoutError("no confirm came in time"))
            raise
        finally:
            self._done = None

    def on_confirm(self, frame: Any) -> None:
        """The broker took responsibility, or refused, for one message or for all up to it."""
        method = frame.method
        refused = method.NAME == "Basic.Nack"
        if method.multiple:
            tags = [tag for tag in self._outstanding if tag <= method.delivery_tag]
        else:
            tags = [method.delivery_tag]
        for tag in tags:
            each = self._outstanding.pop(tag, None)
            if each is None:
                continue
            self._outstanding_bytes -= len(each.body)
            if refused:
                each.fail(_refused(each, self._place))
            elif each.error is None:
                each.stored = True
        self._send()

    def on_blocked(self) -> None:
        """What was not sent yet would not be read."""
        unsent, self._unsent = list(self._unsent), deque()
        _fail(unsent, lambda: _no_room(self._place))
        self._check()

    def _send(self) -> None:
        raw = self.channel.raw
        while (
            self._unsent
            and raw.is_open  # else the reason is about to come
            and len(self._outstanding) < _MOST_OUTSTANDING
            and self._outstanding_bytes < _MOST_OUTSTANDING_BYTES
        ):
            each = self._unsent.popleft()
            self._sent += 1
            self._outstanding[self._sent] = each
            self._outstanding_bytes += len(each.body)
            raw.basic_publish(
                each.exchange,
                each.routing_key,
                each.body,
                each.as_properties(),
                mandatory=True,
            )
        self._check()

    def _check(self) -> None:
        waiting = self._done is not None and not self._done.done()
        if self._done is not None and waiting and not self._outstanding and not self._unsent:
            self._done.set_result(None)

    def _on_return(self, _raw: Any, method: Any, properties: Any, _body: bytes) -> None:
        """No queue took it. Its confirm follows, and says nothing of that."""
        for each in self._outstanding.values():
            if (
                each.error is None
                and each.id == (properties.message_id or "")
                and each.routing_key == method.routing_key
                and each.exchange == method.exchange
            ):
                each.error = _unroutable(each, self._place)
                each.without_step = bool(each.exchange)
                return

    def _on_closed(self, reason: Exception) -> None:
        limit = _TOO_LARGE.search(str(reason)) if closed_with(reason, PRECONDITION_FAILED) else None
        if limit is not None:
            most = int(limit[1])
            for each in self._outstanding.values():
                if len(each.body) > most:
                    each.error = MessageTooLarge(
                        f"{self._place}: the broker takes {most} bytes (max_message_size), and the "
                        f"message {safe_repr(each.id)} has {len(each.body)}; raise its limit, or "
                        "store the content elsewhere and push a reference to it"
                    )
        if closed_with(reason, NOT_FOUND):
            gone = _GONE_EXCHANGE.search(str(reason))
            for each in self._outstanding.values():
                if gone is not None and each.exchange == gone[1]:
                    each.error = _unroutable(each, self._place)
                    each.without_step = True
        self._give_up(reason)

    def _give_up(self, reason: Exception) -> None:
        _fail(self._outstanding.values(), lambda: translation(reason, self._place, sent=True))
        _fail(self._unsent, lambda: translation(reason, self._place, sent=False))
        self._outstanding.clear()
        self._unsent.clear()
        self._outstanding_bytes = 0
        self._check()


def _fail(batch: Iterable[Outgoing], make: Callable[[], QueueError]) -> None:
    """Note a failure for each whose fate is open, each with an error object of its own (ERR-4)."""
    for each in batch:
        if not each.stored and each.error is None:
            each.error = make()


def _no_room(place: str) -> CapacityExceeded:
    return CapacityExceeded(
        f"{place}: not sent, since the broker takes no messages until it has memory and disk "
        "space again (a resource alarm)"
    )


def _refused(each: Outgoing, place: str) -> CapacityExceeded:
    return CapacityExceeded(
        f"{place}: the broker refused a message for the queue {safe_repr(each.routing_key)}: it is "
        "full (max-length with reject-publish), or has no majority of its members"
    )


def _unroutable(each: Outgoing, place: str) -> BackendError:
    if each.exchange:
        return BackendError(
            f"{place}: there is no exchange or no queue {safe_repr(each.exchange)}, the step in "
            "which "
            "a delayed message waits, so it was not stored; the next call declares it again"
        )
    return BackendError(
        f"{place}: there is no queue {safe_repr(each.routing_key)}, so the message was not stored; "
        "create it, or open the queue with declare=true, which does so at the next call"
    )
