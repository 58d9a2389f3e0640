"""Seeing to it that the tables are there, and of this release."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TypeVar

from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import BackendError
from hypercube_queue.driver import Deadline
from hypercube_queue_sql._sqlite_connections import Known, patiently, plain_cursor, transact
from hypercube_queue_sql._tables import LAYOUT_VERSION, Tables, TablesMissing

R = TypeVar("R")

#: UPDATE .. RETURNING.
_OLDEST = (3, 35, 0)


class SQLiteTables:
    """The tables of one queue object, looked for on each connection's first use.

    With `create` they are made where they are missing.
    """

    def __init__(
        self, tables: Tables, dialect: Dialect, sql: Mapping[str, str], *, create: bool, place: str
    ) -> None:
        self._tables = tables
        self._dialect = dialect
        #: The statements that create all of it.
        self.creation = tables.creation(dialect)
        self._table = tables.quoted(dialect)["messages"]
        self._sql = sql
        self.create = create
        self._place = place

    def prepare(self, connection: sqlite3.Connection, known: Known, deadline: Deadline) -> None:
        """Look for the tables on a connection's first use, and create them if asked to."""
        try:
            self.look(connection, known, deadline)
        except TablesMissing:
            if not self.create:
                raise
            self.create_missing(connection, known, deadline)

    def look(self, connection: sqlite3.Connection, known: Known, deadline: Deadline) -> None:
        """The same, but create nothing. Raises TablesMissing."""
        if self._table in known.tables:
            return
        if sqlite3.sqlite_version_info < _OLDEST:
            raise BackendError(
                f"SQLite {sqlite3.sqlite_version} is too old: it takes 3.35 or a newer one, which "
                "comes with the Python of most systems since 2021",
                permanent=True,
            )
        version = patiently(deadline, lambda: self._layout(plain_cursor(connection)))
        if version is None:
            transact(connection, self._adopt, deadline, self._place)
        elif self.create and self._tables.is_older(version):
            self.create_missing(connection, known, deadline)
        else:
            self._tables.check_layout(version)
        known.tables.add(self._table)

    def prepare_within(self, cursor: DBAPICursor) -> None:
        """The same in a transaction of the caller's, which may yet be rolled back."""
        try:
            version = self._layout(cursor)
        except TablesMissing:
            if not self.create:
                raise
            self._create_all(cursor)
            return
        if version is None:
            self._adopt(cursor)
        elif self.create and self._tables.is_older(version):
            self._create_all(cursor)
        else:
            self._tables.check_layout(version)

    def of_none(self, work: Callable[[DBAPICursor], R]) -> R:
        """What `work` finds where there is no message at all."""
        with closing(sqlite3.connect(":memory:")) as connection:
            cursor = plain_cursor(connection)
            if self._tables.messages.schema is not None:
                cursor.execute(f"ATTACH ':memory:' AS {self._tables.messages.schema}")
            self._create_all(cursor)
            return work(cursor)

    def create_missing(
        self, connection: sqlite3.Connection, known: Known, deadline: Deadline
    ) -> None:
        transact(connection, self._create_all, deadline, self._place)
        known.tables.add(self._table)

    def _create_all(self, cursor: DBAPICursor) -> None:
        for statement in self.creation:
            cursor.execute(statement)
        version = self._layout(cursor)
        if version is not None and self._tables.is_older(version):
            for statement in self._tables.migration(self._dialect, version):
                cursor.execute(statement)
            version = None
        if version is None:
            self._adopt(cursor)
        else:
            self._tables.check_layout(version)

    def _layout(self, cursor: DBAPICursor) -> int | None:
        try:
            [(version,)] = cursor.execute(self._sql["layout"]).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            raise self._tables.missing() from error
        return version  # type: ignore[no-any-return]  # check_layout takes anything

    def _adopt(self, cursor: DBAPICursor) -> None:
        """Note the layout of tables that were just made, here or by a migration."""
        cursor.execute(self._sql["set_layout"], (LAYOUT_VERSION,))
