"""PyMySQL, and what the errors of MySQL and MariaDB mean: the one place for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pymysql
from pymysql.constants import CLIENT, SERVER_STATUS
from pymysql.cursors import Cursor, SSCursor
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import URLOptions
from hypercube_queue_sql._errors import Fault, Kind
from hypercube_queue_sql._sockets import has_ended, shut

#: How long the server waits for the next statement before it ends the session, undoes its
#: transaction and lets go of its locks: the client may be cut off.
_IDLE_SECONDS = 60
#: How long a statement waits for a lock before it is tried again.
_LOCK_SECONDS = 5
#: Longer than a call may take, so that it is the watchdog that ends one; this is for
#: connections that nobody waits for any more.
_GRACE_SECONDS = 5

#: One round trip for all. The isolation level has a name of its own in each of the two: a
#: comment from version 50700 is for MySQL only.
_SESSION = (
    f"SET SESSION autocommit = 1, SESSION wait_timeout = {_IDLE_SECONDS}, "
    f"SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}, "
    "SESSION /*!50700 transaction_isolation */ /*M! tx_isolation */ = 'READ-COMMITTED'"
)

#: What PyMySQL knows beside the parts of a URL that have a place of their own.
PARAMETERS = frozenset(
    {
        "bind_address",
        "connect_timeout",
        "program_name",
        "read_default_file",
        "read_default_group",
        "ssl_ca",
        "ssl_capath",
        "ssl_cert",
        "ssl_check_hostname",
        "ssl_cipher",
        "ssl_key",
        "unix_socket",
    }
)

#: Options of TLS from which one expects that the server is verified.
_VERIFYING = ("ssl_check_hostname", "ssl_cert", "ssl_key")

_DUPLICATE = 1062
_KINDS = {
    1213: Kind.AGAIN,  # deadlock
    3101: Kind.AGAIN,  # MySQL: another member of the group has changed the same rows
    1205: Kind.AGAIN,  # a lock did not come free in time
    1020: Kind.AGAIN,  # MariaDB: a row has changed since the transaction's snapshot
    1146: Kind.NO_TABLE,
    1044: Kind.REFUSED,  # this user may not use the database
    1045: Kind.REFUSED,  # the user name or the password
    1049: Kind.REFUSED,  # the database is missing
    1142: Kind.REFUSED,  # a right is missing
    1143: Kind.REFUSED,
    1698: Kind.REFUSED,  # MariaDB: the way of authentication
    1061: Kind.DONE,  # the index is there
    1091: Kind.DONE,  # the index is not there
    1153: Kind.TOO_LARGE,  # more than max_allowed_packet
    1021: Kind.FULL,  # the disk
    1037: Kind.FULL,  # memory
    1041: Kind.FULL,
    1114: Kind.FULL,  # the table
    1206: Kind.FULL,  # the table of locks
    1047: Kind.WRONG_SERVER,  # MariaDB: a node that is cut off from its cluster
    1290: Kind.WRONG_SERVER,  # --read-only, --super-read-only
    1792: Kind.WRONG_SERVER,  # the transaction is read-only
    1836: Kind.WRONG_SERVER,  # read-only mode
    3032: Kind.WRONG_SERVER,  # offline mode
    3100: Kind.WRONG_SERVER,  # MySQL: a member that its group does not let commit
    1053: Kind.GONE,  # the server shuts down
    1152: Kind.GONE,
    1158: Kind.GONE,
    1159: Kind.GONE,
    1160: Kind.GONE,
    1161: Kind.GONE,
    1184: Kind.GONE,
    1927: Kind.GONE,  # MariaDB: an administrator ended the session
    2002: Kind.GONE,  # no connection
    2003: Kind.GONE,
    2006: Kind.GONE,
    2013: Kind.GONE,
    2014: Kind.GONE,  # the answers are out of order
    2055: Kind.GONE,
    4031: Kind.GONE,  # MySQL: the session was idle for too long
}
_ACCESS = "the user may not do this; grant what the table or the database needs"
_READ_ONLY = "the server takes no changes: it is a replica, or the transaction is read-only"
_CONNECTIONS = "the server has no connection to spare; raise max_connections, or open fewer"
_TEXTS = {
    1040: _CONNECTIONS,
    1047: "the server is cut off from its cluster, and takes no statements",
    1203: _CONNECTIONS,
    1142: _ACCESS,
    1143: _ACCESS,
    1205: "somebody else kept a lock for too long",
    1290: _READ_ONLY,
    1317: "the statement was cancelled",
    1665: "binlog_format is STATEMENT, which cannot log READ COMMITTED; set it to ROW",
    1792: _READ_ONLY,
    1836: _READ_ONLY,
    1969: "the statement ran into max_statement_time",
    2006: "the connection has ended",
    2013: "the connection ended before the answer came",
    3024: "the statement ran into max_execution_time",
    3032: "the server is in offline mode",
    3100: _READ_ONLY,
}


def check_parameters(parameters: Mapping[str, str]) -> None:
    """Raise InvalidArgument for TLS that looks as if it verified the server, and does not."""
    named = [name for name in _VERIFYING if parameters.get(name)]
    if named and not any(parameters.get(name) for name in ("ssl_ca", "ssl_capath")):
        raise InvalidArgument(
            f"the URL has {named[0]} without ssl_ca or ssl_capath, so the server's certificate "
            "would not be verified at all: name the authority, such as ssl_ca=/etc/ssl/certs/ca.pem"
        )


def connect_options(options: URLOptions) -> dict[str, object]:  # noqa: ARG001 - there are none
    """What a connection is made with by options of a queue's URL."""
    return {}


def connect_arguments(seconds: int) -> dict[str, object]:
    """What a connection is made with, given how long a call may take."""
    return {
        "connect_timeout": seconds,
        "read_timeout": seconds + _GRACE_SECONDS,
        "write_timeout": seconds + _GRACE_SECONDS,
        "init_command": _SESSION,
        "autocommit": None,  # it is in the command
        "client_flag": CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
        "program_name": "hypercube",
    }


class PyMySQLClient:
    """Keeps `Client` with PyMySQL.

    Connections of an engine of the caller's stay in the mode they are in.
    """

    error: type[Exception] = pymysql.MySQLError

    def __init__(self, *, owned: bool) -> None:
        self.commits_each = owned

    def cut(self, connection: Any) -> None:
        shut(_descriptor(connection))

    def is_dead(self, connection: pymysql.Connection[Any]) -> bool:
        return not connection.open or has_ended(_descriptor(connection))

    def take(self, connection: pymysql.Connection[Any]) -> Callable[[], None] | None:  # noqa: ARG002 - nothing is changed
        return None

    def stop_preparing(self) -> None:
        """PyMySQL prepares none."""

    def cursor(self, connection: pymysql.Connection[Any]) -> DBAPICursor:
        return cast("DBAPICursor", connection.cursor(Cursor))

    def begin(self, connection: pymysql.Connection[Any]) -> DBAPICursor:
        if self.commits_each:
            return cast("DBAPICursor", BeginningCursor(connection))
        # It holds for the next transaction, and leaves no trace.
        connection.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        if connection.get_autocommit():
            connection.query("START TRANSACTION")
        return self.cursor(connection)

    def lost_its_socket(self, error: AttributeError) -> bool:
        # It goes on with a socket that it has closed itself when it was cut.
        return error.obj is None and error.name in {"read", "sendall", "settimeout"}

    def fault(self, error: BaseException) -> Fault:
        code = _code(error)
        if code is None or code == 0:
            # Not the server's word but the library's: the connection was closed under it.
            return Fault(Kind.GONE, _text(error))
        return Fault(_KINDS.get(code, Kind.OTHER), _TEXTS.get(code, _text(error)))


class BeginningCursor(Cursor):
    """Begins a transaction in the round trip of its first statement."""

    _begun = False

    def begin(self) -> bool:
        """Tell whether the next statement is the first one, and has to begin the transaction."""
        first = not self._begun
        self._begun = True
        return first

    def execute(self, query: str, args: object = None) -> int:
        if not self.begin():
            return super().execute(query, args)
        super().execute(f"START TRANSACTION; {query}", args)
        self.nextset()
        return self.rowcount


def stream(cursor: DBAPICursor, query: str, values: Mapping[str, object]) -> Iterator[Any]:
    """Run a query of the cursor's transaction; its rows come one by one, never all in memory."""
    with SSCursor(cast("Any", cursor).connection) as rows:
        if isinstance(cursor, BeginningCursor) and cursor.begin():
            rows.execute(f"START TRANSACTION; {query}", values)
            rows.nextset()
        else:
            rows.execute(query, values)
        yield from rows


def is_duplicate(error: BaseException) -> bool:
    """Whether a row was not inserted because there is one with its key; any library's error."""
    return _code(error) == _DUPLICATE


def is_missing_savepoint(error: BaseException) -> bool:
    """Whether there is no such savepoint; any library's error."""
    return _code(error) == 1305


def has_transaction(connection: pymysql.Connection[Any]) -> bool:
    """Whether a connection of PyMySQL's has one, or begins one with its next statement."""
    status: int = connection.server_status  # type: ignore[attr-defined]  # its stubs lack it
    in_transaction = status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
    return bool(in_transaction) or not connection.get_autocommit()


def _code(error: BaseException) -> int | None:
    """The number of an error, which stands in the same place with all libraries."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) else None


def _text(error: BaseException) -> str:
    """What to show of an error that has no text of ours."""
    code = _code(error)
    if isinstance(error, pymysql.OperationalError | pymysql.InternalError) or code in _KINDS:
        return str(error.args[-1]).partition("\n")[0]
    # Others quote the statement, and so the payload.
    return f"{type(error).__name__} {code or ''}".rstrip()


def _descriptor(connection: Any) -> int:
    """The socket of a connection; -1 if there is none."""
    if isinstance(connection, pymysql.Connection):
        # PyMySQL has no word for it, and none to end a connection from another thread.
        sock = connection._sock  # type: ignore[attr-defined]
        return -1 if sock is None else int(sock.fileno())
    try:
        return int(connection.fileno())  # mysqlclient has one
    except (AttributeError, TypeError, ValueError):
        return -1
