"""The driver object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeAlias

from sqlalchemy import Engine
from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import (
    DeadLetter,
    Guarantees,
    InvalidArgument,
    Message,
    MessageTooLarge,
    QueueError,
    QueueStats,
)
from hypercube_queue.driver import (
    HEADROOM_BYTES,
    MAX_POP,
    Closing,
    Deadline,
    Gate,
    PushBatch,
    PushItem,
    SettlementBatch,
    checked_count,
    checked_name,
    checked_poll_timeout,
    checked_queue_name,
    checked_size,
    checked_visibility,
    checked_wait,
    copy_error,
    from_microseconds,
    to_microseconds,
)
from hypercube_queue_sql._claims import Claims
from hypercube_queue_sql._dead_letters import checked_cursor, dead_letter
from hypercube_queue_sql._delivery import Settled, SQLDelivery
from hypercube_queue_sql._dialects import dialect_for
from hypercube_queue_sql._errors import ConnectionLost
from hypercube_queue_sql._tables import DEFAULT_TABLE

#: How long `close` waits for running calls before it closes idle connections.
_LEAVE = timedelta(seconds=1)

Settle: TypeAlias = Callable[[DBAPICursor, Sequence[Settled]], list[Settled]]


class SQLQueue(Closing):
    """A queue in two tables of a database, through an engine of SQLAlchemy's.

    The engine stays the caller's: to configure, and to dispose of after `close`. Nothing is
    contacted before the first call. `table` and `schema` say where messages are kept; queues
    with the same see the same messages. With `create_tables` the first call creates what is
    missing; otherwise `create_tables()` or a migration does, see `metadata`.

    `poll_timeout` is how long a pop waits by default, `visibility_timeout` how long a
    delivery owns a message that names no time of its own, `operation_timeout` how long any
    call may take beyond its `wait`, most of all for a lock that somebody else holds.

    A waiting pop notices at once what this process pushes, retries, releases or redrives on
    the same database. What others store it notices within milliseconds on PostgreSQL, else
    within half a second, and sooner where messages come often (POP-7).

    In a forked child every call raises BackendError, with an in-memory database QueueClosed;
    a queue that was opened by URL opens its own connections there (LIFE-4).
    """

    def __init__(
        self,
        engine: Engine,
        *,
        table: str = DEFAULT_TABLE,
        schema: str | None = None,
        create_tables: bool = False,
        poll_timeout: timedelta = timedelta(seconds=1),
        visibility_timeout: timedelta = timedelta(seconds=30),
        operation_timeout: timedelta = timedelta(seconds=30),
        _owned: bool = False,
    ) -> None:
        if not isinstance(engine, Engine):
            raise InvalidArgument(
                f"engine is an sqlalchemy.Engine, not {type(engine).__name__}; open_queue takes a "
                "URL"
            )
        self._poll_timeout = checked_poll_timeout(poll_timeout)
        self._visibility_us = to_microseconds(checked_visibility(visibility_timeout))
        self._operation_timeout = checked_visibility(operation_timeout, field="operation_timeout")
        self._dialect = dialect_for(engine)(
            engine,
            table=table,
            schema=schema,
            create_tables=create_tables,
            operation_timeout=self._operation_timeout,
            owned=_owned,
        )
        self._gate = Gate("SQL queue", in_child=self._dialect.in_child)
        self._claims = Claims(self._dialect, self._gate, self, self._visibility_us)

    @property
    def guarantees(self) -> Guarantees:
        return self._dialect.guarantees

    def create_tables(self) -> None:
        """Create the tables that are missing; several processes may do so at once.

        Raises BackendError, also when the tables have a layout of another release.
        """
        with self._gate:
            self._dialect.create_tables()

    def creation_statements(self) -> list[str]:
        """The statements that `create_tables` creates the tables with, for a migration of yours.

        Contacts nobody. Tables that were made without a layout version get the present one at
        the first call.
        """
        with self._gate:
            return self._dialect.creation_statements()

    def create_nothing(self) -> None:
        """From now on raise BackendError where the file or the tables would have to be created.

        For tools that look after a queue, and must not make one of a mistyped name.
        """
        self._dialect.create_nothing()

    # Push

    def push(self, *messages: Message) -> None:
        with self._gate:
            batch = PushBatch(messages, self.guarantees)
            if batch.items:
                with _failing(batch):
                    end = Deadline(self._operation_timeout)
                    self._fail_too_large(batch, end)
                    retained = self._dialect.write(
                        lambda cursor: self._dialect.insert(cursor, batch.items),
                        items=batch.items,
                        end=end,
                    )
                    for item in retained:
                        batch.fail_existing(item)
                    self._stored(item.queue_name for item in batch.items)
            batch.raise_failures()

    # Pop

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self.guarantees)
            checked_count("max_messages", max_messages, at_most=MAX_POP)
            waiting = checked_wait(wait, self._poll_timeout)
            return self._claims.pop(queue_name, max_messages, waiting, self._operation_timeout)

    # Settlement

    def ack(self, *messages: Message) -> None:
        with self._gate:
            self._settle(self._settlement("ack", messages), self._dialect.ack)

    def retry(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("retry", messages, contents=True, delay=True)
            self._settle(batch, self._dialect.retry, stores=True)

    def dead_letter(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("dead_letter", messages, contents=True)
            self._settle(batch, self._dialect.dead_letter)

    # Capabilities

    @property
    def visibility_timeout(self) -> timedelta:
        return from_microseconds(self._visibility_us)

    def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        with self._gate:
            batch = SettlementBatch(
                "extend_visibility",
                messages,
                SQLDelivery,
                self,
                self.guarantees,
                extension=extension,
            )

            def extend(cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]:
                return self._dialect.extend_visibility(cursor, items, to_microseconds(extension))

            self._settle(batch, extend)

    def release(self, *messages: Message) -> None:
        with self._gate:
            self._settle(self._settlement("release", messages), self._dialect.release, stores=True)

    def redrive(self, queue_name: str, count: int) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self.guarantees)
            checked_count("count", count)
            moved = self._dialect.write(
                lambda cursor: self._dialect.redrive(cursor, queue_name, count)
            )
            self._tell(queue_name, moved)
            return moved

    def queues(self) -> list[str]:
        with self._gate:
            return sorted(_readable(self._dialect.read(self._dialect.queues)))

    def stats(self, queue_name: str) -> QueueStats:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self.guarantees)
            ready, delayed, in_flight, dead = self._dialect.read(
                lambda cursor: self._dialect.stats(cursor, queue_name)
            )
            return QueueStats(queue_name, ready, delayed, in_flight, dead)

    def dead_letters(
        self, queue_name: str, limit: int, before: str | None = None
    ) -> list[DeadLetter]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self.guarantees)
            checked_count("limit", limit, at_most=MAX_POP)
            place = None if before is None else checked_cursor(before)
            rows = self._dialect.read(
                lambda cursor: self._dialect.dead_letters(cursor, queue_name, limit, place)
            )
            return [dead_letter(row, queue_name) for row in rows]

    def redrive_ids(self, queue_name: str, *ids: str) -> int:
        with self._gate:
            moved = self._for_dead(queue_name, ids, self._dialect.redrive_ids)
            self._tell(queue_name, moved)
            return moved

    def forget(self, queue_name: str, *ids: str) -> int:
        with self._gate:
            return self._for_dead(queue_name, ids, self._dialect.forget)

    def push_within(self, connection: object, *messages: Message) -> None:
        """Push in the transaction of a Session, an SQLAlchemy Connection or a plain connection.

        As in `TransactionalPusher`; a plain connection is one of psycopg, psycopg2, PyMySQL,
        mysqlclient or sqlite3. One into another database is InvalidArgument for each message,
        and the text names both databases. A Session is not flushed; a Connection without a
        transaction begins one, as for any statement. After a BackendError or CapacityExceeded roll
        back: some of the messages may be in the transaction. Waiting pops find the messages
        within a second of the commit on PostgreSQL, else within half a second.
        """
        with self._gate:
            self._dialect.check_connection(connection)
            batch = PushBatch(messages, self.guarantees)
            if batch.items:
                with _failing(batch):
                    self._fail_too_large(batch, Deadline(self._operation_timeout))
                    retained = self._dialect.within(
                        connection, lambda cursor: self._insert_within(cursor, batch.items)
                    )
                    for item in retained:
                        batch.fail_existing(item)
            batch.raise_failures()

    def shares_database(self, connection: object) -> bool:
        """Whether `connection` leads to the database that the queue's table is in.

        As in `TransactionalPusher`. A server is asked once for each connection. Raises
        BackendError if it does not answer within the `operation_timeout`.
        """
        with self._gate:
            return self._dialect.shares_database(connection)

    def _insert_within(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        # In one order for all, so that two transactions with the same ids cannot deadlock.
        ordered = sorted(items, key=lambda item: (item.queue_name, item.id))
        retained = self._dialect.insert_within(cursor, ordered)
        for name, count in Counter(item.queue_name for item in items).items():
            self._dialect.stored_within(cursor, name, count)
        return retained

    # Lifecycle

    def close(self) -> None:
        if self._gate.close():
            self._dialect.wakeups.wake_all()
            self._gate.wait_until_empty(_LEAVE)
            self._dialect.close()

    # Within

    def _settlement(
        self,
        operation: str,
        messages: tuple[Message, ...],
        *,
        contents: bool = False,
        delay: bool = False,
    ) -> SettlementBatch[SQLDelivery]:
        return SettlementBatch(
            operation,
            messages,
            SQLDelivery,
            self,
            self.guarantees,
            contents=contents,
            delay=delay,
        )

    def _settle(
        self, batch: SettlementBatch[SQLDelivery], settle: Settle, *, stores: bool = False
    ) -> None:
        """Settle the batch; with `stores` it becomes visible to somebody."""
        if batch.items:
            with _failing(batch):
                end = Deadline(self._operation_timeout)
                self._fail_too_large(batch, end, HEADROOM_BYTES)
                self._settle_all(batch, settle, end)
                if stores:
                    self._stored(item.delivery.queue_name for item in batch.items)
        batch.raise_failures()

    def _fail_too_large(
        self,
        batch: PushBatch | SettlementBatch[SQLDelivery],
        end: Deadline,
        headroom: int = 0,
    ) -> None:
        """Take out of the batch what only the server knows to be too large (PUSH-7)."""
        limit = self._dialect.max_message_bytes(end)
        if limit is None:
            return
        for position in reversed(range(len(batch.items))):
            item = batch.items[position]
            try:
                checked_size(item.payload, item.extra, limit + headroom)
            except MessageTooLarge as error:
                batch.fail(item, error)
                del batch.items[position]

    def _settle_all(
        self, batch: SettlementBatch[SQLDelivery], settle: Settle, end: Deadline
    ) -> None:
        def once() -> list[Settled]:
            return self._dialect.write(
                lambda cursor: settle(cursor, batch.items), items=batch.items, end=end
            )

        try:
            for item in once():
                batch.fail_stale(item)
        except ConnectionLost as error:
            # The token makes a second time harmless. Whoever does not own a message now may
            # have settled it the first time; and so may whoever meets another error.
            lost = error
            try:
                stale = once()
            except QueueError:
                raise lost from lost.__cause__
            batch.fail_all(stale, lambda: copy_error(lost))

    def _stored(self, queue_names: Iterable[str]) -> None:
        for name, count in Counter(queue_names).items():
            self._tell(name, count)

    def _tell(self, queue_name: str, count: int) -> None:
        if count:
            self._dialect.stored(queue_name, count)

    def _for_dead(
        self,
        queue_name: str,
        ids: tuple[str, ...],
        change: Callable[[DBAPICursor, str, Sequence[str]], int],
    ) -> int:
        queue_name = checked_queue_name(queue_name, self.guarantees)
        names = [checked_name("id", each, may_be_empty=False) for each in ids]
        if not names:
            return 0
        return self._dialect.write(lambda cursor: change(cursor, queue_name, names))


@contextmanager
def _failing(batch: PushBatch | SettlementBatch[SQLDelivery]) -> Iterator[None]:
    """An error within is the failure of each item that has not failed yet (ERR-4)."""
    try:
        yield
    except QueueError as error:
        original = error
        batch.fail_all(batch.items, lambda: copy_error(original))


def _readable(names: Iterable[object]) -> Iterator[str]:
    """The names under which a queue can be asked for; nobody's push wrote the others."""
    for name in names:
        if isinstance(name, bytes):
            with suppress(UnicodeDecodeError, InvalidArgument):
                yield checked_name("queue_name", name.decode(), may_be_empty=False)
