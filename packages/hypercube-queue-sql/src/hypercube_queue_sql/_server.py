"""What PostgreSQL, MySQL and MariaDB have in common as dialects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from sqlalchemy import Engine, MetaData
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import BackendError, Guarantees, InvalidArgument
from hypercube_queue.driver import Deadline, PushItem, chunked
from hypercube_queue_sql._client import Client
from hypercube_queue_sql._database import DatabaseCheck, DatabaseIdentity, wrong_database
from hypercube_queue_sql._delivery import Settled
from hypercube_queue_sql._joined import (
    Joined,
    check_joinable,
    is_joinable,
    joined,
    joined_plain,
    joined_pooled,
)
from hypercube_queue_sql._rows import Row
from hypercube_queue_sql._server_connections import ServerConnections
from hypercube_queue_sql._server_tables import ServerTables
from hypercube_queue_sql._shared import Shared, shared_by
from hypercube_queue_sql._statements import load_statements
from hypercube_queue_sql._tables import Tables
from hypercube_queue_sql._wakeups import Wakeups
from hypercube_queue_sql._within import is_sqlalchemy, lent

R = TypeVar("R")

#: What one statement takes. A write of more takes a transaction around several.
ROWS_PER_STATEMENT = 1_000
_BYTES_PER_STATEMENT = 16 * 1024 * 1024
#: Later than any moment: what stands before no death.
_NEVER = ((1 << 63) - 1, (1 << 63) - 1)


T = TypeVar("T", PushItem, Settled)


def statements_of(items: Iterable[T]) -> Iterator[list[T]]:
    """The items of each statement."""
    return chunked(items, ROWS_PER_STATEMENT, max_bytes=_BYTES_PER_STATEMENT, size=_size)


def _size(item: PushItem | Settled) -> int:
    return len(item.payload) + len(item.extra)


class ServerDialect:
    """A base for dialects of servers: all but what their SQL differs in.

    Statements take their parameters by name, and the database's own clock is in them.
    """

    #: Names of SQLAlchemy's dialects for this database, the usual one first.
    names: ClassVar[Sequence[str]]
    #: Client libraries whose plain connections `within` takes, the usual one first.
    libraries: ClassVar[Sequence[str]]
    #: The file of its statements, and what reads the clock in them.
    statements: ClassVar[str]
    now: ClassVar[str]
    client_class: ClassVar[Callable[..., Client]]
    #: Whether a change of a batch is one statement; if not, it is always a transaction.
    one_statement: ClassVar[bool] = True
    #: Whether CREATE INDEX knows IF NOT EXISTS; if not, its error is `Kind.DONE`.
    index_if_not_exists: ClassVar[bool] = True
    #: Whether one transaction may span databases of one server, which `schema` names then.
    schema_is_database: ClassVar[bool] = False

    poll_seconds = 0.5
    guarantees: Guarantees

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
        if engine.dialect.driver != self.libraries[0]:
            raise InvalidArgument(
                f"the engine speaks to {self.names[0]} through {engine.dialect.driver}; it takes "
                f"one made from a {self.names[0]}+{self.libraries[0]}:// URL"
            )
        self._engine = engine
        self._owned = owned
        self.client = self.client_class(owned=owned)
        self._limit = operation_timeout
        tables = Tables(MetaData(), table, schema)
        self._names = tables
        self._sql = load_statements(self.statements, now=self.now, **tables.quoted(engine.dialect))
        #: The same for transactions of callers', whose sessions may look for tables elsewhere.
        self._sql_within = self._sql
        self._database = DatabaseCheck(
            own=lambda: self._connections.write(self.identify, transaction=True),
            of=lambda beneath: self._connections.within(beneath, self.identify),
            any_name=self.schema_is_database and schema is not None,
        )
        url = engine.url
        self._place = (
            f"{url.get_backend_name()} at {url.host or url.query.get('host') or 'its default host'}"
        )
        self._key = (url.render_as_string(hide_password=True), schema, table)
        self._tables = ServerTables(
            tables,
            engine.dialect,
            self._sql,
            self.client,
            create=create_tables,
            index_if_not_exists=self.index_if_not_exists,
            check_version=self.check_version,
        )
        self._connect()

    def _connect(self) -> None:
        """Take what this process shares; nothing is opened yet."""
        self._shared: Shared = shared_by(self._key)
        self._connections = ServerConnections(
            self._engine,
            self.client,
            place=self._place,
            limit=self._limit,
            owned=self._owned,
            on_wrong_server=self.leave_server,
        )

    def check_version(self, cursor: DBAPICursor) -> None:
        """Raise BackendError if the server is too old; learn where it has the tables."""
        raise NotImplementedError

    def identify(self, cursor: DBAPICursor) -> DatabaseIdentity:
        """The database that a cursor leads to."""
        raise NotImplementedError

    def _found_in(self, schema: str | None) -> None:
        """Name the schema in the statements of callers' transactions.

        Without it, who has another search path or database chosen would store into a table of
        the same name that nobody reads.
        """
        if schema is None or set(schema) & set("%{}"):
            return  # what would be taken for a parameter in the statements
        quoted = self._names.quoted(self._engine.dialect, schema=schema)
        self._sql_within = load_statements(self.statements, now=self.now, **quoted)

    def create_within_lock(
        self, cursor: DBAPICursor, create: Callable[[DBAPICursor], None]
    ) -> None:
        """Run `create` in a transaction while no other process runs it."""
        raise NotImplementedError

    @property
    def wakeups(self) -> Wakeups:
        return self._shared.wakeups

    @property
    def hears(self) -> bool:
        return False

    def listen(self) -> None:
        """There is nothing to listen to: waiting pops look again and again."""

    def leave_server(self) -> None:
        """Give up what else is connected to a server that turned out to be the wrong one."""

    def stored(self, queue_name: str, count: int) -> None:
        self.wakeups.stored(queue_name, count)

    def stored_within(self, cursor: DBAPICursor, queue_name: str, count: int) -> None:
        """Nobody is told: the caller's transaction may yet be rolled back."""

    # Transactions

    def creation_statements(self) -> list[str]:
        return list(self._tables.creation)

    def create_tables(self) -> None:
        self._create_tables(Deadline(self._limit))

    def create_nothing(self) -> None:
        self._tables.create = False

    def _create_tables(self, end: Deadline) -> None:
        self._connections.write(
            lambda cursor: self.create_within_lock(cursor, self._tables.create_missing),
            transaction=True,
            end=end,
        )
        self._tables.seen = True

    def read(self, work: Callable[[DBAPICursor], R], *, end: Deadline | None = None) -> R:
        end = end or Deadline(self._limit)
        self._prepare(end)
        return self._noticing(lambda: self._connections.read(work, end=end))

    def write(
        self,
        work: Callable[[DBAPICursor], R],
        *,
        items: Sequence[PushItem] | Sequence[Settled] = (),
        end: Deadline | None = None,
    ) -> R:
        end = end or Deadline(self._limit)
        self._prepare(end)
        several = len(items) > ROWS_PER_STATEMENT or (
            len(items) > 1 and sum(map(_size, items)) > _BYTES_PER_STATEMENT
        )
        return self._noticing(
            lambda: self._connections.write(
                work, transaction=several or not self.one_statement, end=end
            )
        )

    def _prepare(self, end: Deadline) -> None:
        """Look for the tables before the first call, and create them if asked to."""
        if self._tables.seen:
            return
        if not self._connections.write(self._tables.look, transaction=False, end=end):
            self._create_tables(end)

    def _noticing(self, call: Callable[[], R]) -> R:
        """Run `call`; tables that are missing now are looked for again by the next one."""
        try:
            return call()
        except BackendError as error:
            if self._tables.are_missing(error.__cause__):
                raise self._tables.missing() from error.__cause__
            raise

    def check_connection(self, connection: object) -> None:
        check_joinable(connection, self.names, self.libraries)

    def within(self, connection: object, work: Callable[[DBAPICursor], R]) -> R:
        # On a connection of its own, since a statement that fails would end the caller's
        # transaction.
        self._prepare(Deadline(self._limit))
        beneath = joined(connection, self.names)
        self.check_transaction(beneath)
        if difference := self._difference(beneath):
            raise wrong_database(*difference)
        return self._connections.within(beneath, work)

    def shares_database(self, connection: object) -> bool:
        if not is_joinable(connection, self.libraries):
            return False
        if not is_sqlalchemy(connection):
            return self._difference(joined_plain(connection)) is None
        with lent(connection) as pooled:
            if pooled.engine.dialect.name not in self.names:
                return False
            return self._difference(joined_pooled(pooled)) is None

    def _difference(self, beneath: Joined) -> tuple[DatabaseIdentity, DatabaseIdentity] | None:
        if beneath.pool is self._engine.pool:
            return None  # and it may have no other connection to ask on
        return self._database.difference(beneath)

    def check_transaction(self, beneath: Joined) -> None:
        """Raise InvalidArgument if each statement would be committed at once."""
        raise NotImplementedError

    # Lifecycle

    def close(self) -> None:
        if self._owned:
            self._connections.close()

    @property
    def in_child(self) -> Callable[[], None]:
        return self._enter_child

    def _enter_child(self) -> None:
        if not self._owned:
            raise BackendError(
                f"{self._place}: this process was forked, and the queue's engine belongs to its "
                "parent; make an engine and a queue after the fork"
            )
        # The parent goes on using the connections, so they are left alone, not closed.
        self._engine.dispose(close=False)
        self._connect()

    # Statements

    def insert(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        """Store the items; return those whose ids are retained."""
        raise NotImplementedError

    def insert_within(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        return self.insert(cursor, items)

    def max_message_bytes(self, end: Deadline) -> int | None:  # noqa: ARG002 - nobody is asked
        return None

    def redrive(self, cursor: DBAPICursor, queue_name: str, count: int) -> int:
        cursor.execute(
            self._sql["redrive"],
            {"queue_name": queue_name.encode(), "count": min(count, sys.maxsize)},
        )
        return cursor.rowcount

    def redrive_ids(self, cursor: DBAPICursor, queue_name: str, ids: Sequence[str]) -> int:
        return self._by_ids(cursor, "redrive_ids", queue_name, ids)

    def forget(self, cursor: DBAPICursor, queue_name: str, ids: Sequence[str]) -> int:
        return self._by_ids(cursor, "forget", queue_name, ids)

    def _by_ids(self, cursor: DBAPICursor, name: str, queue_name: str, ids: Sequence[str]) -> int:
        """Run a statement about dead messages by their ids; return how many it changed."""
        raise NotImplementedError

    def dead_letters(
        self, cursor: DBAPICursor, queue_name: str, limit: int, before: tuple[int, int] | None
    ) -> list[Row]:
        died_at, seq = before or _NEVER
        rows = self._rows(
            cursor,
            "dead_letters",
            queue_name=queue_name.encode(),
            died_at=died_at,
            seq=seq,
            limit=limit,
        )
        return list(map(Row._make, rows))

    def queues(self, cursor: DBAPICursor) -> list[bytes]:
        return [name for (name,) in self._rows(cursor, "queues")]

    def stats(self, cursor: DBAPICursor, queue_name: str) -> tuple[int, int, int, int]:
        [(ready, delayed, in_flight, dead)] = self._rows(
            cursor, "stats", queue_name=queue_name.encode()
        )
        return ready, delayed, in_flight, dead

    def _rows(self, cursor: DBAPICursor, name: str, **values: object) -> list[Any]:
        cursor.execute(self._sql[name], values)
        return list(cursor.fetchall())
