"""The driver object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from hypercube_queue import DeadLetter, Guarantees, InvalidArgument, Message, QueueStats
from hypercube_queue.driver import (
    MAX_POP_BYTES,
    BaseDeadLetterStore,
    BaseRedriver,
    BaseReleaser,
    BaseStatsProvider,
    BaseVisibilityExtender,
    Deadline,
    ItemErrors,
    PushItem,
    QueueURL,
    SettlementItem,
    from_microseconds,
    safe_repr,
    to_microseconds,
)
from hypercube_queue_memory._dead_letter_index import Death
from hypercube_queue_memory._entry import Entry, MemoryDelivery
from hypercube_queue_memory._queue_state import QueueState
from hypercube_queue_memory._store import MemoryStore, named_store

_GUARANTEES = Guarantees(durable=False, shared=False, ordering="fifo")

_Item = SettlementItem[MemoryDelivery]


class MemoryQueue(
    BaseVisibilityExtender[MemoryDelivery],
    BaseReleaser[MemoryDelivery],
    BaseRedriver[MemoryDelivery],
    BaseStatsProvider[MemoryDelivery],
    BaseDeadLetterStore[MemoryDelivery],
):
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
        super().__init__(
            "memory queue",
            MemoryDelivery,
            poll_timeout=poll_timeout,
            visibility_timeout=visibility_timeout,
        )
        self._store = MemoryStore() if store is None else store

    @property
    def guarantees(self) -> Guarantees:
        return _GUARANTEES

    # Push

    def _push(self, items: Sequence[PushItem]) -> ItemErrors:
        errors: ItemErrors = {}
        with self._store.lock:
            now = self._store.now()
            for item in items:
                if not self._store.queue(item.queue_name).add(item, now):
                    errors[item.index] = item.exists()
            for name in {item.queue_name for item in items}:
                self._store.queue(name).wake()
        return errors

    # Pop

    def _pop(self, queue_name: str, max_messages: int, wait: timedelta) -> list[Message]:
        deadline = Deadline(wait)
        with self._store.lock:
            state = self._store.queue(queue_name)
            try:
                while True:
                    self._gate.check()
                    now = self._store.now()
                    state.promote(now)
                    if taken := self._take(state, queue_name, max_messages, now):
                        state.wake()
                        return taken
                    if deadline.passed:
                        return []
                    self._sleep(state, now, deadline)
            finally:
                self._store.discard_if_idle(queue_name)

    def _take(
        self, state: QueueState, queue_name: str, max_messages: int, now: int
    ) -> list[Message]:
        taken: list[Message] = []
        visibility_us = to_microseconds(self._visibility_timeout)
        size = 0
        while len(taken) < max_messages and size < MAX_POP_BYTES:
            entry = state.take(visibility_us, now)
            if entry is None:
                break
            size += len(entry.payload) + len(entry.extra)
            message = _message(entry, queue_name)
            message.driver_data = MemoryDelivery(self, queue_name, entry)
            taken.append(message)
        return taken

    def _sleep(self, state: QueueState, now: int, deadline: Deadline) -> None:
        state.sleeping_until = state.next_due()
        seconds_to_due = (state.sleeping_until - now) / 1_000_000
        state.waiting += 1
        try:
            state.changed.wait(
                min(deadline.seconds_left(), seconds_to_due, self._store.longest_sleep)
            )
        except BaseException:
            state.changed.notify()  # an interrupted pop passes on what it was woken for
            raise
        finally:
            state.waiting -= 1

    # Settlement

    def _ack(self, items: Sequence[_Item]) -> ItemErrors:
        return self._change_owned(items, lambda state, item, _: state.remove(item.delivery.entry))

    def _retry(self, items: Sequence[_Item]) -> ItemErrors:
        def put_back(state: QueueState, item: _Item, now: int) -> None:
            _update(item)
            state.put_back(item.delivery.entry, item.delay_us, now)

        return self._change_owned(items, put_back)

    def _dead_letter(self, items: Sequence[_Item]) -> ItemErrors:
        def dead_letter(state: QueueState, item: _Item, _now: int) -> None:
            _update(item)
            state.dead_letter(item.delivery.entry)

        return self._change_owned(items, dead_letter)

    # Capabilities

    def _extend_visibility(self, items: Sequence[_Item], extension: timedelta) -> ItemErrors:
        extension_us = to_microseconds(extension)
        return self._change_owned(
            items, lambda state, item, now: state.extend(item.delivery.entry, now + extension_us)
        )

    def _release(self, items: Sequence[_Item]) -> ItemErrors:
        return self._change_owned(items, lambda state, item, _: state.release(item.delivery.entry))

    def _redrive(self, queue_name: str, count: int) -> int:
        with self._store.lock:
            state = self._store.queue(queue_name)
            moved = 0
            while moved < count and (entry := state.dead.oldest()):
                state.redrive(entry)
                moved += 1
            self._leave(queue_name)
            return moved

    def _queues(self) -> list[str]:
        with self._store.lock:
            return [name for name, state in self._store.queues.items() if state.entries]

    def _stats(self, queue_name: str) -> QueueStats:
        with self._store.lock:
            state = self._store.queues.get(queue_name)
            if state is None:
                return QueueStats(queue_name, 0, 0, 0, 0)
            state.promote(self._store.now())
            state.wake()
            return QueueStats(
                name=queue_name,
                ready=len(state.ready) + len(state.returned),
                delayed=len(state.delayed),
                in_flight=state.in_flight,
                dead=len(state.dead),
            )

    def _dead_letters(self, queue_name: str, limit: int, before: str | None) -> list[DeadLetter]:
        number = None if before is None else _checked_cursor(before)
        with self._store.lock:
            state = self._store.queues.get(queue_name)
            if state is None:
                return []
            page = zip(range(limit), state.dead.newest(number), strict=False)
            return [_dead_letter(death, queue_name) for _, death in page]

    def _redrive_ids(self, queue_name: str, ids: Sequence[str]) -> int:
        return self._change_dead(queue_name, ids, QueueState.redrive)

    def _forget(self, queue_name: str, ids: Sequence[str]) -> int:
        return self._change_dead(queue_name, ids, QueueState.forget)

    # Lifecycle

    def _close(self) -> None:
        with self._store.lock:
            for state in self._store.queues.values():
                state.changed.notify_all()

    # Internal

    def _change_owned(
        self, items: Sequence[_Item], change: Callable[[QueueState, _Item, int], None]
    ) -> ItemErrors:
        """Change the messages whose leases are alive; all of them at one moment."""
        errors: ItemErrors = {}
        with self._store.lock:
            now = self._store.now()
            for item in items:
                state = self._store.queue(item.delivery.queue_name)
                if state.owns(item.delivery, now):
                    change(state, item, now)
                else:
                    errors[item.index] = item.stale()
            for name in {item.delivery.queue_name for item in items}:
                self._leave(name)
        return errors

    def _change_dead(
        self, queue_name: str, ids: Sequence[str], change: Callable[[QueueState, Entry], None]
    ) -> int:
        with self._store.lock:
            state = self._store.queue(queue_name)
            found = 0
            for each in ids:
                if entry := state.dead.get(each):
                    change(state, entry)
                    found += 1
            self._leave(queue_name)
            return found

    def _leave(self, queue_name: str) -> None:
        """Wake waiting pops if there is something for them, and drop what nothing needs."""
        self._store.queue(queue_name).wake()
        self._store.discard_if_idle(queue_name)


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
