"""SQLAlchemy's connections and sessions, synchronous and asynchronous."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, event
from sqlalchemy.engine import RootTransaction
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from hypercube_jobs._errors import NotSupported
from hypercube_jobs._transactions._late import Late
from hypercube_queue import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction


def knows(connection: object) -> bool:
    """Connection, Session, scoped_session, and their asynchronous twins."""
    return isinstance(connection, Connection) or _is_session(connection) or is_async(connection)


def is_async(connection: object) -> bool:
    """AsyncConnection, AsyncSession and async_scoped_session."""
    asyncio = sys.modules.get("sqlalchemy.ext.asyncio")
    return asyncio is not None and isinstance(
        connection, asyncio.AsyncConnection | asyncio.AsyncSession | asyncio.async_scoped_session
    )


def plain(connection: object) -> object | None:
    """A driver takes all of them, and begins the transaction if it must."""
    present: object = _present(connection)
    return present


def after_commit(connection: object, late: Late) -> bool:
    """See `_connections.after_commit`. A rolled back savepoint takes it along."""
    synchronous = _synchronous(connection)
    if not synchronous.in_transaction():
        return False
    if isinstance(synchronous, Connection):
        _watch_connection(synchronous).waiting.append(late)
    else:
        _watch_session(synchronous).add(late, _open_transactions(synchronous))
    return True


def _is_session(connection: object) -> bool:
    # The ORM takes long to import, and whoever has a Session has imported it.
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(connection, orm.Session | orm.scoped_session)


def _present(connection: Any) -> Any:
    """The session that a scoped one stands for now."""
    return connection() if callable(connection) else connection


def _synchronous(connection: Any) -> Connection | Session:
    """What fires the events of a connection that `knows` knows."""
    connection = _present(connection)
    if not is_async(connection):
        return connection  # type: ignore[no-any-return]  # a Connection or a Session
    asyncio = sys.modules["sqlalchemy.ext.asyncio"]
    beneath: Connection | Session | None
    if isinstance(connection, asyncio.AsyncConnection):
        beneath = connection.sync_connection
    else:
        beneath = connection.sync_session
    if beneath is None:
        raise InvalidArgument("connection has not been started: `async with` it first")
    return beneath


def _do(some: list[Late]) -> None:
    for late in some:
        # Asynchronous connections commit on the thread of the event loop, in a greenlet. Without
        # that library, which only they need, asking would raise.
        if "greenlet" in sys.modules and in_greenlet():
            await_only(late.call_async())
        else:
            late.call()


# Connections


class _Committing(RootTransaction):
    """A transaction that tells when it has committed; the event of that name comes before."""

    __slots__ = ()

    def commit(self) -> None:
        watch = _connection_watches.pop(self, None)
        super().commit()
        if watch is not None:
            _do(watch.waiting)


class _ConnectionWatch:
    """What is to be done after one transaction, and where its open savepoints begin."""

    def __init__(self) -> None:
        self.waiting: list[Late] = []
        self._savepoints: list[int] = []

    def savepoint(self) -> None:
        self._savepoints.append(len(self.waiting))

    def released(self) -> None:
        if self._savepoints:
            self._savepoints.pop()

    def rolled_back(self) -> None:
        # A savepoint that is not here is older than all that is.
        start = self._savepoints.pop() if self._savepoints else 0
        del self.waiting[start:]


#: A transaction that is rolled back, or forgotten, takes its watch along.
_connection_watches: WeakKeyDictionary[RootTransaction, _ConnectionWatch] = WeakKeyDictionary()


def _watch_connection(connection: Connection) -> _ConnectionWatch:
    transaction = connection.get_transaction()
    watch = _connection_watches.get(transaction) if transaction is not None else None
    if watch is not None:
        return watch
    if type(transaction) is not RootTransaction and type(transaction) is not _Committing:
        raise NotSupported(
            f"nothing tells when a {type(transaction).__name__} commits; dispatch after it has"
        )
    # Whoever commits, a Session or a `with` block too, calls this method of the object.
    transaction.__class__ = _Committing
    watch = _connection_watches[transaction] = _ConnectionWatch()
    if not event.contains(connection, "savepoint", _on_savepoint):
        event.listen(connection, "savepoint", _on_savepoint)
        event.listen(connection, "release_savepoint", _on_release_savepoint)
        event.listen(connection, "rollback_savepoint", _on_rollback_savepoint)
    return watch


def _on_savepoint(connection: Connection, _name: str) -> None:
    if watch := _present_watch(connection):
        watch.savepoint()


def _on_release_savepoint(connection: Connection, _name: str, _context: None) -> None:
    if watch := _present_watch(connection):
        watch.released()


def _on_rollback_savepoint(connection: Connection, _name: str, _context: None) -> None:
    if watch := _present_watch(connection):
        watch.rolled_back()


def _present_watch(connection: Connection) -> _ConnectionWatch | None:
    transaction = connection.get_transaction()
    return None if transaction is None else _connection_watches.get(transaction)


# Sessions


class _SessionWatch:
    """What is to be done after the present transaction of a session."""

    def __init__(self) -> None:
        #: With the transactions, savepoints and the outermost, that each was said in.
        self._waiting: list[tuple[Late, list[SessionTransaction]]] = []
        self._committed: list[Late] = []

    def add(self, late: Late, within: list[SessionTransaction]) -> None:
        self._waiting.append((late, within))

    def rolled_back(self, transaction: SessionTransaction) -> None:
        self._waiting = [each for each in self._waiting if transaction not in each[1]]

    def committed(self) -> None:
        self._committed += [late for late, _ in self._waiting]
        self._waiting.clear()

    def take_committed(self) -> list[Late]:
        taken, self._committed = self._committed, []
        # A session that is closed rolls back, and tells nobody but by its end.
        self._waiting.clear()
        return taken


_session_watches: WeakKeyDictionary[Session, _SessionWatch] = WeakKeyDictionary()


def _watch_session(session: Session) -> _SessionWatch:
    watch = _session_watches.get(session)
    if watch is None:
        watch = _session_watches[session] = _SessionWatch()
        event.listen(session, "after_commit", _on_commit)
        event.listen(session, "after_soft_rollback", _on_soft_rollback)
        event.listen(session, "after_transaction_end", _on_end)
    return watch


def _open_transactions(session: Session) -> list[SessionTransaction]:
    present = session.get_nested_transaction() or session.get_transaction()
    within = []
    while present is not None:
        within.append(present)
        present = present.parent
    return within


def _on_commit(session: Session) -> None:
    # It is fired for a savepoint, too, which is still the session's then.
    if session.get_nested_transaction() is None:
        _session_watches[session].committed()


def _on_soft_rollback(session: Session, transaction: SessionTransaction) -> None:
    _session_watches[session].rolled_back(transaction)


def _on_end(session: Session, transaction: SessionTransaction) -> None:
    # Only now may the session be used again, which what is done may want to.
    if transaction.parent is None:
        _do(_session_watches[session].take_committed())
