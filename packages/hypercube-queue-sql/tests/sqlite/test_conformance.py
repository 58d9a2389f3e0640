"""The contract, kept by SQLite: durable to the last commit, durable but for that, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import Connection, StaticPool, create_engine
from tools.sqlite_harness import INSERT_UNREADABLE, MAX_MESSAGE_BYTES, SQLiteHarness

from hypercube_queue import CAPABILITIES, Guarantees, Queue
from hypercube_queue_conformance import Harness, QueueConformance, Unavailable
from hypercube_queue_sql import SQLQueue


class NormalHarness(SQLiteHarness):
    """The same without an fsync at each commit."""

    synchronous = "NORMAL"


class MemoryHarness(Harness):
    """An in-memory database belongs to one engine, so all queues share one of the caller's."""

    guarantees = Guarantees(
        durable=False,
        shared=False,
        ordering="fifo",
        # While a transaction is open on the only connection, a pop cannot look.
        empty_is_certain=False,
        max_message_bytes=MAX_MESSAGE_BYTES,
    )
    capabilities = frozenset(CAPABILITIES)
    restart = Unavailable("the end of an in-memory database is the end of its messages")
    opener = Unavailable("no other process can reach the memory of this one")
    url = Unavailable("each sqlite:// URL is a database of its own")
    borrow = Unavailable("in a forked child it is the memory that is missing, not the engine")
    open_silenceable = Unavailable("a file is not at the other end of a connection")
    open_unreachable = Unavailable("the memory of one's own process always answers")
    open_misconfigured = Unavailable("there is nothing to configure")

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
            connection.exec_driver_sql(INSERT_UNREADABLE, (queue_name.encode(), b"payload"))
        return b"payload"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def foreign_transaction(self) -> Iterator[Connection]:
        engine = create_engine("sqlite://", poolclass=StaticPool)
        SQLQueue(engine).create_tables()
        with engine.begin() as connection:
            yield connection
        engine.dispose()


class TestSQLiteFile(QueueConformance):
    """A write-ahead log that is flushed with each commit."""

    harness = SQLiteHarness


class TestSQLiteFileNormal(QueueConformance):
    """A write-ahead log that the system flushes when it likes."""

    harness = NormalHarness


class TestSQLiteInMemory(QueueConformance):
    """One connection that all threads share."""

    harness = MemoryHarness
