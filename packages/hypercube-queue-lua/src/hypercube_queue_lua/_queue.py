"""The driver object."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import timedelta

from hypercube_queue import DeadLetter, Guarantees, Message, QueueError, QueueStats
from hypercube_queue.driver import (
    MAX_POP,
    MAX_POP_BYTES,
    Closing,
    Deadline,
    Gate,
    PushBatch,
    SettlementBatch,
    checked_count,
    checked_name,
    checked_queue_name,
    checked_wait,
    safe_repr,
    to_microseconds,
)
from hypercube_queue_lua._client import Client
from hypercube_queue_lua._dead_letters import checked_cursor, dead_letter
from hypercube_queue_lua._delivery import LuaDelivery
from hypercube_queue_lua._errors import unsent
from hypercube_queue_lua._options import Options
from hypercube_queue_lua._storage import Claim, Storage
from hypercube_queue_lua._waiters import Waiters
from hypercube_queue_lua._wire import Taken, Unreadable, delivered, message

_log = logging.getLogger("hypercube_queue_lua")

GUARANTEES = Guarantees(
    durable=True,
    failover="may_lose",
    ordering="fifo",
    # A script copies a body several times, and the server does nothing else meanwhile.
    max_message_bytes=64 * 1024 * 1024,
)

#: A waiting pop looks at least so often, in seconds: the token may be lost (POP-7).
_SLICE = 1.0
#: The shortest wait that a server takes for a wait; zero would be one without end.
_SHORTEST = 0.001
#: How long `close` waits for running calls before it closes the client.
_LEAVE = timedelta(seconds=1)


class LuaQueue(Closing):
    """A queue on a server that runs Lua scripts; drivers add the client.

    `kind` is what error texts call the object.
    """

    def __init__(self, client: Client, options: Options, *, kind: str) -> None:
        self._client = client
        self._poll_timeout = options.poll_timeout
        self._visibility_timeout = options.visibility_timeout
        self._operation_timeout = options.operation_timeout
        self._storage = Storage(client, options.prefix)
        self._waiters = Waiters()
        self._has_looked = False
        self._gate = Gate(kind, in_child=self._in_child)

    @property
    def guarantees(self) -> Guarantees:
        return GUARANTEES

    # Push

    def push(self, *messages: Message) -> None:
        with self._gate:
            batch = PushBatch(messages, GUARANTEES)
            if batch.items:
                end = self._end()
                try:
                    self._look_at_server(end)
                except QueueError as error:
                    refused = error
                    batch.fail_all(batch.items, lambda: unsent(refused))
                else:
                    self._storage.push(batch, end)
            batch.raise_failures()

    # Pop

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, GUARANTEES)
            checked_count("max_messages", max_messages, at_most=MAX_POP)
            waiting = checked_wait(wait, self._poll_timeout)
            deadline = Deadline(waiting)
            end = Deadline(waiting + self._operation_timeout)
            self._look_at_server(self._end(end))
            while True:
                self._gate.check()
                # A server that does not answer one look is silent, however long the wait.
                taken, seconds_to_due = self._take(queue_name, max_messages, self._end(end))
                if taken:
                    return taken
                if deadline.passed:
                    return []
                self._wait(queue_name, min(deadline.seconds_left(), seconds_to_due), end)

    def _take(
        self, queue_name: str, max_messages: int, end: Deadline
    ) -> tuple[list[Message], float]:
        """Deliveries, or how many seconds a waiting pop may sleep at most."""
        received: list[Message] = []
        bytes_left = MAX_POP_BYTES
        while True:
            try:
                claim = self._storage.claim(
                    queue_name,
                    max_messages - len(received),
                    bytes_left,
                    to_microseconds(self._visibility_timeout),
                    end,
                )
            except QueueError:
                if received:
                    break  # the next call will meet the error, too
                raise
            received += self._readable(queue_name, claim, end)
            bytes_left -= claim.size
            if not claim.more or len(received) >= max_messages or bytes_left <= 0:
                break
        if received and self._gate.closed:
            # Nobody can settle what a closed queue hands out.
            batch = self._settlement("release", tuple(received))
            self._storage.settle(batch, "release", end)
            self._gate.check()
        seconds = claim.seconds_to_due
        return received, _SLICE if seconds is None else min(seconds, _SLICE)

    def _readable(self, queue_name: str, claim: Claim, end: Deadline) -> list[Message]:
        received: list[Message] = []
        for each in claim.taken:
            try:
                found = message(queue_name, each.id, each.body, each.attempt)
            except Unreadable as error:
                self._set_aside(queue_name, each, claim.token, str(error), end)
                continue
            received.append(delivered(self, found, each.id, claim.token))
        return received

    def _set_aside(
        self, queue_name: str, unreadable: Taken, token: bytes, reason: str, end: Deadline
    ) -> None:
        # Where it fails, the end of the lease brings the message here again.
        with suppress(QueueError):
            if self._storage.set_aside(queue_name, unreadable, token, reason, end):
                _log.warning(
                    "a message of queue %s cannot be read and is set aside among the dead "
                    "letters: %s",
                    safe_repr(queue_name),
                    reason,
                )

    def _wait(self, queue_name: str, seconds: float, end: Deadline) -> None:
        seconds = max(seconds, _SHORTEST)
        with self._waiters.waiting(queue_name):
            self._gate.check()
            answered = self._end(end, after=seconds)
            self._storage.wait(queue_name, self._waiters.name, seconds, answered)
        if self._gate.closed:
            # What it was woken by may have been meant for another.
            with suppress(QueueError):
                self._storage.wake(queue_name, self._end(end))
            self._gate.check()

    # Settlement

    def ack(self, *messages: Message) -> None:
        with self._gate:
            self._settle(self._settlement("ack", messages), "ack")

    def retry(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("retry", messages, contents=True, delay=True)
            self._settle(batch, "retry", contents=True)

    def dead_letter(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("dead_letter", messages, contents=True)
            self._settle(batch, "dead_letter", contents=True)

    # Capabilities

    @property
    def visibility_timeout(self) -> timedelta:
        return self._visibility_timeout

    def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        with self._gate:
            batch = SettlementBatch(
                "extend_visibility", messages, LuaDelivery, self, GUARANTEES, extension=extension
            )
            if batch.items:
                end = self._end()
                args = (to_microseconds(extension),)
                self._storage.settle(batch, "extend_visibility", end, args=args)
            batch.raise_failures()

    def release(self, *messages: Message) -> None:
        with self._gate:
            self._settle(self._settlement("release", messages), "release")

    def redrive(self, queue_name: str, count: int) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, GUARANTEES)
            checked_count("count", count)
            return self._storage.redrive(queue_name, count, self._end())

    def queues(self) -> list[str]:
        with self._gate:
            return sorted(self._storage.names(self._end()))

    def stats(self, queue_name: str) -> QueueStats:
        with self._gate:
            queue_name = checked_queue_name(queue_name, GUARANTEES)
            return self._storage.stats(queue_name, self._end())

    def dead_letters(
        self, queue_name: str, limit: int, before: str | None = None
    ) -> list[DeadLetter]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, GUARANTEES)
            checked_count("limit", limit, at_most=MAX_POP)
            place = None if before is None else checked_cursor(before)
            found = self._storage.dead_letters(queue_name, limit, place, self._end())
            return [dead_letter(each, queue_name) for each in found]

    def redrive_ids(self, queue_name: str, *ids: str) -> int:
        return self._for_dead("redrive_ids", queue_name, ids)

    def forget(self, queue_name: str, *ids: str) -> int:
        return self._for_dead("forget", queue_name, ids)

    # Lifecycle

    def close(self) -> None:
        if self._gate.close():
            if waiting := self._waiters.counts():
                with suppress(QueueError):
                    self._storage.say_farewell(waiting, self._waiters.name, Deadline(_LEAVE))
            self._gate.wait_until_empty(_LEAVE)
            self._client.close()

    # Within

    def _end(self, latest: Deadline | None = None, *, after: float = 0.0) -> Deadline:
        """The end of what begins now and blocks for `after` seconds; `latest` at the latest."""
        seconds = after + self._operation_timeout.total_seconds()
        if latest is not None:
            seconds = min(seconds, latest.seconds_left())
        return Deadline(timedelta(seconds=seconds))

    def _settlement(
        self,
        operation: str,
        messages: tuple[Message, ...],
        *,
        contents: bool = False,
        delay: bool = False,
    ) -> SettlementBatch[LuaDelivery]:
        return SettlementBatch(
            operation, messages, LuaDelivery, self, GUARANTEES, contents=contents, delay=delay
        )

    def _settle(
        self, batch: SettlementBatch[LuaDelivery], name: str, *, contents: bool = False
    ) -> None:
        if batch.items:
            self._storage.settle(batch, name, self._end(), contents=contents)
        batch.raise_failures()

    def _for_dead(self, name: str, queue_name: str, ids: tuple[str, ...]) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, GUARANTEES)
            names = [checked_name("id", each, may_be_empty=False) for each in ids]
            return self._storage.for_dead(name, queue_name, names, self._end())

    def _look_at_server(self, end: Deadline) -> None:
        """Once: warn of an eviction policy that would act on messages (LIFE-6)."""
        if self._has_looked:
            return
        policy = self._storage.eviction_policy(end)
        if self._has_looked:
            return  # another thread was faster
        self._has_looked = True
        if policy is not None and policy != "noeviction":
            _log.warning(
                "the server's maxmemory-policy is %s: when it is out of memory it removes %s; "
                "set it to noeviction, so that a push is refused instead",
                policy,
                _evicted(policy),
            )

    def _in_child(self) -> None:
        self._client.in_child()
        # Its lock may be taken by a thread that is not here.
        self._waiters = Waiters()


def _evicted(policy: str) -> str:
    if policy.startswith("volatile"):
        return "keys with an expiry, and a queue whose keys were given one loses its messages"
    return "keys of its choice, and a queue loses all of its messages at once"
