"""The SQLite dialect."""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine, MetaData
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.pool import SingletonThreadPool, StaticPool

from hypercube_queue import BackendError, Guarantees, InvalidArgument
from hypercube_queue.driver import HEADROOM_BYTES, Deadline, PushItem, chunked
from hypercube_queue_sql._database import wrong_database
from hypercube_queue_sql._delivery import Settled
from hypercube_queue_sql._dialect import Claim
from hypercube_queue_sql._fork import ForkGuard
from hypercube_queue_sql._rows import Row, place_in_order
from hypercube_queue_sql._shared import Shared, shared_by
from hypercube_queue_sql._sqlite_connections import SQLiteConnections, Taken
from hypercube_queue_sql._sqlite_file import (
    database_file,
    file_of,
    is_in_memory,
    is_memory_of,
    is_same_file,
)
from hypercube_queue_sql._sqlite_tables import SQLiteTables
from hypercube_queue_sql._sqlite_within import Joined, check_connection, joined, looked_at
from hypercube_queue_sql._statements import load_statements
from hypercube_queue_sql._tables import Tables, TablesMissing
from hypercube_queue_sql._wakeups import Wakeups

R = TypeVar("R")

#: What a row holds beside payload and extra: four names, the numbers, the record's header.
_ROW_OVERHEAD_BYTES = 4 * 1024
#: Rows of one INSERT: more bring nothing, and some builds take 999 values at most.
_ROWS = 50
_NEW_ROW = "(?, 0, ?, ?, 0, ?, ?, ?, ?, ?, ?)"
#: Later than any moment: what stands before no death.
_NEVER = ((1 << 63) - 1, (1 << 63) - 1)


class SQLiteDialect:
    """Keeps the promises of `Dialect` on one database file, or in memory.

    Settlements of a batch run one by one on a prepared statement: there is no round trip to
    save, and each row count says what became of its item.
    """

    poll_seconds = 0.5
    #: Nobody tells what other processes store.
    hears = False

    def __init__(
        self,
        engine: Engine,
        *,
        table: str,
        schema: str | None,
        create_tables: bool,
        operation_timeout: timedelta,
        owned: bool,
    ) -> None:
        if engine.dialect.driver != "pysqlite":
            raise InvalidArgument(
                f"the engine speaks to SQLite through {engine.dialect.driver}; it takes an "
                "engine made from a sqlite:// URL, which uses Python's own sqlite3"
            )
        if isinstance(engine.pool, SingletonThreadPool):
            raise InvalidArgument(
                "the engine gives each thread an in-memory database of its own; make it with "
                "poolclass=StaticPool and connect_args={'check_same_thread': False}"
            )
        self._engine = engine
        self._owned = owned
        self._limit = operation_timeout
        tables = Tables(MetaData(), table, schema)
        names = tables.quoted(engine.dialect)
        self._sql = load_statements("sqlite.sql", rows="{rows}", **names)
        self._inserts = [
            self._sql["insert"].replace("{rows}", ", ".join([_NEW_ROW] * count))
            for count in range(_ROWS + 1)
        ]
        database = engine.url.database
        self._in_memory = is_in_memory(engine)
        self._schema = schema or "main"
        #: The file of a schema that is attached, once it was asked for.
        self._attached: str | None = None
        self._place = "the in-memory database" if self._in_memory else f"database {database}"
        self._key: Hashable = id(engine) if self._in_memory else os.path.realpath(database or "")
        self._tables = SQLiteTables(
            tables, engine.dialect, self._sql, create=create_tables, place=self._place
        )
        self._guard = ForkGuard(engine.dispose) if owned and not self._in_memory else None
        self._connect()
        self.guarantees = Guarantees(
            durable=not self._in_memory,
            shared=not self._in_memory,
            ordering="fifo",
            # While the caller has a transaction open on the only connection, a pop cannot look.
            empty_is_certain=owned or not isinstance(engine.pool, StaticPool),
            max_message_bytes=_longest_row() - _ROW_OVERHEAD_BYTES - HEADROOM_BYTES,
        )

    def _connect(self) -> None:
        """Take what this process shares; nothing is opened yet."""
        self._shared: Shared = shared_by(self._key)
        self._connections = SQLiteConnections(
            self._engine,
            self._shared,
            place=self._place,
            in_memory=self._in_memory,
            limit=self._limit,
            guard=self._guard or nullcontext(),
            prepare=self._tables.prepare,
            before_opening=self._check_file,
        )

    @property
    def wakeups(self) -> Wakeups:
        return self._shared.wakeups

    def listen(self) -> None:
        """There is nobody to listen to: waiting pops look again and again."""

    def stored(self, queue_name: str, count: int) -> None:
        self.wakeups.stored(queue_name, count)

    def stored_within(self, cursor: DBAPICursor, queue_name: str, count: int) -> None:
        """Nobody is told: the caller's transaction may yet be rolled back."""

    # Transactions

    def creation_statements(self) -> list[str]:
        return list(self._tables.creation)

    def create_tables(self) -> None:
        self._connections.visit(self._tables.create_missing)

    def create_nothing(self) -> None:
        self._tables.create = False

    def read(self, work: Callable[[DBAPICursor], R]) -> R:
        # Who only looks makes no database, least of all one of a mistyped name.
        if self._tables.create:
            if self._is_absent():
                return self._tables.of_none(work)
            with suppress(TablesMissing):
                return self._connections.read(work, prepare=self._tables.look)
            return self._tables.of_none(work)
        return self._connections.read(work)

    def _check_file(self) -> None:
        """Refuse to make a file where no tables would be made in it."""
        if not self._tables.create and self._is_absent():
            path = Path(self._engine.url.database or "").absolute()
            raise BackendError(
                f"there is no file {path}; is its name right, and the folder? A queue that is "
                "opened with create_tables=true makes it at its first push",
                permanent=True,
            ) from FileNotFoundError(errno.ENOENT, "no such file", str(path))

    def _is_absent(self) -> bool:
        path = self._engine.url.database or ""
        return not self._in_memory and not path.startswith("file:") and not Path(path).exists()

    def write(
        self,
        work: Callable[[DBAPICursor], R],
        *,
        items: Sequence[PushItem] | Sequence[Settled] = (),  # noqa: ARG002 - one transaction anyway
        end: Deadline | None = None,
    ) -> R:
        return self._connections.write(work, end=end)

    def check_connection(self, connection: object) -> None:
        check_connection(connection)

    def within(self, connection: object, work: Callable[[DBAPICursor], R]) -> R:
        def prepared() -> R:
            beneath = joined(connection)
            if difference := self._difference(beneath):
                raise wrong_database(*difference)
            cursor = beneath.cursor()
            self._tables.prepare_within(cursor)
            return work(cursor)

        return self._connections.within(prepared)

    def shares_database(self, connection: object) -> bool:
        def is_shared() -> bool:
            with looked_at(connection) as beneath:
                return beneath is not None and self._difference(beneath) is None

        return self._connections.within(is_shared)

    def _difference(self, beneath: Joined) -> tuple[str, str] | None:
        """The connection's database and the queue's, for people; None if they are the same."""
        if beneath.engine is not None and beneath.engine.pool is self._engine.pool:
            return None
        if self._in_memory and is_memory_of(self._engine, beneath.connection, beneath.engine):
            return None
        found = database_file(beneath.cursor(), self._schema)
        own = self._file()
        if found and own and is_same_file(found, own):
            return None
        return found or "in memory", own or "memory"

    def _file(self) -> str:
        """The file that the tables are in; empty in memory."""
        if self._schema == "main":
            return "" if self._in_memory else file_of(self._engine)
        if self._attached is None:
            self._attached = self._connections.read(
                lambda cursor: database_file(cursor, self._schema), prepare=lambda *_: None
            )
        return self._attached

    # Lifecycle

    def close(self) -> None:
        if self._owned:
            self._connections.closed = True
            # In a torn child the connections are the parent's.
            self._engine.dispose(close=not (self._guard and self._guard.torn))

    @property
    def in_child(self) -> Callable[[], None] | None:
        return None if self._in_memory else self._enter_child

    def _enter_child(self) -> None:
        if self._guard is None:
            raise BackendError(
                f"{self._place}: this process was forked, and the queue's engine belongs to its "
                "parent; make an engine and a queue after the fork"
            )
        if self._guard.torn:
            raise BackendError(
                f"{self._place}: this process was forked while another thread used the database, "
                "and SQLite cannot tell the two apart: fork when it is idle, or start a new "
                "interpreter instead"
            )
        self._engine.dispose(close=False)
        self._connect()

    # Pop

    def take(self, claim: Claim, end: Deadline) -> tuple[list[Row], float | None]:
        # A look first: a claim takes the write lock, whether it finds anything or not.
        seconds = self._next_visible(claim.queue_name, end)
        if seconds is None or seconds > 0:
            return [], seconds
        rows = self._connections.write(lambda cursor: self._claim(cursor, claim), end=end)
        return rows, seconds

    def _next_visible(self, queue_name: str, end: Deadline) -> float | None:
        """In how many seconds something becomes visible, None if nothing will by itself."""

        def look(cursor: DBAPICursor) -> float | None:
            found = cursor.execute(self._sql["next_visible"], (queue_name.encode(),)).fetchone()
            if found is None:
                return None
            # What is no number is claimed at once, to be set aside.
            return (found[0] - _now()) / 1_000_000 if isinstance(found[0], int | float) else 0.0

        try:
            return self._connections.read(look, end=end, wait=False)
        except Taken:
            return None

    def _claim(self, cursor: DBAPICursor, claim: Claim) -> list[Row]:
        name = claim.queue_name.encode()
        values = (_now(), claim.visibility_us, claim.token, name, claim.limit)
        found = cursor.execute(self._sql["claim"], (*values, claim.max_bytes)).fetchall()
        if found:
            rows = list(map(Row._make, found))
            rows.sort(key=place_in_order)
            return rows
        return list(map(Row._make, cursor.execute(self._sql["claim_undated"], values).fetchall()))

    # Statements

    def max_message_bytes(self, end: Deadline) -> int | None:  # noqa: ARG002 - the guarantees say it
        return None

    def insert(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        now = _now()
        push = secrets.randbits(63)
        retained: list[PushItem] = []
        for chunk in chunked(items, _ROWS):
            values: list[object] = []
            for item in chunk:
                values += (
                    item.queue_name.encode(),
                    now + item.delay_us,
                    push,
                    item.visibility_us,
                    item.id.encode(),
                    item.job_name.encode(),
                    item.namespace.encode(),
                    item.extra,
                    item.payload,
                )
            cursor.execute(self._inserts[len(chunk)], values)
            if cursor.rowcount < len(chunk):
                retained += self._retained(cursor, chunk, push)
        return retained

    def insert_within(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        return self.insert(cursor, items)

    def _retained(
        self, cursor: DBAPICursor, chunk: list[PushItem], push: int
    ) -> Iterator[PushItem]:
        """The items of the chunk whose rows are not of this push."""
        for item in chunk:
            values = (item.queue_name.encode(), item.id.encode(), push)
            if not cursor.execute(self._sql["inserted"], values).fetchone():
                yield item

    def set_aside(self, cursor: DBAPICursor, faults: Sequence[tuple[int, str]], token: int) -> None:
        now = _now()
        rows = [(now, reason.encode(), seq, token) for seq, reason in faults]
        cursor.executemany(self._sql["set_aside"], rows)

    def ack(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return _settle(cursor, self._sql["ack"], items, lambda _item, _now: ())

    def retry(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return _settle(
            cursor,
            self._sql["retry"],
            items,
            lambda item, now: (now + item.delay_us, item.extra, item.payload),
        )

    def dead_letter(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return _settle(
            cursor,
            self._sql["dead_letter"],
            items,
            lambda item, now: (now, item.extra, item.payload),
        )

    def extend_visibility(
        self, cursor: DBAPICursor, items: Sequence[Settled], extension_us: int
    ) -> list[Settled]:
        return _settle(
            cursor,
            self._sql["extend_visibility"],
            items,
            lambda _item, now: (now + extension_us,),
        )

    def release(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
        return _settle(cursor, self._sql["release"], items, lambda _item, now: (now,))

    def redrive(self, cursor: DBAPICursor, queue_name: str, count: int) -> int:
        values = (_now(), queue_name.encode(), min(count, sys.maxsize))
        cursor.execute(self._sql["redrive"], values)
        return cursor.rowcount

    def redrive_ids(self, cursor: DBAPICursor, queue_name: str, ids: Sequence[str]) -> int:
        now = _now()
        rows = [(now, queue_name.encode(), each.encode()) for each in ids]
        cursor.executemany(self._sql["redrive_id"], rows)
        return cursor.rowcount

    def forget(self, cursor: DBAPICursor, queue_name: str, ids: Sequence[str]) -> int:
        rows = [(queue_name.encode(), each.encode()) for each in ids]
        cursor.executemany(self._sql["forget"], rows)
        return cursor.rowcount

    def dead_letters(
        self, cursor: DBAPICursor, queue_name: str, limit: int, before: tuple[int, int] | None
    ) -> list[Row]:
        values = (queue_name.encode(), *(before or _NEVER), limit)
        return list(map(Row._make, cursor.execute(self._sql["dead_letters"], values).fetchall()))

    def queues(self, cursor: DBAPICursor) -> list[bytes]:
        return [name for (name,) in cursor.execute(self._sql["queues"]).fetchall()]

    def stats(self, cursor: DBAPICursor, queue_name: str) -> tuple[int, int, int, int]:
        values = (queue_name.encode(), _now())
        [(ready, delayed, in_flight, dead)] = cursor.execute(self._sql["stats"], values).fetchall()
        return ready, delayed, in_flight, dead


def _settle(
    cursor: DBAPICursor,
    statement: str,
    items: Sequence[Settled],
    values: Callable[[Settled, int], tuple[object, ...]],
) -> list[Settled]:
    """Run a settlement for each item; return those that do not own their messages."""
    now = _now()
    stale = []
    for item in items:
        delivery = item.delivery
        cursor.execute(statement, (*values(item, now), delivery.seq, delivery.token, now))
        if not cursor.rowcount:
            stale.append(item)
    return stale


def _now() -> int:
    """The clock of SQLite is the machine's, and is shared by all processes on the file."""
    return time.time_ns() // 1000


@cache
def _longest_row() -> int:
    """The most bytes that this build of SQLite stores in a row; usually a thousand million."""
    with closing(sqlite3.connect(":memory:")) as connection:
        return connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
