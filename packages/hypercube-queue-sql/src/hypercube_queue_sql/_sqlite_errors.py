"""From what sqlite3 raises to the errors of the contract: the one place for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from hypercube_queue import BackendError, CapacityExceeded

#: Primary result codes of SQLite, and what to tell people. A code that is not here is told in
#: SQLite's own words.
_SQLITE_TEXTS = {
    sqlite3.SQLITE_PERM: "this process may not access it",
    sqlite3.SQLITE_BUSY: "another connection kept it locked for as long as the call may take; "
    "look for a transaction that was left open",
    sqlite3.SQLITE_LOCKED: "another connection kept a table locked for as long as the call may "
    "take; look for a transaction that was left open",
    sqlite3.SQLITE_NOMEM: "SQLite is out of memory",
    sqlite3.SQLITE_READONLY: "it cannot be written: the file or its folder is read-only",
    sqlite3.SQLITE_INTERRUPT: "the statement was interrupted",
    sqlite3.SQLITE_IOERR: "reading or writing the file failed; look at the disk",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
    sqlite3.SQLITE_FULL: "the disk is full, or the database has reached its largest size",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: does its folder exist, and may this "
    "process write there?",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database, or it is encrypted",
}
#: What only a person can repair.
_SQLITE_PERMANENT = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)
#: Nothing was stored, and room can be made.
_SQLITE_CAPACITY = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM})


def sqlite_code(error: BaseException) -> int | None:
    """The primary result code, if SQLite rather than the module in front of it failed."""
    extended = getattr(error, "sqlite_errorcode", None)
    return None if extended is None else extended & 0xFF


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Errors of database clients come out as errors of the contract; `place` names the database.

    The cause is the client's own exception: SQLAlchemy's wrapper around it shows parameters.
    """
    try:
        yield
    except DBAPIError as error:
        raise translation(error.orig or error, place) from error.orig
    except sqlite3.Error as error:
        raise translation(error, place) from error
    except SQLAlchemyError as error:
        raise BackendError(f"{place}: no connection from the engine's pool: {error}") from error


def translation(
    error: BaseException, place: str, *, outcome_unknown: bool = False
) -> BackendError | CapacityExceeded:
    """What the contract calls an error of a database client."""
    code = sqlite_code(error)
    text = f"{place}: {_SQLITE_TEXTS.get(code, error) if code is not None else error}"
    if code in _SQLITE_CAPACITY and not outcome_unknown:
        return CapacityExceeded(text)
    return BackendError(text, outcome_unknown=outcome_unknown, permanent=code in _SQLITE_PERMANENT)
