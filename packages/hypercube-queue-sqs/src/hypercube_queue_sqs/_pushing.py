"""Storing new messages."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from hypercube_queue import BackendError, MessageTooLarge, QueueError
from hypercube_queue.driver import (
    HEADROOM_BYTES,
    Deadline,
    PushBatch,
    PushItem,
    chunked,
    copy_error,
)
from hypercube_queue_sqs._clients import Clients
from hypercube_queue_sqs._directory import Directory
from hypercube_queue_sqs._ids import IDStore
from hypercube_queue_sqs._place import Place
from hypercube_queue_sqs._service import Service
from hypercube_queue_sqs._threads import Threads, outcomes
from hypercube_queue_sqs._wire import MAX_ENTRIES, MAX_REQUEST_BYTES, Entry, body_bytes, pushed

_log = logging.getLogger("hypercube_queue_sqs")

#: Seconds after which a pending id is asked for again, at first and at most.
_SOON, _LATER = 0.01, 0.2

#: Items that are to be sent, and as what.
Sending = list[tuple[PushItem, Entry]]
#: Items that failed; an id that is taken has no error of its own.
Failed = list[tuple[PushItem, QueueError | None]]


class Pushing:
    """Sends pushes in chunks, several at once."""

    def __init__(
        self,
        clients: Clients,
        service: Service,
        directory: Directory,
        threads: Threads,
        operation_timeout: timedelta,
    ) -> None:
        self._clients = clients
        self._service = service
        self._directory = directory
        self._threads = threads
        #: A holder that has not stored by then never will.
        self._pending_for = operation_timeout

    def push(self, batch: PushBatch, end: Deadline) -> None:
        """Store the items; what fails is noted in the batch."""
        by_queue: dict[str, list[PushItem]] = {}
        for item in batch.items:
            by_queue.setdefault(item.queue_name, []).append(item)
        chunks: list[Sending] = []
        tasks = []
        for queue_name, place in self._places(list(by_queue), end):
            items = by_queue[queue_name]
            if isinstance(place, QueueError):
                reason = place
                batch.fail_all(items, lambda reason=reason: copy_error(reason))  # type: ignore[misc]
                continue
            for chunk in self._chunks(batch, items, place):
                chunks.append(chunk)
                tasks.append(self._threads.run(partial(self._push, place, chunk, end)))
        ended = outcomes(tasks, end, self._service.place)
        for chunk, outcome in zip(chunks, ended, strict=True):
            if isinstance(outcome, QueueError):
                error = outcome
                batch.fail_all((item for item, _ in chunk), lambda error=error: copy_error(error))  # type: ignore[misc]
                continue
            for item, fate in outcome:
                if fate is None:
                    batch.fail_existing(item)
                else:
                    batch.fail(item, fate)
                    self._directory.forget(item.queue_name, fate)

    def _places(
        self, queue_names: Sequence[str], end: Deadline
    ) -> list[tuple[str, Place | QueueError]]:
        known = {name: self._directory.known(name) for name in queue_names}
        asked = [name for name, place in known.items() if place is None]
        tasks = [self._threads.run(partial(self._directory.work, name, end)) for name in asked]
        ended = outcomes(tasks, end, self._service.place)
        found = dict(zip(asked, ended, strict=True))
        return [(name, known[name] or found[name]) for name in queue_names]

    def _chunks(
        self, batch: PushBatch, items: Sequence[PushItem], place: Place
    ) -> Sequence[Sending]:
        sending: Sending = []
        # In Base64 it takes a third more.
        most = place.most_bytes - HEADROOM_BYTES * 4 // 3
        for item in items:
            entry = pushed(item)
            if body_bytes(entry) > most and place.most_bytes < MAX_REQUEST_BYTES:
                batch.fail(item, _too_large(entry, place))
            else:
                sending.append((item, entry))
        return list(
            chunked(
                sending,
                MAX_ENTRIES,
                max_bytes=MAX_REQUEST_BYTES,
                size=lambda each: body_bytes(each[1]),
            )
        )

    def _push(self, place: Place, chunk: Sending, end: Deadline) -> Failed:
        store = self._clients.get().ids
        if store is None:
            return self._send(place, chunk, end)
        failed: Failed = []
        holder = secrets.token_hex(16)
        pause = _SOON
        while chunk:
            ids = [item.id for item, _ in chunk]
            states = store.reserve(place.arn, ids, holder, self._pending_for)
            failed += [(item, None) for item, _ in chunk if states[item.id] == "stored"]
            reserved = [each for each in chunk if states[each[0].id] == "reserved"]
            if reserved:
                failed += self._send_reserved(store, holder, place, reserved, end)
            chunk = [each for each in chunk if states[each[0].id] == "pending"]
            if chunk and pause >= end.seconds_left():
                failed += [(item, _still_pending(self._service.place)) for item, _ in chunk]
                break
            if chunk:
                time.sleep(pause)
                pause = min(2 * pause, _LATER)
        return failed

    def _send_reserved(
        self, store: IDStore, holder: str, place: Place, chunk: Sending, end: Deadline
    ) -> Failed:
        failed: Failed = [(item, _unsent()) for item, _ in chunk]
        try:
            failed = self._send(place, chunk, end)
        finally:
            lost = {item.id for item, _ in failed}
            kept = [item.id for item, _ in chunk if item.id not in lost]
            try:
                if kept:
                    store.confirm(place.arn, kept, holder, timedelta(seconds=place.retention))
                if lost:
                    store.cancel(place.arn, sorted(lost), holder)
            except QueueError as error:
                # What was stored is stored; its id is free again too soon.
                _log.warning("the ids of a push could not be kept: %s", error)
        return failed

    def _send(self, place: Place, chunk: Sending, end: Deadline) -> Failed:
        fates = self._service.send(place.url, [entry for _, entry in chunk], end)
        return [
            (item, fate) for (item, _), fate in zip(chunk, fates, strict=True) if fate is not None
        ]


def _too_large(entry: Entry, place: Place) -> MessageTooLarge:
    return MessageTooLarge(
        f"the message takes {body_bytes(entry)} bytes as it is sent, and the queue's "
        f"MaximumMessageSize is {place.most_bytes}, of which {HEADROOM_BYTES * 4 // 3} are for "
        "failure records; raise it, or store the content elsewhere and push a reference to it"
    )


def _still_pending(place: str) -> BackendError:
    return BackendError(f"{place}: another push of this id is under way, and did not end in time")


def _unsent() -> BackendError:
    return BackendError("the message was not sent")
