"""Django's connections."""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from hypercube_jobs._transactions._late import Late


def knows(connection: object) -> bool:
    """`django.db.connection`, or `django.db.connections[alias]`."""
    return isinstance(connection, BaseDatabaseWrapper | ConnectionProxy)


def is_async(_connection: object) -> bool:
    """None of them is."""
    return False


def plain(connection: object) -> object | None:
    """The client library's own connection within `atomic()`, else None: each query commits."""
    wrapper = _wrapper(connection)
    if not wrapper.in_atomic_block and wrapper.get_autocommit():
        return None
    wrapper.ensure_connection()
    beneath: object = wrapper.connection
    return beneath


def after_commit(connection: object, late: Late) -> bool:
    """See `_connections.after_commit`. A rolled back savepoint takes it along."""
    wrapper = _wrapper(connection)
    if not wrapper.in_atomic_block and wrapper.get_autocommit():
        return False
    transaction.on_commit(late.call, using=wrapper.alias)
    return True


def _wrapper(connection: object) -> Any:
    if isinstance(connection, ConnectionProxy):
        return connections[connection.alias]
    return connection
