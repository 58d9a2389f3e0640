"""Opening a queue by URL."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from datetime import timedelta
from functools import partial

from sqlalchemy import URL, Engine, StaticPool, create_engine, event

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import Deadline, QueueURL, checked_visibility, safe_repr
from hypercube_queue_sql._queue import SQLQueue
from hypercube_queue_sql._sqlite_connections import patiently
from hypercube_queue_sql._tables import DEFAULT_TABLE

#: How long SQLite itself waits for a lock before it asks again from the start, in seconds. It
#: asks ever more seldom, and lets no signal through meanwhile.
_BUSY_SECONDS = 0.05


def from_url(url: str) -> SQLQueue:
    """The queue that a `sqlite:` URL names; its file is made at the first call but a look.

    `sqlite:///jobs.db` is a file in the present working directory, `sqlite:////var/jobs.db` one
    by its full path, and `sqlite://` a database in memory that is gone with the queue object.

    Options: `table`, `create_tables` (true), `synchronous` (FULL, or NORMAL), `file_mode` (0600,
    0640 or 0660), and in seconds `poll_timeout`, `visibility_timeout` and `operation_timeout`.
    """
    parts = QueueURL(url)
    path = _path(parts)
    options = parts.options
    table = options.text("table", DEFAULT_TABLE)
    create_tables = options.flag("create_tables", True)
    synchronous = options.choice("synchronous", "FULL", ("FULL", "NORMAL"))
    poll_timeout = options.duration("poll_timeout", timedelta(seconds=1))
    visibility_timeout = options.duration("visibility_timeout", timedelta(seconds=30))
    operation_timeout = options.duration("operation_timeout", timedelta(seconds=30))
    file_mode = options.choice("file_mode", None, ("0600", "0640", "0660"))
    options.refuse_unknown()
    checked_visibility(operation_timeout, field="operation_timeout")
    engine = _memory_engine()
    if path:
        engine = _file_engine(path, synchronous, operation_timeout)
        if file_mode is not None:
            event.listen(engine, "do_connect", partial(_make_file, path, int(file_mode, 8)))
    return SQLQueue(
        engine,
        table=table,
        create_tables=create_tables,
        poll_timeout=poll_timeout,
        visibility_timeout=visibility_timeout,
        operation_timeout=operation_timeout,
        _owned=True,
    )


def _path(parts: QueueURL) -> str | None:
    """The file that a URL names, None for a database in memory."""
    if parts.scheme not in ("sqlite", "sqlite+pysqlite"):
        raise InvalidArgument(
            f"the scheme is {safe_repr(parts.scheme)}; it takes sqlite, and AsyncQueue makes the "
            "queue asynchronous"
        )
    if parts.hostname is not None or parts.username is not None or parts.port is not None:
        raise InvalidArgument(
            "a sqlite URL has three slashes before a relative path and four before a full one: "
            "sqlite:///jobs.db, sqlite:////var/jobs.db"
        )
    path = parts.path.removeprefix("/")
    if path == ":memory:" or not parts.path:
        return None
    if not path or "\0" in path:
        raise InvalidArgument(
            f"the sqlite URL names the file {safe_repr(path)}; write sqlite:///jobs.db, or "
            "sqlite:// "
            "for a database in memory"
        )
    return path


def _memory_engine() -> Engine:
    return create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )


def _file_engine(path: str, synchronous: str, operation_timeout: timedelta) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=path),
        # A writer needs one and readers are quick; what comes beyond is closed after use.
        pool_size=5,
        max_overflow=-1,
        connect_args={"timeout": _BUSY_SECONDS, "isolation_level": None},
    )

    def set_up(connection: sqlite3.Connection, _record: object) -> None:
        deadline = Deadline(operation_timeout)
        try:
            # Kept in the file. Where a write-ahead log is impossible, the old journal stays.
            patiently(deadline, lambda: connection.execute("PRAGMA journal_mode=WAL").fetchall())
            connection.execute(f"PRAGMA synchronous={synchronous}")
            if synchronous == "FULL":
                # On macOS an ordinary fsync leaves the data in the drive's cache.
                connection.execute("PRAGMA fullfsync=ON")
        except BaseException:
            connection.close()
            raise

    event.listen(engine, "connect", set_up)
    return engine


def _make_file(path: str, mode: int, *_: object) -> None:
    """Make the file with these permissions; one that is there keeps its own.

    SQLite gives the files beside it the same.
    """
    # Where it cannot be made, SQLite says why.
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        try:
            # Whatever is masked for the process.
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
