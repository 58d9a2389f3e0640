"""A transaction of the caller's on a server, whichever client library it goes through."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Pool
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import InvalidArgument
from hypercube_queue_sql._within import PooledConnection, begun, is_sqlalchemy

#: A parameter as the statements have it, `%(seqs)b` or `%(seqs)s`: by name, bytes or not.
_PARAMETER = re.compile(r"%\((\w+)\)[sb]")

#: The class of plain connections in each client library.
_PLAIN = {
    "MySQLdb": "MySQLdb.connections.Connection",
    "psycopg": "psycopg.Connection",
    "psycopg2": "psycopg2.extensions.connection",
    "pymysql": "pymysql.connections.Connection",
}


class Joined(NamedTuple):
    """What is beneath a connection of the caller's."""

    #: The client library's own, or SQLAlchemy's synchronous face of an asynchronous one.
    connection: Any
    #: How the library wants parameters, as in the Python database API.
    paramstyle: str
    #: What it raises.
    error: type[Exception]
    #: The pool of the engine that it belongs to, if it does.
    pool: Pool | None = None
    #: What the pool remembers with it.
    info: MutableMapping[Any, Any] | None = None

    def cursor(self) -> DBAPICursor:
        """A cursor that takes our statements and gives tuples."""
        cursor = self.connection.cursor()
        if _is_of(self.connection, "psycopg"):
            # Its rows are whatever the caller has had made of them.
            cursor.row_factory = sys.modules["psycopg.rows"].tuple_row
        return TranslatingCursor(cursor, self.paramstyle)  # type: ignore[return-value]


def is_joinable(connection: object, libraries: Sequence[str]) -> bool:
    """Whether `joined` may take it. Contacts nobody."""
    return is_sqlalchemy(connection) or any(_is_of(connection, library) for library in libraries)


def check_joinable(connection: object, dialects: Sequence[str], libraries: Sequence[str]) -> None:
    """Raise InvalidArgument unless `joined` may take it. Contacts nobody."""
    if is_joinable(connection, libraries):
        return
    raise InvalidArgument(
        "connection is an SQLAlchemy Session or Connection, or a connection of "
        f"{' or '.join(libraries)}, not {_kind(connection)}; with AsyncQueue it may be an "
        f"AsyncSession or AsyncConnection for {dialects[0]}, too"
    )


def joined(connection: object, dialects: Sequence[str]) -> Joined:
    """What is beneath the connection, in its transaction, which is begun if it is not."""
    if not is_sqlalchemy(connection):
        return joined_plain(connection)
    pooled = begun(connection)
    name = pooled.engine.dialect.name
    if name not in dialects:
        raise InvalidArgument(f"connection leads to {name}, and this queue is on {dialects[0]}")
    return joined_pooled(pooled)


def joined_pooled(pooled: PooledConnection) -> Joined:
    """The same for a connection of an engine's, as it is."""
    dialect = pooled.engine.dialect
    return Joined(
        pooled.connection,
        dialect.paramstyle,
        dialect.loaded_dbapi.Error,
        pooled.engine.pool,
        pooled.pooled.info,
    )


def joined_plain(connection: object) -> Joined:
    """The same for a connection of a client library's, as it is."""
    # The Python database API knows the classes of errors as attributes of each connection.
    return Joined(connection, "pyformat", connection.Error)  # type: ignore[attr-defined]


def _is_of(connection: object, library: str) -> bool:
    """Whether it is a library's plain connection: no cursor, and no asynchronous one."""
    module, _, name = _PLAIN[library].rpartition(".")
    # Whoever has a connection has imported its library.
    imported = sys.modules.get(module)
    return imported is not None and isinstance(connection, getattr(imported, name))


class TranslatingCursor:
    """A cursor of a client library that takes parameters as our statements name them."""

    def __init__(self, cursor: Any, paramstyle: str) -> None:
        self._cursor = cursor
        self._paramstyle = paramstyle

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount  # type: ignore[no-any-return]

    def execute(self, statement: str, values: Mapping[str, object] | None = None) -> None:
        text, parameters = translated_parameters(statement, values or {}, self._paramstyle)
        self._cursor.execute(text, parameters)

    def fetchall(self) -> list[tuple[Any, ...]]:
        # Callers like their rows as mappings, and have set their connections so.
        return [
            tuple(row.values()) if isinstance(row, Mapping) else tuple(row)
            for row in self._cursor.fetchall()
        ]

    def close(self) -> None:
        self._cursor.close()


def translated_parameters(
    statement: str, values: Mapping[str, object], paramstyle: str
) -> tuple[str, object]:
    """A statement and its values as a library wants them."""
    if paramstyle == "pyformat":
        return _PARAMETER.sub(r"%(\1)s", statement), values
    if paramstyle == "format":
        names = _PARAMETER.findall(statement)
        return _PARAMETER.sub("%s", statement), tuple(values[name] for name in names)
    if paramstyle == "numeric_dollar":
        order: dict[str, int] = {}
        for name in _PARAMETER.findall(statement):
            order.setdefault(name, len(order) + 1)
        text = _PARAMETER.sub(lambda match: f"${order[match[1]]}", statement).replace("%%", "%")
        return text, tuple(values[name] for name in order)
    raise InvalidArgument(
        f"connection's client library wants parameters as {paramstyle}; it takes one that wants "
        "pyformat, format or numeric_dollar"
    )


def _kind(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
