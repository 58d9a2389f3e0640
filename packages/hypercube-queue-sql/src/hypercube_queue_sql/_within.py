"""The way from what a caller has to the connection of a database client beneath it."""

from __future__ import annotations

from typing import TypeAlias, TypeGuard

from sqlalchemy import Connection
from sqlalchemy.exc import InvalidRequestError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session

from hypercube_queue import BackendError, InvalidArgument

#: What of SQLAlchemy's a push can join.
Joinable: TypeAlias = Session | scoped_session[Session] | Connection


def is_sqlalchemy(connection: object) -> TypeGuard[Joinable]:
    """Whether it is a Session or a Connection of SQLAlchemy's."""
    return isinstance(connection, Session | scoped_session | Connection)


def dbapi_connection(connection: Joinable) -> object:
    """The client's connection in the transaction of a Session or Connection, begun if it is not.

    A Session is not flushed. The texts of SQLAlchemy's errors are left out, since they can
    show the parameters of earlier statements (ERR-6).
    """
    try:
        if isinstance(connection, Session | scoped_session):
            connection = connection.connection()
        if not connection.in_transaction():
            # Else the caller's commit would have nothing to commit.
            connection.begin()
        joined = connection.connection.dbapi_connection
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
    return joined
