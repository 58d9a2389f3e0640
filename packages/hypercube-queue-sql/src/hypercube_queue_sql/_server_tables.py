"""Seeing to it that the tables on a server are there, and of this release."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue_sql._client import Client
from hypercube_queue_sql._errors import Kind
from hypercube_queue_sql._tables import LAYOUT_VERSION, Tables, TablesMissing


class ServerTables:
    """The tables of one queue object, looked for before its first call.

    With `create` they are made where they are missing, and brought to the present layout.
    """

    def __init__(
        self,
        tables: Tables,
        dialect: Dialect,
        sql: Mapping[str, str],
        client: Client,
        *,
        create: bool,
        index_if_not_exists: bool,
        check_version: Callable[[DBAPICursor], None],
    ) -> None:
        self._tables = tables
        self._dialect = dialect
        self._sql = sql
        self._client = client
        self._check_version = check_version
        #: The statements that create all of it.
        self.creation = tables.creation(dialect, index_if_not_exists=index_if_not_exists)
        self.create = create
        #: Whether they were seen; taken back when a statement misses them.
        self.seen = False

    def look(self, cursor: DBAPICursor) -> bool:
        """Whether the tables can be used as they are; if not, they have to be created.

        Raises BackendError where they may not be.
        """
        self._check_version(cursor)
        try:
            version = self._layout(cursor)
        except TablesMissing:
            if not self.create:
                raise
            return False
        if version is None:
            self._adopt(cursor)
        elif version != LAYOUT_VERSION:
            if not (self.create and self._tables.is_older(version)):
                self._tables.check_layout(version)
            return False
        self.seen = True
        return True

    def create_missing(self, cursor: DBAPICursor) -> None:
        """Create what is missing and migrate what is old; the caller holds a lock for it."""
        self._check_version(cursor)
        self._run(cursor, self.creation)
        version = self._layout(cursor)
        if version is not None and self._tables.is_older(version):
            self._run(cursor, self._tables.migration(self._dialect, version))
            version = None
        if version is None:
            self._adopt(cursor)
        else:
            self._tables.check_layout(version)

    def are_missing(self, cause: BaseException | None) -> bool:
        """Whether an error of the client's says so."""
        return (
            isinstance(cause, self._client.error)
            and self._client.fault(cause).kind is Kind.NO_TABLE
        )

    def missing(self) -> TablesMissing:
        """What to raise where a statement misses a table; the next call looks again."""
        self.seen = False
        return self._tables.missing()

    def _run(self, cursor: DBAPICursor, statements: Sequence[str]) -> None:
        for statement in statements:
            try:
                cursor.execute(statement)
            except self._client.error as error:
                if self._client.fault(error).kind is not Kind.DONE:
                    raise

    def _layout(self, cursor: DBAPICursor) -> int | None:
        try:
            cursor.execute(self._sql["layout"])
        except self._client.error as error:
            if self._client.fault(error).kind is not Kind.NO_TABLE:
                raise
            raise self._tables.missing() from error
        [(version,)] = cursor.fetchall()
        return version  # type: ignore[no-any-return]  # the column is an integer

    def _adopt(self, cursor: DBAPICursor) -> None:
        """Note the layout of tables that were just made or migrated."""
        cursor.execute(self._sql["set_layout"], {"version": LAYOUT_VERSION})
