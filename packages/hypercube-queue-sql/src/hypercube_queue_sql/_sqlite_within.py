"""A transaction of the caller's on SQLite, of sqlite3's or of aiosqlite's beneath SQLAlchemy."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from sqlalchemy import Engine
from sqlalchemy.engine import AdaptedConnection
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import InvalidArgument
from hypercube_queue_sql._sqlite_connections import plain_cursor
from hypercube_queue_sql._within import begun, is_sqlalchemy, lent


def check_connection(connection: object) -> None:
    """Raise InvalidArgument if the connection leads to no SQLite, as far as it shows."""
    if not is_sqlalchemy(connection) and not isinstance(connection, sqlite3.Connection):
        raise InvalidArgument(
            "connection is an SQLAlchemy Session or Connection, or an sqlite3.Connection, not "
            f"{type(connection).__module__}.{type(connection).__qualname__}; with AsyncQueue it "
            "may be an AsyncSession or AsyncConnection over aiosqlite, too"
        )


class Joined(NamedTuple):
    """What is beneath a connection of the caller's."""

    #: Python's own, or SQLAlchemy's synchronous face of an asynchronous one.
    connection: Any
    #: The engine that it belongs to, if it does.
    engine: Engine | None = None

    def cursor(self) -> DBAPICursor:
        """A cursor that gives tuples."""
        if isinstance(self.connection, sqlite3.Connection):
            return plain_cursor(self.connection)
        return cast("DBAPICursor", _Cursor(self.connection))


def joined(connection: object) -> Joined:
    """What is beneath the connection, in its transaction, which is begun if it is not."""
    if is_sqlalchemy(connection):
        pooled = begun(connection)
        found = Joined(pooled.connection, pooled.engine)
    else:
        found = Joined(connection)
    beneath = found.connection
    if not _is_sqlite(beneath):
        raise InvalidArgument(
            f"connection leads to a {type(beneath).__module__}.{type(beneath).__qualname__}, "
            "and this queue is on SQLite through sqlite3"
        )
    own: Any = beneath.driver_connection if isinstance(beneath, AdaptedConnection) else beneath
    if not own.in_transaction and _commits_by_itself(own):
        raise InvalidArgument(
            "connection is in autocommit mode with no transaction open, so each message would be "
            "committed at once: begin a transaction first"
        )
    return found


@contextmanager
def looked_at(connection: object) -> Iterator[Joined | None]:
    """The same, but nothing is begun; None if the connection leads to no SQLite."""
    if not is_sqlalchemy(connection):
        yield Joined(connection) if _is_sqlite(connection) else None
        return
    with lent(connection) as pooled:
        found = Joined(pooled.connection, pooled.engine)
        yield found if _is_sqlite(found.connection) else None


def _is_sqlite(beneath: object) -> bool:
    if isinstance(beneath, AdaptedConnection):
        return type(beneath.driver_connection).__module__.partition(".")[0] == "aiosqlite"
    return isinstance(beneath, sqlite3.Connection)


class _Cursor:
    """SQLAlchemy's face of an asynchronous cursor, with results where sqlite3 has them."""

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()

    @property
    def rowcount(self) -> int:
        return int(self._cursor.rowcount)

    def execute(self, statement: str, values: Sequence[object] = ()) -> _Cursor:
        self._cursor.execute(statement, values)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        row = self._cursor.fetchone()
        return None if row is None else tuple(row)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._cursor.fetchall()]


def _commits_by_itself(connection: Any) -> bool:
    if sys.version_info >= (3, 12) and isinstance(getattr(connection, "autocommit", None), bool):
        return bool(connection.autocommit)
    return connection.isolation_level is None
