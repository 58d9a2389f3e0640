"""The driver object."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from hypercube_queue import BackendError, Guarantees, InvalidArgument, Message, QueueStats
from hypercube_queue.driver import (
    MAX_POP,
    Closing,
    Deadline,
    Delivery,
    Envelope,
    Failures,
    Gate,
    Indexed,
    PushBatch,
    PushItem,
    QueueURL,
    SettlementBatch,
    SettlementItem,
    checked_count,
    checked_poll_timeout,
    checked_queue_name,
    checked_visibility,
    checked_wait,
    copy_error,
    from_microseconds,
    to_microseconds,
)
from hypercube_queue_files._entry import Entry, now
from hypercube_queue_files._folder import Folder, names_in

GUARANTEES = Guarantees(
    durable=True,
    queue_name_pattern=r"[a-z0-9][a-z0-9_-]{0,99}",  # a folder on every file system
    max_message_bytes=64 * 1024 * 1024,  # a delivery is in memory as a whole
)

#: How soon a waiting pop sees what others did.
_LOOK_EVERY_SECONDS = 0.1


class FileDelivery(Delivery):
    """A delivery, and the entry that owns its message."""

    __slots__ = ("entry",)

    def __init__(self, owner: object, queue_name: str, id: str, entry: Entry) -> None:
        super().__init__(owner, queue_name, id)
        self.entry = entry


T = TypeVar("T", bound=Indexed)
_Settling = SettlementItem[FileDelivery]


class FilesQueue(Closing):
    """A queue in files below `root`, for all processes of one machine.

    A waiting pop looks ten times a second. A call ends within its wait plus
    `operation_timeout`, as long as the disk answers.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        poll_timeout: timedelta = timedelta(seconds=1),
        visibility_timeout: timedelta = timedelta(seconds=30),
        operation_timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        self._root = Path(root)
        self._poll_timeout = checked_poll_timeout(poll_timeout)
        self._visibility_us = to_microseconds(checked_visibility(visibility_timeout))
        self._limit = checked_visibility(operation_timeout, field="operation_timeout")
        self._folders: dict[str, Folder] = {}
        # A forked child needs nothing of its own: each call opens its lock anew.
        self._gate = Gate("files queue", in_child=lambda: None)

    @property
    def guarantees(self) -> Guarantees:
        return GUARANTEES

    # Push

    def push(self, *messages: Message) -> None:
        with self._gate:
            batch = PushBatch(messages, GUARANTEES)
            queues: dict[str, list[PushItem]] = {}
            for item in batch.items:
                queues.setdefault(item.queue_name, []).append(item)

            def store(folder: Folder, items: list[PushItem]) -> None:
                free = []
                for item in items:
                    if folder.has(item.id):
                        batch.fail_existing(item)
                    else:
                        free.append(item)
                folder.add(free)

            self._change(batch, queues, store)
            batch.raise_failures()

    # Pop

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, GUARANTEES)
            checked_count("max_messages", max_messages, at_most=MAX_POP)
            deadline = Deadline(checked_wait(wait, self._poll_timeout))
            while True:
                self._gate.check()
                with self._looking(queue_name) as folder:
                    if folder and (taken := self._take(folder, queue_name, max_messages)):
                        return taken
                if deadline.passed:
                    return []
                time.sleep(min(deadline.seconds_left(), _LOOK_EVERY_SECONDS))

    def _take(self, folder: Folder, queue_name: str, max_messages: int) -> list[Message]:
        taken = []
        for entry, envelope in folder.take(max_messages, self._visibility_us):
            message = _message(envelope, entry.attempt)
            message.driver_data = FileDelivery(self, queue_name, envelope.id, entry)
            taken.append(message)
        return taken

    # Settlement

    def ack(self, *messages: Message) -> None:
        def remove(folder: Folder, items: list[_Settling]) -> None:
            folder.remove([item.delivery.entry for item in items])

        self._settle("ack", messages, remove)

    def retry(self, *messages: Message) -> None:
        def put_back(folder: Folder, items: list[_Settling]) -> None:
            for item in items:
                entry = item.delivery.entry
                folder.rewrite(entry, item.payload, item.extra)
                folder.move(entry, replace(entry, due=now() + item.delay_us, owner=""))

        self._settle("retry", messages, put_back, contents=True, delay=True)

    def dead_letter(self, *messages: Message) -> None:
        def bury(folder: Folder, items: list[_Settling]) -> None:
            for item in items:
                entry = item.delivery.entry
                folder.rewrite(entry, item.payload, item.extra)
                folder.move(entry, replace(entry, due=now(), owner="", dead=True))

        self._settle("dead_letter", messages, bury, contents=True)

    def _settle(
        self,
        operation: str,
        messages: tuple[Message, ...],
        change: Callable[[Folder, list[_Settling]], None],
        *,
        contents: bool = False,
        delay: bool = False,
        **extension: object,
    ) -> None:
        with self._gate:
            batch = SettlementBatch(
                operation,
                messages,
                FileDelivery,
                self,
                GUARANTEES,
                contents=contents,
                delay=delay,
                **extension,
            )
            queues: dict[str, list[_Settling]] = {}
            for item in batch.items:
                queues.setdefault(item.delivery.queue_name, []).append(item)

            def settle(folder: Folder, items: list[_Settling]) -> None:
                owned = []
                for item in items:
                    if folder.owns(item.delivery.entry):
                        owned.append(item)
                    else:
                        batch.fail_stale(item)
                change(folder, owned)

            self._change(batch, queues, settle)
            batch.raise_failures()

    # Capabilities

    @property
    def visibility_timeout(self) -> timedelta:
        return from_microseconds(self._visibility_us)

    def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        def extend(folder: Folder, items: list[_Settling]) -> None:
            for item in items:
                extended = replace(item.delivery.entry, due=now() + to_microseconds(extension))
                folder.move(item.delivery.entry, extended)
                item.delivery.entry = extended

        self._settle("extend_visibility", messages, extend, extension=extension)

    def redrive(self, queue_name: str, count: int) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, GUARANTEES)
            checked_count("count", count)
            with self._looking(queue_name) as folder:
                return folder.revive(count) if folder else 0

    def queues(self) -> list[str]:
        with self._gate, _translated():
            names = names_in(self._root) if self._root.exists() else []
            return sorted(name for name in names if self._folder(name).retains())

    def stats(self, queue_name: str) -> QueueStats:
        with self._gate:
            queue_name = checked_queue_name(queue_name, GUARANTEES)
            with self._looking(queue_name) as folder:
                if not folder:
                    return QueueStats(queue_name, 0, 0, 0, 0)
                present = now()
                live = list(folder.live())
                ready = sum(entry.due <= present for entry in live)
                in_flight = sum(entry.due > present and entry.owner != "" for entry in live)
                return QueueStats(
                    queue_name,
                    ready,
                    len(live) - ready - in_flight,
                    in_flight,
                    len(folder.dead()),
                )

    # Lifecycle

    def close(self) -> None:
        self._gate.close()  # a waiting pop notices when it looks again

    # Within

    def _folder(self, queue_name: str) -> Folder:
        return self._folders.setdefault(queue_name, Folder(self._root / queue_name))

    @contextmanager
    def _looking(self, queue_name: str) -> Iterator[Folder | None]:
        """The folder, locked, or None if nothing was ever pushed to the queue."""
        folder = self._folder(queue_name)
        with _translated():
            if not folder.exists():
                yield None
                return
            with folder.locked(self._limit):
                yield folder

    def _change(
        self,
        batch: Failures,
        queues: Mapping[str, list[T]],
        change: Callable[[Folder, list[T]], None],
    ) -> None:
        """Change one queue after the other; what the disk refuses is noted for each item."""
        for queue_name, items in queues.items():
            folder = self._folder(queue_name)
            try:
                with _translated(), folder.locked(self._limit):
                    change(folder, items)
                    folder.sync()
            except BackendError as error:
                batch.fail_all(items, partial(copy_error, error))


@contextmanager
def _translated() -> Iterator[None]:
    """An error of the operating system as one of the contract."""
    try:
        yield
    except OSError as error:
        raise BackendError(f"the disk refused: {error}", outcome_unknown=True) from error


def _message(envelope: Envelope, attempt: int) -> Message:
    visibility_us = envelope.visibility_us
    return Message(
        envelope.queue_name,
        envelope.payload,
        envelope.job_name,
        envelope.namespace,
        envelope.id,
        envelope.extra,
        visibility_timeout=None if visibility_us is None else from_microseconds(visibility_us),
        attempt=attempt,
    )


def from_url(url: str) -> FilesQueue:
    """`files:///folder`: its queues are folders below it.

    Options, in seconds: `poll_timeout`, `visibility_timeout` and `operation_timeout`.
    """
    parts = QueueURL(url)
    if parts.hostname or parts.username is not None or not parts.path.strip("/"):
        raise InvalidArgument("a files URL is files:///folder, with three slashes")
    seconds = {
        name: parts.options.duration(name, timedelta(seconds=default))
        for name, default in (
            ("poll_timeout", 1),
            ("visibility_timeout", 30),
            ("operation_timeout", 30),
        )
    }
    parts.options.refuse_unknown()
    return FilesQueue(parts.path, **seconds)
