"""The driver object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from hypercube_queue import DeadLetter, Guarantees, InvalidArgument, Message, QueueStats
from hypercube_queue.driver import (
    MAX_POP,
    Closing,
    Deadline,
    Gate,
    PushBatch,
    QueueURL,
    SettlementBatch,
    SettlementItem,
    checked_count,
    checked_name,
    checked_poll_timeout,
    checked_queue_name,
    checked_visibility,
    checked_wait,
    from_microseconds,
    safe_repr,
    to_microseconds,
)
from hypercube_queue_memory._entry import Entry, MemoryDelivery
from hypercube_queue_memory._graveyard import Death
from hypercube_queue_memory._lane import Lane
from hypercube_queue_memory._store import MemoryStore, named_store

_GUARANTEES = Guarantees(durable=False, shared=False, ordering="fifo")


class MemoryQueue(Closing):
    """A queue in the memory of this process, gone with it.

    Objects over one `store` see the same messages; without one the object has a store of its
    own. Every operation is O(log n) in the messages of its queue, and a waiting pop notices a
    push, a due delay, an expired lease, a redrive and a close at once.

    `poll_timeout` is how long a pop waits by default, `visibility_timeout` how long a
    delivery owns a message that names no time of its own.

    A forked child cannot use it: every call there raises QueueClosed (LIFE-4).
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        poll_timeout: timedelta = timedelta(seconds=1),
        visibility_timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        self._store = MemoryStore() if store is None else store
        self._poll_timeout = checked_poll_timeout(poll_timeout)
        self._visibility_us = to_microseconds(checked_visibility(visibility_timeout))
        self._gate = Gate("memory queue")

    @property
    def guarantees(self) -> Guarantees:
        return _GUARANTEES

    # Push

    def push(self, *messages: Message) -> None:
        with self._gate:
            batch = PushBatch(messages, _GUARANTEES)
            with self._store.lock:
                now = self._store.now()
                touched: dict[str, Lane] = {}
                for item in batch.items:
                    lane = touched.get(item.queue_name)
                    if lane is None:
                        lane = touched[item.queue_name] = self._store.lane(item.queue_name)
                    if not lane.add(item, now):
                        batch.fail_existing(item)
                for lane in touched.values():
                    lane.wake()
            batch.raise_failures()

    # Pop

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, _GUARANTEES)
            checked_count("max_messages", max_messages, at_most=MAX_POP)
            deadline = Deadline(checked_wait(wait, self._poll_timeout))
            with self._store.lock:
                lane = self._store.lane(queue_name)
                try:
                    while True:
                        self._gate.check()
                        now = self._store.now()
                        lane.promote(now)
                        if taken := self._take(lane, queue_name, max_messages, now):
                            lane.wake()
                            return taken
                        if deadline.passed:
                            return []
                        self._sleep(lane, now, deadline)
                finally:
                    self._store.discard_if_idle(queue_name)

    def _take(self, lane: Lane, queue_name: str, max_messages: int, now: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < max_messages and (entry := lane.take(self._visibility_us, now)):
            message = _message(entry, queue_name)
            message.driver_data = MemoryDelivery(self, queue_name, entry)
            taken.append(message)
        return taken

    def _sleep(self, lane: Lane, now: int, deadline: Deadline) -> None:
        lane.sleeping_until = lane.next_due()
        seconds_to_due = (lane.sleeping_until - now) / 1_000_000
        lane.waiting += 1
        try:
            lane.changed.wait(
                min(deadline.seconds_left(), seconds_to_due, self._store.longest_sleep)
            )
        except BaseException:
            lane.changed.notify()  # an interrupted pop passes on what it was woken for
            raise
        finally:
            lane.waiting -= 1

    # Settlement

    def ack(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("ack", messages)
            with self._owned(batch) as owned:
                for item, lane, _now in owned:
                    lane.remove(item.delivery.entry)
            batch.raise_failures()

    def retry(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("retry", messages, contents=True, delay=True)
            with self._owned(batch) as owned:
                for item, lane, now in owned:
                    _update(item)
                    lane.put_back(item.delivery.entry, item.delay_us, now)
            batch.raise_failures()

    def dead_letter(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("dead_letter", messages, contents=True)
            with self._owned(batch) as owned:
                for item, lane, _now in owned:
                    _update(item)
                    lane.bury(item.delivery.entry)
            batch.raise_failures()

    # Capabilities

    @property
    def visibility_timeout(self) -> timedelta:
        return from_microseconds(self._visibility_us)

    def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        with self._gate:
            batch = SettlementBatch(
                "extend_visibility",
                messages,
                MemoryDelivery,
                self,
                _GUARANTEES,
                extension=extension,
            )
            with self._owned(batch) as owned:
                for item, lane, now in owned:
                    lane.extend(item.delivery.entry, now + to_microseconds(extension))
            batch.raise_failures()

    def release(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("release", messages)
            with self._owned(batch) as owned:
                for item, lane, _now in owned:
                    lane.release(item.delivery.entry)
            batch.raise_failures()

    def redrive(self, queue_name: str, count: int) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, _GUARANTEES)
            checked_count("count", count)
            with self._store.lock:
                lane = self._store.lane(queue_name)
                moved = 0
                while moved < count and (entry := lane.dead.oldest()):
                    lane.revive(entry)
                    moved += 1
                lane.wake()
                self._store.discard_if_idle(queue_name)
                return moved

    def queues(self) -> list[str]:
        with self._gate, self._store.lock:
            return sorted(name for name, lane in self._store.lanes.items() if lane.entries)

    def stats(self, queue_name: str) -> QueueStats:
        with self._gate:
            queue_name = checked_queue_name(queue_name, _GUARANTEES)
            with self._store.lock:
                lane = self._store.lanes.get(queue_name)
                if lane is None:
                    return QueueStats(queue_name, 0, 0, 0, 0)
                lane.promote(self._store.now())
                lane.wake()
                return QueueStats(
                    name=queue_name,
                    ready=len(lane.ready) + len(lane.returned),
                    delayed=len(lane.delayed),
                    in_flight=lane.in_flight,
                    dead=len(lane.dead),
                )

    def dead_letters(
        self, queue_name: str, limit: int, before: str | None = None
    ) -> list[DeadLetter]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, _GUARANTEES)
            checked_count("limit", limit, at_most=MAX_POP)
            number = None if before is None else _checked_cursor(before)
            with self._store.lock:
                lane = self._store.lanes.get(queue_name)
                if lane is None:
                    return []
                page = zip(range(limit), lane.dead.newest(number), strict=False)
                return [_dead_letter(death, queue_name) for _, death in page]

    def redrive_ids(self, queue_name: str, *ids: str) -> int:
        return self._for_dead(queue_name, ids, Lane.revive)

    def forget(self, queue_name: str, *ids: str) -> int:
        return self._for_dead(queue_name, ids, Lane.forget)

    # Lifecycle

    def close(self) -> None:
        if self._gate.close():
            with self._store.lock:
                for lane in self._store.lanes.values():
                    lane.changed.notify_all()

    # Within

    def _settlement(
        self,
        operation: str,
        messages: tuple[Message, ...],
        *,
        contents: bool = False,
        delay: bool = False,
    ) -> SettlementBatch[MemoryDelivery]:
        return SettlementBatch(
            operation,
            messages,
            MemoryDelivery,
            self,
            _GUARANTEES,
            contents=contents,
            delay=delay,
        )

    @contextmanager
    def _owned(
        self, batch: SettlementBatch[MemoryDelivery]
    ) -> Iterator[Iterable[tuple[SettlementItem[MemoryDelivery], Lane, int]]]:
        """The items whose leases are alive, under the lock; the others have failed."""
        with self._store.lock:
            now = self._store.now()
            owned: list[tuple[SettlementItem[MemoryDelivery], Lane, int]] = []
            for item in batch.items:
                lane = self._store.lane(item.delivery.queue_name)
                if lane.owns(item.delivery, now):
                    owned.append((item, lane, now))
                else:
                    batch.fail_stale(item)
            yield owned
            for name in {item.delivery.queue_name for item in batch.items}:
                self._store.lane(name).wake()
                self._store.discard_if_idle(name)

    def _for_dead(
        self, queue_name: str, ids: tuple[str, ...], change: Callable[[Lane, Entry], None]
    ) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, _GUARANTEES)
            names = [checked_name("id", message_id, may_be_empty=False) for message_id in ids]
            with self._store.lock:
                lane = self._store.lane(queue_name)
                found = 0
                for name in names:
                    if entry := lane.dead.get(name):
                        change(lane, entry)
                        found += 1
                lane.wake()
                self._store.discard_if_idle(queue_name)
                return found


def from_url(url: str) -> MemoryQueue:
    """`memory://` has a store of its own, `memory://name` shares one within the process.

    Options: `poll_timeout` and `visibility_timeout`, in seconds.
    """
    parts = QueueURL(url)
    if parts.path.strip("/") or parts.port is not None or parts.username is not None:
        raise InvalidArgument("a memory URL is memory:// or memory://name")
    store = named_store(parts.hostname) if parts.hostname else MemoryStore()
    poll_timeout = parts.options.duration("poll_timeout", timedelta(seconds=1))
    visibility_timeout = parts.options.duration("visibility_timeout", timedelta(seconds=30))
    parts.options.refuse_unknown()
    return MemoryQueue(store, poll_timeout=poll_timeout, visibility_timeout=visibility_timeout)


def _message(entry: Entry, queue_name: str) -> Message:
    return Message(
        queue_name,
        entry.payload,
        entry.job_name,
        entry.namespace,
        entry.id,
        entry.extra,
        visibility_timeout=(
            None if entry.visibility_us is None else from_microseconds(entry.visibility_us)
        ),
        attempt=entry.attempt,
    )


def _update(item: SettlementItem[MemoryDelivery]) -> None:
    item.delivery.entry.payload = item.payload
    item.delivery.entry.extra = item.extra


def _dead_letter(death: Death, queue_name: str) -> DeadLetter:
    message = _message(death.entry, queue_name)
    return DeadLetter(message, None, "", death.died_at, str(death.number))


def _checked_cursor(cursor: object) -> int:
    if isinstance(cursor, str) and cursor.isascii() and cursor.isdecimal():
        return int(cursor)
    raise InvalidArgument(f"before is {safe_repr(cursor)}; it takes the cursor of a DeadLetter")
