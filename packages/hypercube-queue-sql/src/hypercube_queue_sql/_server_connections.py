"""Transactions on a database server, over the connections of an engine."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Engine, event
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from hypercube_queue import BackendError, QueueError
from hypercube_queue.driver import Deadline
from hypercube_queue_sql._client import Client
from hypercube_queue_sql._errors import Fault, Kind, contract_error
from hypercube_queue_sql._joined import Joined
from hypercube_queue_sql._watchdog import Watch, watchdog

R = TypeVar("R")

#: How many connections a queue has at most that was opened by URL. A call uses one for the
#: length of a round trip or two, and a pop that waits uses none.
CONNECTIONS = 15
#: The first pause before a transaction that the server undid is run again, in seconds. It
#: doubles, and is random so that two of them do not meet again.
_PAUSE = 0.005
_LONGEST_PAUSE = 0.2
#: What leaves a connection of no use.
_FATAL = frozenset({Kind.GONE, Kind.WRONG_SERVER, Kind.UNPREPARED})
#: Where the record of a pooled connection keeps when it was made, on the monotonic clock.
_MADE_AT = "hypercube_queue_sql.made_at"


class ServerConnections:
    """Runs work on the connections of an engine, each call within a time limit."""

    def __init__(
        self,
        engine: Engine,
        client: Client,
        *,
        place: str,
        limit: timedelta,
        owned: bool,
        on_wrong_server: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_wrong_server` is called when connections are found to lead to a wrong server."""
        self._engine = engine
        #: A disposed engine has another one.
        self._pool = engine.pool
        self._client = client
        self._place = place
        self._limit = limit
        self._owned = owned
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._closed = False
        self._on_wrong_server = on_wrong_server
        #: When a connection was last found to lead to a wrong server, on the monotonic clock.
        self._left_at = -math.inf
        if not event.contains(engine, "connect", _note_time):
            event.listen(engine, "connect", _note_time)
        if owned and not event.contains(engine, "do_connect", _connect_in_time):
            event.listen(engine, "do_connect", _connect_in_time)

    def close(self) -> None:
        """Close the connections that lie in the pool, and later each that comes back to it."""
        self._closed = True
        self._pool.dispose()

    def read(self, work: Callable[[DBAPICursor], R], *, end: Deadline | None = None) -> R:
        """Run `work`, which only reads, outside a transaction."""
        return self._patiently(work, end, transaction=False, changes=False)

    def write(
        self, work: Callable[[DBAPICursor], R], *, transaction: bool, end: Deadline | None = None
    ) -> R:
        """Run `work` in a transaction; without one it is a single statement."""
        return self._patiently(work, end, transaction=transaction, changes=True)

    def detached(self, seconds: float) -> Any:
        """A client's connection that is the caller's from now on, and takes no place in the pool.

        Raises what connecting does, or BackendError when it takes longer.
        """
        with watchdog.watch(seconds) as watch:
            pooled = self._checked_out(Deadline(timedelta(seconds=seconds)), watch)
        connection = pooled.driver_connection
        pooled.detach()
        return connection

    def within(self, joined: Joined, work: Callable[[DBAPICursor], R]) -> R:
        """Run `work` once in the transaction of the caller's."""
        with watchdog.watch(self._limit.total_seconds()) as watch:
            watch.cut = lambda: self._client.cut(joined.connection)
            try:
                return work(joined.cursor())
            except joined.error as error:
                # Nothing is done before the caller's commit.
                raise self._error(self._fault(error, watch), sent=False) from error

    def _patiently(
        self,
        work: Callable[[DBAPICursor], R],
        end: Deadline | None,
        *,
        transaction: bool,
        changes: bool,
    ) -> R:
        deadline = Deadline(self._limit)
        if end is not None and end.seconds_left() < deadline.seconds_left():
            deadline = end
        call = _Call(
            deadline,
            transaction=transaction or not self._client.commits_each,
            changes=changes,
        )
        pause = _PAUSE
        lost = False
        while True:
            failure = self._attempt(work, call)
            if not isinstance(failure, _Failure):
                return failure
            fault = failure.fault
            again = fault.kind is Kind.AGAIN
            undone = fault.kind in (Kind.WRONG_SERVER, Kind.UNPREPARED) or (
                fault.kind is Kind.GONE and not failure.sent
            )
            if undone and not lost:
                # Nothing was done, and another connection may lead to where it can be.
                lost = again = True
            if not again or deadline.seconds_left() <= pause:
                raise self._error(fault, sent=failure.sent) from failure.cause
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - no secret
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _attempt(self, work: Callable[[DBAPICursor], R], call: _Call) -> R | _Failure:
        """The result of `work`, or what the database had against it."""
        sent = False
        with (
            self._slot(call.deadline),
            watchdog.watch(call.deadline.seconds_left()) as watch,
        ):
            try:
                with self._connection(call.deadline, watch) as connection:
                    if not call.transaction:
                        sent = call.changes
                        return work(self._client.cursor(connection))
                    cursor = self._client.begin(connection)
                    try:
                        result = work(cursor)
                    except BaseException:
                        with suppress(self._client.error):
                            cursor.execute("ROLLBACK")
                        raise
                    sent = call.changes
                    cursor.execute("COMMIT")
                    return result
            except DBAPIError as error:
                cause: BaseException = error.orig or error
            except self._client.error as error:
                cause = error
            except AttributeError as error:
                if not self._client.lost_its_socket(error):
                    raise
                cause = error
            except SQLAlchemyError as error:
                raise BackendError(
                    f"{self._place}: no connection from the engine's pool: {error}"
                ) from error
            fault = self._fault(cause, watch)
            if fault.kind is Kind.WRONG_SERVER:
                self._leave_server()
            if fault.kind is Kind.UNPREPARED:
                self._client.stop_preparing()
            return _Failure(fault, cause, sent)

    def _leave_server(self) -> None:
        """See to it that no connection is used again that was made before."""
        self._left_at = time.monotonic()
        self._on_wrong_server()

    def _fault(self, cause: BaseException, watch: Watch) -> Fault:
        if watch.fired:
            return Fault(
                Kind.LATE,
                f"the server did not answer within {self._limit}, and its connection was cut",
            )
        return self._client.fault(cause)

    def _error(self, fault: Fault, *, sent: bool) -> QueueError:
        return contract_error(fault, self._place, sent=sent)

    # Connections

    def _slot(self, deadline: Deadline) -> AbstractContextManager[None]:
        return self._taken_slot(deadline) if self._owned else nullcontext()

    @contextmanager
    def _taken_slot(self, deadline: Deadline) -> Iterator[None]:
        if not self._slots.acquire(timeout=deadline.seconds_left()):
            raise BackendError(
                f"{self._place}: other threads kept all {CONNECTIONS} connections busy for as long "
                "as the call may take"
            ) from TimeoutError(f"no connection within {self._limit}")
        try:
            yield
        finally:
            self._slots.release()

    @contextmanager
    def _connection(self, deadline: Deadline, watch: Watch) -> Iterator[Any]:
        pooled = self._checked_out(deadline, watch)
        connection = pooled.driver_connection
        watch.cut = lambda: self._client.cut(connection)
        undo = None
        try:
            undo = self._client.take(connection)
            yield connection
        except BaseException as error:
            if not self._survives(error):
                undo = None
                pooled.invalidate()
            raise
        finally:
            if undo is not None:
                try:
                    undo()
                except self._client.error:
                    # Rather none than one that commits where its owner does not expect it.
                    pooled.invalidate()
            watch.cut = None
            self._give_back(pooled)

    def _survives(self, error: BaseException) -> bool:
        """Whether the connection of a failed call can be used on."""
        if isinstance(error, self._client.error):
            return self._client.fault(error).kind not in _FATAL
        # A call that was interrupted may not have read its answer.
        return isinstance(error, QueueError)

    def _checked_out(self, deadline: Deadline, watch: Watch) -> PoolProxiedConnection:
        while True:
            pooled = self._pooled(deadline, watch)
            is_left = pooled.info.get(_MADE_AT, -math.inf) < self._left_at
            # After a restart of the server all that lie in the pool are dead.
            if not is_left and not self._client.is_dead(pooled.driver_connection):
                return pooled
            pooled.invalidate()
            pooled.close()

    def _pooled(self, deadline: Deadline, watch: Watch) -> PoolProxiedConnection:
        """A connection of the pool's; one that is made anew may take the time limit."""
        if not self._owned:
            # It may wait for its turn as long as the application has said.
            return _in_time(self._opened, deadline, self._no_connection, _give_back_late)
        _making.call = _Making(self._client, deadline, watch, self._no_connection)
        try:
            return self._opened()
        finally:
            _making.call = None

    def _no_connection(self) -> BackendError:
        return BackendError(
            f"{self._place}: no connection came about within {self._limit}; does the server "
            "answer, and has the engine's pool one to spare?"
        )

    def _opened(self) -> PoolProxiedConnection:
        try:
            return self._engine.raw_connection()
        except (SQLAlchemyError, self._client.error, QueueError):
            raise
        except Exception as error:
            # Options that a library refuses, or what it lacks, in exceptions of any kind.
            raise BackendError(
                f"{self._place}: no connection came about, {type(error).__name__}: {error}"
            ) from error

    def _give_back(self, pooled: PoolProxiedConnection) -> None:
        pooled.close()
        # Looked at afterwards: `close` may have emptied the pool just before.
        if self._closed:
            self._pool.dispose()


def _note_time(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info[_MADE_AT] = time.monotonic()


class _Making(NamedTuple):
    """For whom a connection is made, if it has to be."""

    client: Client
    deadline: Deadline
    watch: Watch
    too_late: Callable[[], BackendError]


class _PresentCall(threading.local):
    """What a thread makes a connection for."""

    call: _Making | None = None


_making = _PresentCall()


def _connect_in_time(
    dialect: Dialect, _record: object, arguments: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Connect within the time of the present call: no library bounds all that it waits for.

    SQLAlchemy asks the server about itself on a first connection, so that one can be cut, too.
    """
    call = _making.call
    if call is None:
        return None  # SQLAlchemy connects as it always does
    connection = _in_time(
        lambda: dialect.connect(*arguments, **options), call.deadline, call.too_late, _close_late
    )
    call.watch.cut = lambda: call.client.cut(connection)
    return connection


def _in_time(
    make: Callable[[], R],
    deadline: Deadline,
    too_late: Callable[[], BackendError],
    discard: Callable[[Future[R]], None],
) -> R:
    """The result of `make` in a thread of its own; what comes when time is over is discarded."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=run, name="hypercube-connect", daemon=True).start()
    try:
        return future.result(deadline.seconds_left())
    except BaseException as error:
        if future.done() and not future.cancelled() and future.exception() is error:
            raise
        future.add_done_callback(discard)
        if isinstance(error, TimeoutError):
            raise too_late() from error
        raise


def _give_back_late(late: Future[PoolProxiedConnection]) -> None:
    """Nobody waits for the connection any more, and its pool may have been emptied."""
    if late.exception() is None:
        late.result().invalidate()
        late.result().close()


def _close_late(late: Future[Any]) -> None:
    """The same for a connection that no pool has yet."""
    if late.exception() is None:
        late.result().close()


class _Call(NamedTuple):
    deadline: Deadline
    transaction: bool
    #: Whether its outcome matters.
    changes: bool


class _Failure(NamedTuple):
    fault: Fault
    cause: BaseException
    #: Whether it may have been carried out all the same.
    sent: bool
