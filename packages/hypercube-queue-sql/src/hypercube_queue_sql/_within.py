"""The way from what a caller has to the connection of a database client beneath it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, Union

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import InvalidRequestError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from hypercube_queue import BackendError, InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

#: What has a connection of SQLAlchemy's.
Sessions: TypeAlias = Union["Session", "scoped_session[Session]"]


def is_sqlalchemy(connection: object) -> TypeGuard[Connection | Sessions]:
    """Whether it is a Session or a Connection of SQLAlchemy's."""
    return isinstance(connection, Connection) or _is_session(connection)


class PooledConnection:
    """A client's connection as an engine of SQLAlchemy's has it in its pool."""

    def __init__(self, pooled: PoolProxiedConnection, engine: Engine) -> None:
        self.pooled = pooled
        self.engine = engine

    @property
    def connection(self) -> object:
        """The client's own connection, or SQLAlchemy's synchronous face of it."""
        return self.pooled.dbapi_connection


def begun(connection: Connection | Sessions) -> PooledConnection:
    """What is in the transaction of a Session or Connection, which is begun if it is not.

    A Session is not flushed.
    """
    with _translated():
        joined = connection if isinstance(connection, Connection) else connection.connection()
        if not joined.in_transaction():
            # Else the caller's commit would have nothing to commit.
            joined.begin()
        return PooledConnection(joined.connection, joined.engine)


@contextmanager
def lent(connection: Connection | Sessions) -> Iterator[PooledConnection]:
    """What a Session or Connection uses, or would use if its transaction began.

    No transaction is open afterwards that was not before.
    """
    with _translated():
        bind: Connection | Engine
        if isinstance(connection, Connection):
            bind = connection
        else:
            session: Session = connection() if callable(connection) else connection
            bind = session.connection() if session.in_transaction() else session.get_bind()
        if isinstance(bind, Engine):
            pooled, engine = bind.raw_connection(), bind
        else:
            pooled, engine = bind.connection, bind.engine
    try:
        yield PooledConnection(pooled, engine)
    finally:
        if isinstance(bind, Engine):
            pooled.close()
        elif not bind.in_transaction():
            # The client has begun one with its first statement, and SQLAlchemy knows of none.
            with suppress(Exception):  # whatever ended it, it is no more
                pooled.rollback()


@contextmanager
def _translated() -> Iterator[None]:
    """Raises SQLAlchemy's errors as those of the contract.

    Their texts are left out, since they can show the parameters of earlier statements (ERR-6).
    """
    try:
        yield
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


def _is_session(connection: object) -> TypeGuard[Sessions]:
    # The ORM takes long to import, and whoever has a Session has imported it.
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(connection, orm.Session | orm.scoped_session)
