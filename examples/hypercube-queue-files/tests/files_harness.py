"""How the conformance suite drives the driver."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from hypercube_queue import (
    Guarantees,
    Queue,
    Redriver,
    StatsProvider,
    VisibilityExtender,
    open_queue,
)
from hypercube_queue_conformance import Harness, Unavailable
from hypercube_queue_files import FilesQueue
from hypercube_queue_files._entry import Entry, key_of, now
from hypercube_queue_files._folder import Folder


class FilesHarness(Harness):
    """A directory of its own for each test."""

    guarantees = Guarantees(
        durable=True,
        queue_name_pattern=r"[a-z0-9][a-z0-9_-]{0,99}",
        max_message_bytes=64 * 1024 * 1024,
    )
    capabilities = frozenset({VisibilityExtender, Redriver, StatsProvider})
    backlog = 2_000  # each of them is written through to the disk

    restart = Unavailable("files have no server that could be restarted")
    borrow = Unavailable("there is no client between the queue and its files")
    open_silenceable = Unavailable("files are not at the other end of a connection")

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="queue-"))

    def open(self, **options: timedelta) -> Queue:
        return FilesQueue(self._root, **options)

    def close(self) -> None:
        shutil.rmtree(self._root)

    def url(self) -> str:
        return f"files://{self._root}"

    def opener(self) -> Callable[[], Queue]:
        return partial(open_queue, self.url())

    def open_unreachable(self) -> Queue:
        return FilesQueue("/dev/null/queue")

    def open_misconfigured(self) -> Queue:
        return FilesQueue("/dev/null/queue")

    def insert_unreadable(self, queue_name: str) -> bytes:
        raw = b"what another program left here"
        folder = Folder(self._root / queue_name)
        with folder.locked(timedelta(seconds=5)):
            entry = Entry(now(), key_of("unreadable"), copy="foreign")
            place = folder.path / entry.folder
            place.mkdir(parents=True, exist_ok=True)
            (place / entry.name).touch()
            (folder.path / "bodies" / entry.key).write_bytes(raw)
        return raw
