"""Settling deliveries, and extending their leases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from hypercube_queue import BackendError, NotFound, QueueError
from hypercube_queue.driver import (
    Deadline,
    SettlementBatch,
    SettlementItem,
    chunked,
    copy_error,
    from_microseconds,
)
from hypercube_queue_sqs._clients import Clients
from hypercube_queue_sqs._delivery import Claims, SQSDelivery, lease_of
from hypercube_queue_sqs._directory import Directory
from hypercube_queue_sqs._service import Service
from hypercube_queue_sqs._threads import Task, Threads, outcomes
from hypercube_queue_sqs._wire import (
    MAX_ENTRIES,
    MAX_REQUEST_BYTES,
    Entry,
    body_bytes,
    updated,
    whole_seconds,
)

_log = logging.getLogger("hypercube_queue_sqs")

Batch: TypeAlias = SettlementBatch[SQSDelivery]
Item: TypeAlias = SettlementItem[SQSDelivery]
#: Items with what they store.
Chunk: TypeAlias = Sequence[tuple[Item, Entry]]
#: What became of the items of a chunk, in their order.
Fates: TypeAlias = Sequence[QueueError | None]


class Settling:
    """Does with deliveries what a batch asks for, in chunks and several at once."""

    def __init__(
        self, clients: Clients, service: Service, directory: Directory, threads: Threads
    ) -> None:
        self._clients = clients
        self._service = service
        self._directory = directory
        self._threads = threads
        self._claims = Claims()

    def ack(self, batch: Batch, end: Deadline) -> None:
        """Remove the deliveries."""
        self._settle(batch, [(item, {}) for item in batch.items], self._ack, end)

    def retry(self, batch: Batch, end: Deadline) -> None:
        """Publish them anew in their queue, and remove them."""
        self._move(batch, lambda chunk: chunk[0][0].delivery.place.url, end)

    def dead_letter(self, batch: Batch, end: Deadline) -> None:
        """Publish them anew among the dead letters, and remove them."""
        self._move(
            batch, lambda chunk: self._directory.dead(chunk[0][0].delivery.queue_name, end), end
        )

    def extend(self, batch: Batch, extension_us: int, end: Deadline) -> None:
        """Let their leases end so much later than now."""
        self._settle(
            batch,
            [(item, {}) for item in batch.items],
            lambda chunk, end: self._extend(chunk, extension_us, end),
            end,
        )

    # Within

    def _move(self, batch: Batch, destination: Callable[[Chunk], str], end: Deadline) -> None:
        self._settle(
            batch,
            batch.prepared(updated),
            lambda chunk, end: self._publish_and_remove(chunk, destination, end),
            end,
        )

    def _settle(
        self,
        batch: Batch,
        items: Chunk,
        act: Callable[[Chunk, Deadline], Fates],
        end: Deadline,
    ) -> None:
        if not self._claims.claim([item.delivery for item, _ in items], end):
            batch.fail_all([item for item, _ in items], lambda: _taken(self._service.place))
            return
        owned: dict[tuple[str, str], list[tuple[Item, Entry]]] = {}
        for item, entry in items:
            if item.delivery.is_owned:
                place = item.delivery.place.url, item.delivery.queue_name
                owned.setdefault(place, []).append((item, entry))
            else:
                batch.fail_stale(item)
                self._claims.release([item.delivery])
        chunks = [chunk for group in owned.values() for chunk in _chunks(group)]
        tasks = self._begin(chunks, act, end)
        ended = outcomes(tasks, end, self._service.place)
        for chunk, outcome in zip(chunks, ended, strict=True):
            fates = [outcome] * len(chunk) if isinstance(outcome, QueueError) else outcome
            for (item, _), fate in zip(chunk, fates, strict=True):
                if isinstance(fate, NotFound):
                    batch.fail_stale(item)
                elif fate is not None:
                    batch.fail(item, copy_error(fate))
                    self._directory.forget(item.delivery.queue_name, fate)

    def _begin(
        self, chunks: Sequence[Chunk], act: Callable[[Chunk, Deadline], Fates], end: Deadline
    ) -> list[Task[Fates]]:
        """Each chunk in a thread, which lets go of its deliveries."""
        tasks: list[Task[Fates]] = []
        try:
            for chunk in chunks:
                call = partial(self._act, act, chunk, end)
                tasks.append(self._threads.run(call, unbegun=partial(self._release, chunk)))
        except BaseException:
            for chunk in chunks[len(tasks) :]:
                self._release(chunk)
            raise
        return tasks

    def _act(self, act: Callable[[Chunk, Deadline], Fates], chunk: Chunk, end: Deadline) -> Fates:
        try:
            # A lease may have ended while others were being served.
            owned = [(item, entry) for item, entry in chunk if item.delivery.is_owned]
            found = iter(act(owned, end) if owned else ())
            numbers = {item.index for item, _ in owned}
            return [next(found) if item.index in numbers else NotFound() for item, _ in chunk]
        finally:
            self._release(chunk)

    def _release(self, chunk: Chunk) -> None:
        self._claims.release(item.delivery for item, _ in chunk)

    def _ack(self, chunk: Chunk, end: Deadline) -> Fates:
        fates = self._remove(chunk, end)
        store = self._clients.get().ids
        gone = [item.delivery for (item, _), fate in zip(chunk, fates, strict=True) if fate is None]
        if store is not None and gone:
            try:
                store.release(gone[0].place.arn, [each.id for each in gone])
            except QueueError as error:
                # What was removed is removed; its id stays taken until it expires.
                _log.warning("the ids of acknowledged messages could not be freed: %s", error)
        return fates

    def _publish_and_remove(
        self, chunk: Chunk, destination: Callable[[Chunk], str], end: Deadline
    ) -> Fates:
        fates: dict[int, QueueError | None] = {}
        unsent = [(item, entry) for item, entry in chunk if not item.delivery.moved]
        if unsent:
            sent = self._service.send(destination(unsent), [entry for _, entry in unsent], end)
            for (item, _), fate in zip(unsent, sent, strict=True):
                fates[item.index] = fate
                item.delivery.moved = fate is None
        moved = [(item, entry) for item, entry in chunk if item.delivery.moved]
        if moved:
            for (item, _), fate in zip(moved, self._remove(moved, end), strict=True):
                fates[item.index] = None if fate is None else _twice(fate, self._service.place)
        return [fates[item.index] for item, _ in chunk]

    def _remove(self, chunk: Chunk, end: Deadline) -> Fates:
        deliveries = [item.delivery for item, _ in chunk]
        fates = self._service.delete(
            deliveries[0].place.url, [each.handle for each in deliveries], end
        )
        for delivery, fate in zip(deliveries, fates, strict=True):
            if fate is None or isinstance(fate, NotFound):
                delivery.over = True
        return fates

    def _extend(self, chunk: Chunk, extension_us: int, end: Deadline) -> Fates:
        extension, seconds = from_microseconds(extension_us), whole_seconds(extension_us)
        # Before SQS counts it, so that it does not end there first.
        lease = lease_of(extension)
        deliveries = [item.delivery for item, _ in chunk]
        fates = self._service.change_visibility(
            deliveries[0].place.url, [(each.handle, seconds) for each in deliveries], end
        )
        for delivery, fate in zip(deliveries, fates, strict=True):
            unknown = isinstance(fate, BackendError) and fate.outcome_unknown
            if fate is None or (
                unknown and lease.seconds_left() < delivery.deadline.seconds_left()
            ):
                delivery.deadline = lease
            elif isinstance(fate, NotFound):
                delivery.over = True
        return fates


def _chunks(items: Iterable[tuple[Item, Entry]]) -> Iterable[Chunk]:
    return chunked(
        items,
        MAX_ENTRIES,
        max_bytes=MAX_REQUEST_BYTES,
        size=lambda each: body_bytes(each[1]) if each[1] else 0,
    )


def _taken(place: str) -> BackendError:
    return BackendError(f"{place}: another call is settling the delivery, and did not end in time")


def _twice(cause: QueueError, place: str) -> BackendError:
    error = BackendError(
        f"{place}: the message was stored anew, but the old copy could not be removed: {cause} "
        "It may come twice; repeat the call to remove it",
        outcome_unknown=True,
    )
    error.__cause__ = cause.__cause__ or cause
    return error
