"""SQLite as the conformance suite drives it, for the tests of the driver and those of the suite."""

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

from sqlalchemy import Connection, Engine, create_engine, text

from hypercube_queue import CAPABILITIES, Guarantees, Queue, open_queue
from hypercube_queue_conformance import Borrowed, Harness, Unavailable
from hypercube_queue_sql import DEFAULT_TABLE, SQLQueue

#: A thousand million bytes is what a row of SQLite holds; names and a failure record fit beside.
MAX_MESSAGE_BYTES = 1_000_000_000 - 4 * 1024 - 16 * 1024
_COLUMNS = "queue_name, id, state, visible_at, attempt, job_name, namespace, extra, payload"
#: A job name that is not UTF-8; it takes the name of the queue and the payload.
INSERT_UNREADABLE = (
    f"INSERT INTO {DEFAULT_TABLE} ({_COLUMNS}) "  # noqa: S608 - both are constants
    "VALUES (?, x'01', 0, 0, 0, x'ff', x'', x'', ?)"
)


class SQLiteHarness(Harness):
    """A file that every queue object opens by URL."""

    guarantees = Guarantees(durable=True, ordering="fifo", max_message_bytes=MAX_MESSAGE_BYTES)
    capabilities = frozenset(CAPABILITIES)
    synchronous: ClassVar[str] = "FULL"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self.file = self._folder / "queue.db"
        self.undo = ExitStack()
        self.undo.callback(shutil.rmtree, self._folder)
        self._engine = create_engine(f"sqlite:///{self.file}")
        self.undo.callback(self._engine.dispose)

    def close(self) -> None:
        self.undo.close()

    def url(self) -> str:
        return f"sqlite:///{self.file}?synchronous={self.synchronous}"

    def open(self, **options: timedelta) -> Queue:
        seconds = "".join(f"&{name}={value.total_seconds()}" for name, value in options.items())
        return self.opened(self.url() + seconds)

    def opener(self) -> Callable[[], Queue]:
        return partial(open_queue, self.url())

    def borrow(self) -> Borrowed:
        return Borrowed(SQLQueue(self._engine, create_tables=True), partial(_answers, self._engine))

    def restart(self) -> None:
        """Put a copy in the place of the file, as restoring a backup would."""
        copy = self._folder / "copy.db"
        with closing(sqlite3.connect(self.file)) as old, closing(sqlite3.connect(copy)) as new:
            old.backup(new)
        for suffix in ("-wal", "-shm"):
            self.file.with_name(self.file.name + suffix).unlink(missing_ok=True)
        copy.replace(self.file)

    open_silenceable = Unavailable("a file is not at the other end of a connection")

    def open_unreachable(self) -> Queue:
        """A database that another connection keeps to itself, against readers too."""
        file = self._folder / "locked.db"
        with open_queue(f"sqlite:///{file}") as queue:
            queue.pop("any", wait=timedelta(0))
        locker = sqlite3.connect(file, isolation_level=None)
        self.undo.callback(locker.close)
        locker.execute("PRAGMA locking_mode=EXCLUSIVE")
        locker.execute("BEGIN IMMEDIATE")
        return self.opened(f"sqlite:///{file}?operation_timeout=1")

    def open_misconfigured(self) -> Queue:
        """A file in a folder that does not exist."""
        return self.opened(f"sqlite:///{self._folder}/missing/jobs.db")

    def insert_unreadable(self, queue_name: str) -> bytes:
        """A job name that is not UTF-8."""
        SQLQueue(self._engine).create_tables()
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(INSERT_UNREADABLE, (queue_name.encode(), b"payload"))
        return b"payload"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def foreign_transaction(self) -> Iterator[Connection]:
        engine = create_engine(f"sqlite:///{self._folder / 'other.db'}")
        SQLQueue(engine).create_tables()
        with engine.begin() as connection:
            yield connection
        engine.dispose()

    def opened(self, url: str) -> Queue:
        return open_queue(url)


def _answers(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.scalar(text("SELECT 1")) == 1)
