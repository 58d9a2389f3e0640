"""A transaction of the caller's on SQLite, of sqlite3's or of aiosqlite's beneath SQLAlchemy."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy.engine import AdaptedConnection
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import InvalidArgument
from hypercube_queue_sql._sqlite_connections import plain_cursor
from hypercube_queue_sql._within import dbapi_connection, is_sqlalchemy


def check_connection(connection: object) -> None:
    """Raise InvalidArgument if the connection leads to no SQLite, as far as it shows."""
    if not is_sqlalchemy(connection) and not isinstance(connection, sqlite3.Connection):
        raise InvalidArgument(
            "connection is an SQLAlchemy Session or Connection, or an sqlite3.Connection, not "
            f"{type(connection).__module__}.{type(connection).__qualname__}; with AsyncQueue it "
            "may be an AsyncSession or AsyncConnection over aiosqlite, too"
        )


def joined_cursor(connection: object) -> DBAPICursor:
    """A cursor in the transaction of the caller's, which gives tuples."""
    beneath = dbapi_connection(connection) if is_sqlalchemy(connection) else connection
    asynchronous = isinstance(beneath, AdaptedConnection) and (
        beneath.driver_connection.__class__.__module__.partition(".")[0] == "aiosqlite"
    )
    if not asynchronous and not isinstance(beneath, sqlite3.Connection):
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
    if isinstance(beneath, sqlite3.Connection):
        return plain_cursor(beneath)
    return cast("DBAPICursor", _Cursor(beneath))


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
