"""psycopg, and what PostgreSQL's errors mean: the one place for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Self, cast

import psycopg
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row
from sqlalchemy.engine.interfaces import AdaptedConnection, DBAPICursor

from hypercube_queue.driver import URLOptions
from hypercube_queue_sql._errors import Fault, Kind
from hypercube_queue_sql._sockets import has_ended, shut

#: How long the server waits for the next statement of a transaction before it undoes it and
#: lets go of its locks: the client may be cut off.
_IDLE_SECONDS = 60

_OWN = frozenset({"user", "password", "dbname"})
#: What libpq knows beside the parts of a URL that have a place of their own; hosts may be named
#: in either.
PARAMETERS = (
    frozenset(option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()) - _OWN
)

#: SQLSTATEs, and classes of them, in the order in which they are looked up.
_KINDS = {
    "40001": Kind.AGAIN,  # serialization failure
    "40P01": Kind.AGAIN,  # deadlock
    "55P03": Kind.AGAIN,  # a lock time-out that somebody has set
    "42P01": Kind.NO_TABLE,
    "3F000": Kind.NO_TABLE,  # the schema is missing
    "28": Kind.REFUSED,  # the user name or the password
    "3D000": Kind.REFUSED,  # the database is missing
    "42501": Kind.REFUSED,  # a right is missing
    "54": Kind.TOO_LARGE,  # a limit of the program was exceeded
    "26000": Kind.UNPREPARED,  # no prepared statement of this name
    "42P05": Kind.UNPREPARED,  # there is one of this name
    "25006": Kind.WRONG_SERVER,  # a read-only transaction, or a replica
    "57P": Kind.GONE,  # the server shuts down, or an administrator ended the session
    "25P03": Kind.GONE,  # the session was idle in a transaction
    "08": Kind.GONE,
    "53300": Kind.OTHER,  # too many connections
    "53": Kind.FULL,  # disk full, out of memory
}
#: How libpq tells, without a SQLSTATE and in the server's language, that it may not connect. In
#: other languages than English such an error counts as one that may pass.
_REFUSALS = re.compile(
    r"FATAL:  (?:password authentication failed|no pg_hba\.conf entry|\w+ authentication failed"
    r'|database ".*" does not exist|role ".*" does not exist|role ".*" is not permitted to log in'
    r"|permission denied for database)|no password supplied"
)
#: What to do about some, behind the server's own words.
_REMEDIES = {
    "53300": "raise max_connections or the role's limit, or open fewer connections",
    "25006": "the server is a replica, or the user's transactions are read-only by default",
    "25P02": "the caller's transaction has failed before; roll it back, and begin another",
    "42501": (
        "grant the user SELECT, INSERT, UPDATE and DELETE on both tables and USAGE on the "
        "sequence; to create them, CREATE on the schema"
    ),
    "57014": "somebody cancelled the statement, or set a statement_timeout",
}


def check_parameters(parameters: Mapping[str, str]) -> None:
    """Libpq itself refuses what makes no sense."""


def connect_options(options: URLOptions) -> dict[str, object]:
    """What a connection is made with by options of a queue's URL."""
    if options.flag("prepared_statements", True):
        return {}
    return {"prepare_threshold": None}


def connect_arguments(seconds: int) -> dict[str, object]:
    """What a connection is made with, given how long a call may take."""
    return {
        "autocommit": True,
        "connect_timeout": seconds,
        "application_name": "hypercube",
        # The system notices a peer that is gone, also behind a connection that only listens.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }


class PsycopgClient:
    """Keeps `Client` with psycopg 3."""

    error: type[Exception] = psycopg.Error
    commits_each = True

    def __init__(self, *, owned: bool) -> None:  # noqa: ARG002 - whose they are is no matter
        #: Whether psycopg may prepare on the server what it runs often.
        self._prepares = True

    def cut(self, connection: Any) -> None:
        shut(_descriptor(connection))

    def is_dead(self, connection: psycopg.Connection[Any]) -> bool:
        return connection.closed or has_ended(_descriptor(connection))

    def take(self, connection: psycopg.Connection[Any]) -> Callable[[], None] | None:
        if connection.autocommit:
            return None
        connection.autocommit = True

        def undo() -> None:
            connection.autocommit = False

        return undo

    def stop_preparing(self) -> None:
        self._prepares = False

    def cursor(self, connection: psycopg.Connection[Any]) -> DBAPICursor:
        # Not of the connection's cursor_factory, which may know no binary values.
        kind = psycopg.Cursor if self._prepares else _UnpreparingCursor
        cursor = kind(connection, row_factory=tuple_row)
        cursor.format = Format.BINARY
        return cast("DBAPICursor", cursor)

    def begin(self, connection: psycopg.Connection[Any]) -> DBAPICursor:
        connection.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED; "
            f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'",
            prepare=False,
        )
        return self.cursor(connection)

    def lost_its_socket(self, error: AttributeError) -> bool:  # noqa: ARG002 - it never does
        return False

    def fault(self, error: BaseException) -> Fault:
        # Other libraries, in the caller's transactions, call it pgcode.
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        text = _first_line(error)
        if state is None:
            # Not the server's word but the library's: nearly always a connection that ended.
            if _REFUSALS.search(str(error)):
                return Fault(Kind.REFUSED, text)
            lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            return Fault(Kind.GONE if lost else Kind.OTHER, text)
        kind = next((_KINDS[key] for key in _KINDS if state.startswith(key)), Kind.OTHER)
        return Fault(kind, f"{text}: {_REMEDIES[state]}" if state in _REMEDIES else text)


class _UnpreparingCursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor whose statements are never prepared."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        return super().execute(query, params, **{**options, "prepare": False})


def own_pid(cursor: Any) -> int:
    """The number of the server's process, as the beginning of the connection told it.

    A pooler tells one of its own.
    """
    return int(cursor.connection.info.backend_pid)


def commits_at_once(connection: Any) -> bool:
    """Whether a connection has no transaction open, and a statement would begin none."""
    if not connection.autocommit:
        return False
    if isinstance(connection, AdaptedConnection):
        return True  # nobody begins by hand beneath an asynchronous one
    status = connection.info.transaction_status
    return status not in (TransactionStatus.INTRANS, TransactionStatus.INERROR)


def _descriptor(connection: Any) -> int:
    """The socket of a connection of psycopg's, psycopg2's or asyncpg's; -1 if there is none."""
    try:
        if isinstance(connection, AdaptedConnection):
            connection = connection.driver_connection
            if type(connection).__module__.startswith("asyncpg"):
                # Its own ways of ending a connection belong to the event loop's thread.
                connection = connection._transport.get_extra_info("socket")
        return int(connection.fileno())
    except (psycopg.Error, AttributeError, ValueError):
        return -1


def _first_line(error: BaseException) -> str:
    # Details can quote the values of the row, and so the payload.
    return str(error).strip().partition("\n")[0] or type(error).__name__
