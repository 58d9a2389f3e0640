"""The contract, kept by SQLite: durable to the last commit, durable but for that, in memory."""

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

from sqlalchemy import Connection, Engine, StaticPool, create_engine, text

from hypercube_queue import CAPABILITIES, Guarantees, Queue, open_queue
from hypercube_queue_conformance import Borrowed, Harness, QueueConformance, Unavailable
from hypercube_queue_sql import DEFAULT_TABLE, SQLQueue

#: A thousand million bytes is what a row of SQLite holds; names and a failure record fit beside.
_MAX_MESSAGE_BYTES = 1_000_000_000 - 4 * 1024 - 16 * 1024
_INSERT = (
    f"INSERT INTO {DEFAULT_TABLE} (queue_name, id, state, visible_at, attempt, job_name, "
    "namespace, extra, payload) VALUES (?, x'01', 0, 0, 0, x'ff', x'', x'', ?)"
)


class FileHarness(Harness):
    """A file that every queue object opens by URL."""

    guarantees = Guarantees(durable=True, ordering="fifo", max_message_bytes=_MAX_MESSAGE_BYTES)
    capabilities = frozenset(CAPABILITIES)
    synchronous: ClassVar[str] = "FULL"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self._file = self._folder / "queue.db"
        self._undo = ExitStack()
        self._undo.callback(shutil.rmtree, self._folder)
        self._engine = create_engine(f"sqlite:///{self._file}")
        self._undo.callback(self._engine.dispose)

    def close(self) -> None:
        self._undo.close()

    def url(self) -> str:
        return f"sqlite:///{self._file}?synchronous={self.synchronous}"

    def open(self, **options: timedelta) -> Queue:
        seconds = "".join(f"&{name}={value.total_seconds()}" for name, value in options.items())
        return open_queue(self.url() + seconds)

    def opener(self) -> Callable[[], Queue]:
        return partial(open_queue, self.url())

    def borrow(self) -> Borrowed:
        return Borrowed(SQLQueue(self._engine, create_tables=True), partial(_answers, self._engine))

    def restart(self) -> None:
        """Put a copy in the place of the file, as restoring a backup would."""
        copy = self._folder / "copy.db"
        with closing(sqlite3.connect(self._file)) as old, closing(sqlite3.connect(copy)) as new:
            old.backup(new)
        for suffix in ("-wal", "-shm"):
            self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)
        copy.replace(self._file)

    def open_unreachable(self) -> Queue:
        """A database that another connection keeps to itself, against readers too."""
        file = self._folder / "locked.db"
        with open_queue(f"sqlite:///{file}") as queue:
            queue.pop("any", wait=timedelta(0))
        locker = sqlite3.connect(file, isolation_level=None)
        self._undo.callback(locker.close)
        locker.execute("PRAGMA locking_mode=EXCLUSIVE")
        locker.execute("BEGIN IMMEDIATE")
        return open_queue(f"sqlite:///{file}?operation_timeout=1")

    def insert_unreadable(self, queue_name: str) -> bytes:
        """A job name that is not UTF-8."""
        SQLQueue(self._engine).create_tables()
        with closing(sqlite3.connect(self._file)) as connection, connection:
            connection.execute(_INSERT, (queue_name.encode(), b"payload"))
        return b"payload"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection


class FileNormalHarness(FileHarness):
    """The same without an fsync at each commit."""

    synchronous = "NORMAL"


class MemoryHarness(Harness):
    """An in-memory database belongs to one engine, so all queues share one of the caller's."""

    guarantees = Guarantees(
        durable=False,
        ordering="fifo",
        # While a transaction is open on the only connection, a pop cannot look.
        empty_is_certain=False,
        max_message_bytes=_MAX_MESSAGE_BYTES,
    )
    capabilities = frozenset(CAPABILITIES)
    restart = Unavailable("the end of an in-memory database is the end of its messages")
    opener = Unavailable("no other process can reach the memory of this one")
    url = Unavailable("each sqlite:// URL is a database of its own")
    borrow = Unavailable("in a forked child it is the memory that is missing, not the engine")
    open_unreachable = Unavailable("the memory of one's own process always answers")

    def __init__(self) -> None:
        self._engine = create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )

    def close(self) -> None:
        self._engine.dispose()

    def open(self, **options: timedelta) -> Queue:
        return SQLQueue(self._engine, create_tables=True, **options)

    def insert_unreadable(self, queue_name: str) -> bytes:
        SQLQueue(self._engine).create_tables()
        with self._engine.begin() as connection:
            connection.exec_driver_sql(_INSERT, (queue_name.encode(), b"payload"))
        return b"payload"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection


def _answers(engine: Engine) -> bool:
    with engine.connect() as connection:
        return connection.scalar(text("SELECT 1")) == 1


class TestSQLiteFile(QueueConformance):
    """A write-ahead log that is flushed with each commit."""

    harness = FileHarness


class TestSQLiteFileNormal(QueueConformance):
    """A write-ahead log that the system flushes when it likes."""

    harness = FileNormalHarness


class TestSQLiteInMemory(QueueConformance):
    """One connection that all threads share."""

    harness = MemoryHarness
