"""A harness over the SQLite driver, for what memory cannot break; faults come on top."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar

from sqlalchemy import Connection, create_engine

from hypercube_queue import CAPABILITIES, Guarantees, Queue, open_queue
from hypercube_queue_conformance import Harness, Unavailable
from hypercube_queue_sql import DEFAULT_TABLE, SQLQueue

_INSERT = (
    f"INSERT INTO {DEFAULT_TABLE} (queue_name, id, state, visible_at, attempt, job_name, "
    "namespace, extra, payload) VALUES (?, x'01', 0, 0, 0, x'ff', x'', x'', ?)"
)


class SQLiteHarness(Harness):
    """A file that every queue object opens by URL."""

    guarantees = Guarantees(durable=True, ordering="fifo", max_message_bytes=999_979_520)
    capabilities = frozenset(CAPABILITIES)
    #: Nothing is slow here but what is broken.
    patience = timedelta(seconds=3)
    borrow = Unavailable("what it would show, memory can break as well")

    queue_type: ClassVar[type[SQLQueue]] = SQLQueue

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self.file = self._folder / "queue.db"
        self.undo = ExitStack()
        self.undo.callback(shutil.rmtree, self._folder)
        self._engine = create_engine(self.url())
        self.undo.callback(self._engine.dispose)

    def close(self) -> None:
        self.undo.close()

    def url(self) -> str:
        return f"sqlite:///{self.file}"

    def open(self, **options: timedelta) -> Queue:
        seconds = "&".join(f"{name}={value.total_seconds()}" for name, value in options.items())
        return self._broken(f"{self.url()}?{seconds}")

    def opener(self) -> Callable[[], Queue]:
        return partial(open_queue, self.url())

    def restart(self) -> None:
        """Put a copy in the place of the file, as restoring a backup would."""
        copy = self._folder / "copy.db"
        with closing(sqlite3.connect(self.file)) as old, closing(sqlite3.connect(copy)) as new:
            old.backup(new)
        for suffix in ("-wal", "-shm"):
            self.file.with_name(self.file.name + suffix).unlink(missing_ok=True)
        copy.replace(self.file)

    def open_unreachable(self) -> Queue:
        """A database that another connection keeps to itself, against readers too."""
        file = self._folder / "locked.db"
        with open_queue(f"sqlite:///{file}") as queue:
            queue.pop("any", wait=timedelta(0))
        locker = sqlite3.connect(file, isolation_level=None)
        self.undo.callback(locker.close)
        locker.execute("PRAGMA locking_mode=EXCLUSIVE")
        locker.execute("BEGIN IMMEDIATE")
        return self._broken(f"sqlite:///{file}?operation_timeout=1")

    def insert_unreadable(self, queue_name: str) -> bytes:
        """A job name that is not UTF-8."""
        SQLQueue(self._engine).create_tables()
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(_INSERT, (queue_name.encode(), b"payload"))
        return b"payload"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection

    def _broken(self, url: str) -> Queue:
        queue = open_queue(url)
        queue.__class__ = self.queue_type
        return queue
