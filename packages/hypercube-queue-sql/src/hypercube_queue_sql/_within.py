"""The way from what a caller has to the connection of a database client beneath it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, Union

from sqlalchemy import Connection
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import InvalidRequestError, PendingRollbackError, SQLAlchemyError

from hypercube_queue import BackendError, InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

#: What has a connection of SQLAlchemy's.
Sessions: TypeAlias = Union["Session", "scoped_session[Session]"]


def is_sqlalchemy(connection: object) -> TypeGuard[Connection | Sessions]:
    """Whether it is a Session or a Connection of SQLAlchemy's."""
    return isinstance(connection, Connection) or _is_session(connection)


def dbapi_connection(connection: Connection | Sessions) -> object:
    """The client's connection in the transaction of a Session or Connection, begun if it is not.

    A Session is not flushed. The texts of SQLAlchemy's errors are left out, since they can
    show the parameters of earlier statements (ERR-6).
    """
    try:
        joined = connection if isinstance(connection, Connection) else connection.connection()
        if not joined.in_transaction():
            # Else the caller's commit would have nothing to commit.
            joined.begin()
        beneath = joined.connection.dbapi_connection
    except PendingRollbackError:
        raise BackendError(
            "the caller's transaction has failed before: roll it back, and begin another"
        ) from None
    except InvalidRequestError as error:
        raise InvalidArgument(
            f"connection cannot be used ({type(error).__name__}): pass one that is open, or a "
            "Session that knows its engine"
        ) from None
    except SQLAlchemyError as error:
        raise BackendError(
            f"the caller's connection failed with {type(error).__name__}"
        ) from getattr(error, "orig", None)
    return beneath


def sqlalchemy_dialect(connection: Connection | Sessions) -> Dialect:
    """SQLAlchemy's dialect of a connection that `dbapi_connection` took."""
    bound = connection if isinstance(connection, Connection) else connection.connection()
    return bound.dialect


def _is_session(connection: object) -> TypeGuard[Sessions]:
    # The ORM takes long to import, and whoever has a Session has imported it.
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(connection, orm.Session | orm.scoped_session)
