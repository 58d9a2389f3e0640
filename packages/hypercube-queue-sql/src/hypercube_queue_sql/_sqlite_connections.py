"""Transactions on an SQLite database, over the connections of an engine."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias, TypeVar, cast

from sqlalchemy import Engine, StaticPool
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.pool import ManagesConnection, PoolProxiedConnection

from hypercube_queue import BackendError
from hypercube_queue.driver import Deadline
from hypercube_queue_sql._shared import Shared
from hypercube_queue_sql._sqlite_errors import sqlite_code, translated, translation
from hypercube_queue_sql._sqlite_file import database_file

R = TypeVar("R")

#: Where a connection's record keeps what is known about it.
_KEY = "hypercube_queue_sql"
#: Between two looks at a lock on which SQLite itself does not wait, in seconds.
_PAUSE = 0.005
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


@dataclass(slots=True)
class Known:
    """What is known about a connection since its first use."""

    #: The file, and which file it was when it was opened; empty and None in memory.
    path: str
    inode: tuple[int, int] | None = None
    #: The tables that were seen in it.
    tables: set[str] = field(default_factory=set)

    def is_current(self) -> bool:
        """Whether the connection's file is still the one at its path."""
        return self.inode is None or _inode(self.path) == self.inode


#: Called with each connection before it is used.
Prepare: TypeAlias = Callable[[sqlite3.Connection, Known, Deadline], None]


class Taken(BackendError):
    """The engine's one connection is in a transaction of the caller's."""


class SQLiteConnections:
    """Runs work in transactions, one writer at a time within the process."""

    def __init__(
        self,
        engine: Engine,
        shared: Shared,
        *,
        place: str,
        in_memory: bool,
        limit: timedelta,
        guard: AbstractContextManager[None],
        prepare: Prepare,
        before_opening: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._shared = shared
        self._place = place
        self._in_memory = in_memory
        self._limit = limit
        self._guard = guard
        self._prepare = prepare
        #: Raises where a connection would make a file that is not wanted.
        self._before_opening = before_opening
        #: Whoever still uses a connection sees to it afterwards that it does not stay open.
        self.closed = False

    def visit(self, prepare: Prepare) -> None:
        """Prepare a connection in another way."""
        deadline = Deadline(self._limit)
        with (
            translated(self._place),
            self._turn(deadline),
            self._connection(deadline, prepare=prepare, may_create=True),
        ):
            pass

    def read(
        self,
        work: Callable[[DBAPICursor], R],
        *,
        end: Deadline | None = None,
        wait: bool = True,
        prepare: Prepare | None = None,
    ) -> R:
        """Run `work` without a transaction. With `wait=False` raise Taken at once."""
        deadline = self._deadline(end)
        with (
            translated(self._place),
            # In memory there is no snapshot to read beside a writer.
            self._turn(deadline) if self._in_memory or self._is_single else nullcontext(),
            self._connection(deadline, wait=wait, prepare=prepare) as connection,
        ):
            return patiently(deadline, lambda: work(plain_cursor(connection)))

    def write(self, work: Callable[[DBAPICursor], R], *, end: Deadline | None = None) -> R:
        """Run `work` in a transaction that holds the write lock from the start."""
        deadline = self._deadline(end)
        with (
            translated(self._place),
            self._turn(deadline),
            self._connection(deadline) as connection,
        ):
            return transact(connection, work, deadline, self._place)

    def within(self, work: Callable[[], R]) -> R:
        """Run `work` in a transaction of the caller's."""
        with (
            translated(self._place),
            # Threads that share the one connection would push into each other's transactions.
            self._turn(Deadline(self._limit)) if self._is_single else nullcontext(),
        ):
            return work()

    def _deadline(self, end: Deadline | None) -> Deadline:
        if end is None:
            return Deadline(self._limit)
        return Deadline(min(self._limit, timedelta(seconds=end.seconds_left())))

    # Connections

    @property
    def _is_single(self) -> bool:
        return isinstance(self._engine.pool, StaticPool)

    @contextmanager
    def _turn(self, deadline: Deadline) -> Iterator[None]:
        if not self._shared.turn.acquire(timeout=deadline.seconds_left()):
            raise BackendError(
                f"{self._place}: other threads of this process kept it busy for as long as the "
                "call may take"
            ) from TimeoutError(f"no turn within {self._limit}")
        try:
            yield
        finally:
            self._shared.turn.release()

    @contextmanager
    def _connection(
        self,
        deadline: Deadline,
        *,
        wait: bool = True,
        prepare: Prepare | None = None,
        may_create: bool = False,
    ) -> Iterator[sqlite3.Connection]:
        prepare = prepare or self._prepare
        if not may_create:
            self._before_opening()
        if self._is_single:
            with self._single_connection(deadline, prepare, wait=wait) as connection:
                yield connection
            return
        with self._guard:
            pool = self._engine.pool
            pooled = self._checked_out()
            try:
                yield _prepared(pooled, deadline, prepare)
            except BaseException as error:
                self._doubt(pooled, error)
                raise
            finally:
                pooled.close()
                # Looked at afterwards: the pool may have been emptied just before.
                if self.closed:
                    pool.dispose()

    def _checked_out(self) -> PoolProxiedConnection:
        while True:
            pooled = self._engine.raw_connection()
            known = pooled.info.get(_KEY)
            if known is None or known.is_current():
                return pooled
            # Another file is at the path, or none: writing on into the old one loses messages.
            pooled.invalidate()
            pooled.close()

    @contextmanager
    def _single_connection(
        self, deadline: Deadline, prepare: Prepare, *, wait: bool
    ) -> Iterator[sqlite3.Connection]:
        # Not checked out: on its return the pool would roll back whatever the caller has open.
        pool = cast("StaticPool", self._engine.pool)
        if pool.connection.driver_connection is None:
            self._engine.raw_connection().close()
        while _is_in_transaction(pool.connection):
            if not wait or deadline.passed:
                raise Taken(
                    f"{self._place}: the engine's one connection is in a transaction; end it, or "
                    "push within it"
                )
            self._shared.turn.release()
            try:
                time.sleep(_PAUSE)
            finally:
                self._shared.turn.acquire()
        try:
            yield _prepared(pool.connection, deadline, prepare)
        except sqlite3.ProgrammingError:
            pool.connection.invalidate()
            raise

    def _doubt(self, pooled: PoolProxiedConnection, error: BaseException) -> None:
        """After an error of the database, look at everything anew."""
        if self._in_memory:
            return  # with its last connection the database would go
        if isinstance(error, sqlite3.Error) or isinstance(error.__cause__, sqlite3.Error):
            pooled.invalidate()


def _is_in_transaction(entry: ManagesConnection) -> bool:
    return entry.driver_connection is not None and entry.driver_connection.in_transaction


def _prepared(entry: ManagesConnection, deadline: Deadline, prepare: Prepare) -> sqlite3.Connection:
    connection = cast("sqlite3.Connection", entry.driver_connection)
    known = entry.info.get(_KEY)
    if known is None:
        known = Known(database_file(plain_cursor(connection)))
    prepare(connection, known, deadline)
    if known.inode is None and known.path:
        # Only now: SQLite opens a file when it is needed.
        known.inode = _inode(known.path)
    entry.info[_KEY] = known
    return connection


def plain_cursor(connection: sqlite3.Connection) -> DBAPICursor:
    """A cursor that gives tuples, whatever the caller has set on the connection."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cast("DBAPICursor", cursor)


def transact(
    connection: sqlite3.Connection,
    work: Callable[[DBAPICursor], R],
    deadline: Deadline,
    place: str,
) -> R:
    """Run `work` in a transaction of its own on an idle connection."""
    with _begun_by_hand(connection):
        cursor = plain_cursor(connection)
        patiently(deadline, lambda: cursor.execute("BEGIN IMMEDIATE"))
        try:
            result = work(cursor)
            try:
                # It waits for readers where there is no write-ahead log, and can be repeated.
                patiently(deadline, lambda: cursor.execute("COMMIT"))
            except sqlite3.Error as error:
                if sqlite_code(error) != sqlite3.SQLITE_IOERR:
                    raise
                raise translation(error, place, outcome_unknown=True) from error
        except BaseException:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    cursor.execute("ROLLBACK")
            raise
        return result


def patiently(deadline: Deadline, call: Callable[[], R]) -> R:
    """Call until nobody else has the database locked, at most until the deadline."""
    while True:
        try:
            return call()
        except sqlite3.OperationalError as error:
            if sqlite_code(error) not in _BUSY or deadline.passed:
                raise
            time.sleep(_PAUSE)


@contextmanager
def _begun_by_hand(connection: sqlite3.Connection) -> Iterator[None]:
    """Let nothing but our own BEGIN start a transaction.

    The module's traditional mode leaves an explicit BEGIN alone. With `autocommit=False`
    (Python 3.12) it keeps a transaction open at all times.
    """
    if sys.version_info >= (3, 12) and connection.autocommit is False:
        connection.autocommit = True
        try:
            yield
        finally:
            connection.autocommit = False
    else:
        yield


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - once per call, and a Path takes twice as long
    except OSError:
        return None
    return found.st_dev, found.st_ino
