"""Django's connections, and the threads that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
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


def in_transaction() -> bool:
    """Whether this thread has a transaction open that its statements are part of.

    Django may be imported, by a library say, and never be set up; then there is none.
    """
    if not settings.configured:
        return False
    return any(each.in_atomic_block for each in connections.all(initialized_only=True))


def run_to_end(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine on an event loop, with the connections of this thread."""

    async def run() -> None:
        await make()

    async_to_sync(run)()


async def run_in_thread(function: Callable[[], None], context: Context) -> None:
    """Run a function in the thread whose connections asynchronous code uses."""
    await sync_to_async(context.run, thread_sensitive=True)(function)


def _wrapper(connection: object) -> Any:
    if isinstance(connection, ConnectionProxy):
        return connections[connection.alias]
    return connection
