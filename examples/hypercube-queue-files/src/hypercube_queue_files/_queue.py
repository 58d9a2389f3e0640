"""The driver object."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from hypercube_queue import BackendError, Guarantees, InvalidArgument, Message, QueueStats
from hypercube_queue.driver import (
    BaseRedriver,
    BaseStatsProvider,
    BaseVisibilityExtender,
    Deadline,
    Delivery,
    Envelope,
    ItemErrors,
    PushItem,
    QueueURL,
    SettlementItem,
    checked_visibility,
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


_Item = TypeVar("_Item", PushItem, SettlementItem[FileDelivery])
_Owned = SettlementItem[FileDelivery]


class FilesQueue(
    BaseVisibilityExtender[FileDelivery],
    BaseRedriver[FileDelivery],
    BaseStatsProvider[FileDelivery],
):
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
        super().__init__(
            "files queue",
            FileDelivery,
            poll_timeout=poll_timeout,
            visibility_timeout=visibility_timeout,
            # A forked child needs nothing of its own: each call opens its lock anew.
            in_child=lambda: None,
        )
        self._root = Path(root)
        self._operation_timeout = checked_visibility(operation_timeout, field="operation_timeout")
        self._folders: dict[str, Folder] = {}

    @property
    def guarantees(self) -> Guarantees:
        return GUARANTEES

    # Push

    def _push(self, items: Sequence[PushItem]) -> ItemErrors:
        def store(folder: Folder, some: Sequence[PushItem]) -> ItemErrors:
            errors: ItemErrors = {item.index: item.exists() for item in some if folder.has(item.id)}
            folder.add([item for item in some if item.index not in errors])
            return errors

        return self._change_each(items, lambda item: item.queue_name, store)

    # Pop

    def _pop(self, queue_name: str, max_messages: int, wait: timedelta) -> list[Message]:
        deadline = Deadline(wait)
        while True:
            self._gate.check()
            with self._existing(queue_name) as folder:
                if folder and (taken := self._take(folder, queue_name, max_messages)):
                    return taken
            if deadline.passed:
                return []
            time.sleep(min(deadline.seconds_left(), _LOOK_EVERY_SECONDS))

    def _take(self, folder: Folder, queue_name: str, max_messages: int) -> list[Message]:
        taken = []
        visibility_us = to_microseconds(self._visibility_timeout)
        for entry, envelope in folder.take(max_messages, visibility_us):
            message = _message(envelope, entry.attempt)
            message.driver_data = FileDelivery(self, queue_name, envelope.id, entry)
            taken.append(message)
        return taken

    # Settlement

    def _ack(self, items: Sequence[_Owned]) -> ItemErrors:
        def remove(folder: Folder, owned: Sequence[_Owned]) -> None:
            folder.remove([item.delivery.entry for item in owned])

        return self._settle_owned(items, remove)

    def _retry(self, items: Sequence[_Owned]) -> ItemErrors:
        def put_back(folder: Folder, owned: Sequence[_Owned]) -> None:
            for item in owned:
                entry = item.delivery.entry
                folder.rewrite(entry, item.payload, item.extra)
                folder.move(entry, replace(entry, due=now() + item.delay_us, owner=""))

        return self._settle_owned(items, put_back)

    def _dead_letter(self, items: Sequence[_Owned]) -> ItemErrors:
        def dead_letter(folder: Folder, owned: Sequence[_Owned]) -> None:
            for item in owned:
                entry = item.delivery.entry
                folder.rewrite(entry, item.payload, item.extra)
                folder.move(entry, replace(entry, due=now(), owner="", dead=True))

        return self._settle_owned(items, dead_letter)

    # Capabilities

    def _extend_visibility(self, items: Sequence[_Owned], extension: timedelta) -> ItemErrors:
        def extend(folder: Folder, owned: Sequence[_Owned]) -> None:
            for item in owned:
                extended = replace(item.delivery.entry, due=now() + to_microseconds(extension))
                folder.move(item.delivery.entry, extended)
                item.delivery.entry = extended

        return self._settle_owned(items, extend)

    def _redrive(self, queue_name: str, count: int) -> int:
        with self._existing(queue_name) as folder:
            return folder.redrive(count) if folder else 0

    def _queues(self) -> list[str]:
        with _translated():
            names = names_in(self._root) if self._root.exists() else []
            return [name for name in names if self._folder(name).retains()]

    def _stats(self, queue_name: str) -> QueueStats:
        with self._existing(queue_name) as folder:
            if not folder:
                return QueueStats(queue_name, 0, 0, 0, 0)
            present = now()
            live = list(folder.live())
            ready = sum(entry.due <= present for entry in live)
            in_flight = sum(entry.due > present and entry.owner != "" for entry in live)
            delayed = len(live) - ready - in_flight
            return QueueStats(queue_name, ready, delayed, in_flight, len(folder.dead()))

    # Lifecycle

    def _close(self) -> None:
        """Nothing is open between calls, and a waiting pop notices when it looks again."""

    # Internal

    def _folder(self, queue_name: str) -> Folder:
        return self._folders.setdefault(queue_name, Folder(self._root / queue_name))

    @contextmanager
    def _existing(self, queue_name: str) -> Iterator[Folder | None]:
        """The folder, locked, or None if nothing was ever pushed to the queue."""
        folder = self._folder(queue_name)
        with _translated():
            if not folder.exists():
                yield None
                return
            with folder.locked(self._operation_timeout):
                yield folder

    def _settle_owned(
        self,
        items: Sequence[_Owned],
        settle: Callable[[Folder, Sequence[_Owned]], None],
    ) -> ItemErrors:
        def settle_some(folder: Folder, some: Sequence[_Owned]) -> ItemErrors:
            errors: ItemErrors = {
                item.index: item.stale() for item in some if not folder.owns(item.delivery.entry)
            }
            settle(folder, [item for item in some if item.index not in errors])
            return errors

        return self._change_each(items, lambda item: item.delivery.queue_name, settle_some)

    def _change_each(
        self,
        items: Sequence[_Item],
        queue_of: Callable[[_Item], str],
        change: Callable[[Folder, Sequence[_Item]], ItemErrors],
    ) -> ItemErrors:
        """Change one queue after the other."""
        errors: ItemErrors = {}
        queues: dict[str, list[_Item]] = {}
        for item in items:
            queues.setdefault(queue_of(item), []).append(item)
        for queue_name, some in queues.items():
            folder = self._folder(queue_name)
            try:
                with _translated(), folder.locked(self._operation_timeout):
                    errors |= change(folder, some)
                    folder.sync()
            except BackendError as error:
                errors |= {item.index: copy_error(error) for item in some}
        return errors


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
