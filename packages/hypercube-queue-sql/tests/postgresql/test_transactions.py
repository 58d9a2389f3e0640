"""Pushing in a transaction of the caller's, through whatever he has of it."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, Protocol

import psycopg
import psycopg2
import psycopg2.extras
import pytest
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)
from tools.backends import exclusive, server
from tools.backends.instance import Server
from tools.backends.relay import Relay
from tools.script import started

from hypercube_queue import (
    AlreadyExists,
    AsyncQueue,
    BackendError,
    BatchError,
    InvalidArgument,
    Message,
    QueueError,
    open_queue,
)
from hypercube_queue_sql import SQLQueue

pytestmark = pytest.mark.server("postgres")

NOTHING = timedelta(0)


def _payloads(queue: SQLQueue) -> list[bytes]:
    """What is visible."""
    return sorted(each.payload for each in queue.pop("work", 100, wait=NOTHING))


def _failed(error: BatchError) -> list[tuple[int, type]]:
    return [(failure.index, type(failure.error)) for failure in error.failed]


def _dsn(**options: object) -> str:
    return server("postgres").url("postgresql", **options)


class Way(Protocol):
    """A caller's connection, whatever it is made of, in a transaction that has begun."""

    def push(self, *messages: Message) -> None: ...
    def run(self, statement: str) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class _Joining:
    """A way by statements of the synchronous kind."""

    def __init__(self, queue: SQLQueue, connection: Any, run: Callable[[str], object]) -> None:
        self._queue = queue
        self._connection = connection
        self._run = run

    def push(self, *messages: Message) -> None:
        self._queue.push_within(self._connection, *messages)

    def run(self, statement: str) -> None:
        self._run(statement)

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


class _JoiningAsync:
    """A way by coroutines, each run to its end on a loop of the test's."""

    def __init__(
        self, runner: asyncio.Runner, queue: SQLQueue, connection: AsyncConnection | AsyncSession
    ) -> None:
        self._runner = runner
        self._queue = AsyncQueue(queue)
        self._connection = connection

    def push(self, *messages: Message) -> None:
        self._runner.run(self._queue.push_within(self._connection, *messages))

    def run(self, statement: str) -> None:
        self._runner.run(self._connection.execute(text(statement)))

    def commit(self) -> None:
        self._runner.run(self._connection.commit())

    def rollback(self) -> None:
        self._runner.run(self._connection.rollback())


@contextmanager
def _sqlalchemy(queue: SQLQueue, library: str, kind: type) -> Iterator[Way]:
    engine = create_engine(server("postgres").url(f"postgresql+{library}"))
    with kind(engine) if kind is Session else engine.connect() as connection:
        yield _Joining(queue, connection, lambda statement: connection.execute(text(statement)))
    engine.dispose()


@contextmanager
def _plain(queue: SQLQueue, library: str) -> Iterator[Way]:
    connect = psycopg.connect if library == "psycopg" else psycopg2.connect
    with closing(connect(_dsn())) as connection:
        yield _Joining(queue, connection, lambda statement: connection.cursor().execute(statement))


@contextmanager
def _asynchronous(queue: SQLQueue, library: str, kind: type) -> Iterator[Way]:
    with asyncio.Runner() as runner:
        engine = create_async_engine(server("postgres").url(f"postgresql+{library}"))
        connection = AsyncSession(engine) if kind is AsyncSession else engine.connect()
        runner.run(connection.__aenter__())
        try:
            yield _JoiningAsync(runner, queue, connection)
        finally:
            runner.run(connection.close())
            runner.run(engine.dispose())


_WAYS: dict[str, Callable[[SQLQueue], Any]] = {
    "Connection": lambda queue: _sqlalchemy(queue, "psycopg", Engine),
    "Session": lambda queue: _sqlalchemy(queue, "psycopg", Session),
    "Connection of psycopg2": lambda queue: _sqlalchemy(queue, "psycopg2", Engine),
    "psycopg": lambda queue: _plain(queue, "psycopg"),
    "psycopg2": lambda queue: _plain(queue, "psycopg2"),
    "AsyncConnection of psycopg": lambda queue: _asynchronous(queue, "psycopg", AsyncConnection),
    "AsyncSession of psycopg": lambda queue: _asynchronous(queue, "psycopg", AsyncSession),
    "AsyncConnection of asyncpg": lambda queue: _asynchronous(queue, "asyncpg", AsyncConnection),
    "AsyncSession of asyncpg": lambda queue: _asynchronous(queue, "asyncpg", AsyncSession),
}


@pytest.fixture(params=_WAYS.values(), ids=list(_WAYS))
def way(request: pytest.FixtureRequest, queue: SQLQueue) -> Iterator[Way]:
    """Each of the ways."""
    with request.param(queue) as opened:
        yield opened


def test_messages_are_there_if_and_only_if_the_transaction_commits(
    way: Way, queue: SQLQueue
) -> None:
    """TXN-1, with savepoints: rolled back to, or released; and the id is free again."""
    way.push(Message("work", b"lost", id="same"))
    assert _payloads(queue) == []
    way.rollback()
    assert _payloads(queue) == []

    way.push(Message("work", b"0", id="same"))
    way.run("SAVEPOINT one")
    way.push(Message("work", b"lost", id="other"))
    way.run("ROLLBACK TO SAVEPOINT one")
    way.push(Message("work", b"1", id="other"))
    way.run("SAVEPOINT two")
    way.push(Message("work", b"2"), Message("work", b"3"))
    way.run("RELEASE SAVEPOINT two")
    assert _payloads(queue) == []
    way.commit()
    assert _payloads(queue) == [b"0", b"1", b"2", b"3"]


def test_an_id_that_is_retained_leaves_the_transaction_usable(way: Way, queue: SQLQueue) -> None:
    """TXN-2: its item fails by its index, the others are in the transaction, as what follows."""
    queue.push(Message("work", b"first", id="b"))
    with pytest.raises(BatchError) as caught:
        way.push(
            Message("work", b"0", id="c"), Message("work", b"1", id="b"), Message("work", b"2")
        )
    assert _failed(caught.value) == [(1, AlreadyExists)]
    way.push(Message("work", b"3"))
    way.commit()
    assert _payloads(queue) == [b"0", b"2", b"3", b"first"]


def test_every_byte_is_stored_as_it_is(way: Way, queue: SQLQueue) -> None:
    """And every field: each client library writes them in its own way (OWN-3)."""
    contents = [
        bytes(range(256)) * 3,
        b"",
        b"\\x00 %s %(ids)s :name $1 {}",
        b"\0",
        "\U0001f600".encode(),
    ]
    sent = [
        Message(
            "work",
            content,
            job_name="jöb '\"\\ %s ",
            namespace="\u0130 ",
            id=f"id {number} '%'",
            extra=content[::-1],
            visibility_timeout=None if number % 2 else timedelta(days=3650, microseconds=-1),
        )
        for number, content in enumerate(contents)
    ]
    way.push(*sent)
    way.commit()
    came = sorted(queue.pop("work", 10), key=lambda each: each.id)

    assert [(each.payload, each.extra) for each in came] == [(c, c[::-1]) for c in contents]
    assert [(each.id, each.job_name, each.namespace, each.visibility_timeout) for each in came] == [
        (each.id, each.job_name, each.namespace, each.visibility_timeout) for each in sent
    ]


def test_a_transaction_that_has_failed_says_so(way: Way, queue: SQLQueue) -> None:
    """BackendError with what to do, and nothing unknown about it."""
    with pytest.raises(Exception, match="does not exist"):
        way.run("SELECT 1 FROM nowhere")
    with pytest.raises(BatchError) as caught:
        way.push(Message("work", b"s3cr3t"))
    assert _failed(caught.value) == [(0, BackendError)]
    assert "roll it back" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert not caught.value.failed[0].error.outcome_unknown  # type: ignore[attr-defined]
    way.rollback()
    way.push(Message("work", b"1"))
    way.commit()
    assert _payloads(queue) == [b"1"]


def test_a_delay_counts_from_the_statement(queue: SQLQueue, engine: Engine) -> None:
    """TXN-4: not from the beginning of the transaction, in which now() stands still."""
    with engine.begin() as connection:
        connection.execute(text("SELECT now()"))
        time.sleep(1.2)
        queue.push_within(connection, Message("work", b"0", delay=timedelta(seconds=1)))
    assert _payloads(queue) == []
    [delivery] = queue.pop("work", wait=timedelta(seconds=10))
    assert delivery.payload == b"0"


# What only some have


class _Base(DeclarativeBase):
    pass


class Order(_Base):
    """What an application stores beside its messages."""

    __tablename__ = "hypercube_test_orders"
    __table_args__ = {"prefixes": ["TEMPORARY"]}  # noqa: RUF012  # as SQLAlchemy has it
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(unique=True)


def test_a_session_is_not_flushed(queue: SQLQueue, engine: Engine) -> None:
    """What it holds back stays held back until its own flush, and commits with the messages."""
    with engine.connect() as connection, Session(connection) as session:
        _Base.metadata.create_all(connection)
        order = Order(id=1, note="first")
        session.add(order)
        queue.push_within(session, Message("work", b"1"))
        assert order in session.new
        session.commit()
        assert session.get(Order, 1) is not None
        connection.commit()
    assert _payloads(queue) == [b"1"]


def test_a_failed_session_is_to_be_rolled_back_first(queue: SQLQueue, engine: Engine) -> None:
    """BackendError that shows none of the failed statement's parameters."""
    with engine.connect() as connection, Session(connection) as session:
        _Base.metadata.create_all(connection)
        session.add_all([Order(id=1, note="s3cr3t"), Order(id=2, note="s3cr3t")])
        with pytest.raises(IntegrityError):
            session.flush()
        with pytest.raises(BatchError) as caught:
            queue.push_within(session, Message("work"))
        assert _failed(caught.value) == [(0, BackendError)]
        assert "roll it back" in str(caught.value)
        assert "s3cr3t" not in str(caught.value)


def test_a_scoped_session_is_a_session(queue: SQLQueue, engine: Engine) -> None:
    """As web applications have them."""
    session = scoped_session(sessionmaker(engine))
    queue.push_within(session, Message("work", b"1"))
    session.commit()
    session.remove()
    assert _payloads(queue) == [b"1"]


def test_the_kind_of_rows_that_a_caller_likes_does_no_harm(queue: SQLQueue) -> None:
    """Mappings, named tuples, first columns; the connection gives them afterwards as before."""
    queue.push(Message("work", b"first", id="same"))
    for factory in (dict_row, namedtuple_row, scalar_row):
        with closing(psycopg.connect(_dsn(), row_factory=factory)) as connection:
            with pytest.raises(BatchError) as caught:
                queue.push_within(connection, Message("work", id="same"), Message("work", b"0"))
            assert _failed(caught.value) == [(0, AlreadyExists)]
            assert connection.row_factory is factory
            connection.commit()
    for cursors in (psycopg2.extras.RealDictCursor, psycopg2.extras.DictCursor):
        with closing(psycopg2.connect(_dsn(), cursor_factory=cursors)) as connection:
            with pytest.raises(BatchError) as caught:
                queue.push_within(connection, Message("work", id="same"), Message("work", b"1"))
            assert _failed(caught.value) == [(0, AlreadyExists)]
            connection.commit()
    assert _payloads(queue) == [b"0", b"0", b"0", b"1", b"1", b"first"]


def test_a_subclass_of_a_connection_is_one(queue: SQLQueue) -> None:
    """As tools that trace and pools make them."""

    class Traced(psycopg.Connection[Any]):
        pass

    with Traced.connect(_dsn()) as connection:
        queue.push_within(connection, Message("work", b"0"))
    assert _payloads(queue) == [b"0"]


@contextmanager
def _autocommit_psycopg() -> Iterator[object]:
    with psycopg.connect(_dsn(), autocommit=True) as connection:
        yield connection


@contextmanager
def _autocommit_psycopg2() -> Iterator[object]:
    with closing(psycopg2.connect(_dsn())) as connection:
        connection.autocommit = True
        yield connection


@contextmanager
def _autocommit_sqlalchemy(library: str) -> Iterator[object]:
    engine = create_engine(
        server("postgres").url(f"postgresql+{library}"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.mark.parametrize(
    "opened",
    [
        _autocommit_psycopg,
        _autocommit_psycopg2,
        lambda: _autocommit_sqlalchemy("psycopg"),
        lambda: _autocommit_sqlalchemy("psycopg2"),
    ],
    ids=["psycopg", "psycopg2", "Connection", "Connection of psycopg2"],
)
def test_a_connection_in_autocommit_is_refused(queue: SQLQueue, opened) -> None:
    """It would commit each message at once, and the caller's promise would be broken."""
    with opened() as connection:
        with pytest.raises(BatchError) as caught:
            queue.push_within(connection, Message("work"))
        assert _failed(caught.value) == [(0, InvalidArgument)]
        assert "begin a transaction" in str(caught.value)
    assert _payloads(queue) == []


@pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
def test_an_asynchronous_connection_in_autocommit_is_refused(queue: SQLQueue, library: str) -> None:
    """As the synchronous ones are."""

    async def push() -> None:
        engine = create_async_engine(
            server("postgres").url(f"postgresql+{library}"), isolation_level="AUTOCOMMIT"
        )
        try:
            async with engine.connect() as connection:
                await AsyncQueue(queue).push_within(connection, Message("work"))
        finally:
            await engine.dispose()

    with pytest.raises(BatchError) as caught:
        asyncio.run(push())
    assert _failed(caught.value) == [(0, InvalidArgument)]
    assert _payloads(queue) == []


def test_a_transaction_that_was_begun_by_hand_is_one(queue: SQLQueue) -> None:
    """As Django's are: autocommit, with BEGIN and COMMIT as statements or as blocks."""
    with closing(psycopg2.connect(_dsn())) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        queue.push_within(connection, Message("work", b"0"))
        assert _payloads(queue) == []
        cursor.execute("COMMIT")
    with psycopg.connect(_dsn(), autocommit=True) as modern, modern.transaction():
        queue.push_within(modern, Message("work", b"1"))
        assert _payloads(queue) == [b"0"]
    assert _payloads(queue) == [b"1"]


def test_what_is_no_connection_is_refused(queue: SQLQueue) -> None:
    """A cursor, a closed Connection, an asynchronous one of the library's own: before anything."""
    with closing(psycopg.connect(_dsn())) as connection:
        for wrong in (connection.cursor(), connection.pgconn, _dsn(), None):
            with pytest.raises(InvalidArgument, match="connection is an SQLAlchemy Session"):
                queue.push_within(wrong, Message("work"))

    async def asynchronous() -> None:
        async with await psycopg.AsyncConnection.connect(_dsn()) as connection:
            await AsyncQueue(queue).push_within(connection, Message("work"))

    with pytest.raises(InvalidArgument, match=r"not psycopg\.AsyncConnection"):
        asyncio.run(asynchronous())
    other = create_engine("sqlite://")
    with other.begin() as connection, pytest.raises(BatchError) as caught:
        queue.push_within(connection, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    assert "leads to sqlite, and this queue is on postgresql" in str(caught.value)
    other.dispose()


def test_a_closed_connection_is_told(queue: SQLQueue, engine: Engine) -> None:
    """InvalidArgument for SQLAlchemy's, BackendError for a client library's own."""
    connection = engine.connect()
    connection.close()
    with pytest.raises(BatchError) as caught:
        queue.push_within(connection, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    for plain in (psycopg.connect(_dsn()), psycopg2.connect(_dsn())):
        plain.close()
        with pytest.raises(BatchError) as caught:
            queue.push_within(plain, Message("work"))
        assert _failed(caught.value) == [(0, BackendError)]


# Two transactions


def _in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """What the call returns or raises, in a list, when the thread has ended."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except QueueError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_an_id_in_another_transaction_is_waited_for(queue: SQLQueue, ends: str) -> None:
    """Whether it exists is known only when that one has ended."""
    with closing(psycopg.connect(_dsn())) as one, closing(psycopg.connect(_dsn())) as two:
        queue.push_within(one, Message("work", b"one", id="same"))
        thread, outcome = _in_thread(
            lambda: queue.push_within(two, Message("work", b"two", id="same"))
        )
        thread.join(0.5)
        assert thread.is_alive()
        getattr(one, ends)()
        thread.join(20)
        two.commit()
    if ends == "commit":
        [error] = outcome
        assert isinstance(error, BatchError)
        assert _failed(error) == [(0, AlreadyExists)]
        assert _payloads(queue) == [b"one"]
    else:
        assert outcome == [None]
        assert _payloads(queue) == [b"two"]


def test_a_deadlock_is_the_caller_s_to_retry(queue: SQLQueue) -> None:
    """TXN-3: the loser gets a BackendError with a known outcome, and nothing is tried again."""
    with closing(psycopg.connect(_dsn())) as one, closing(psycopg.connect(_dsn())) as two:
        queue.push_within(one, Message("work", b"one", id="a"))
        queue.push_within(two, Message("work", b"two", id="b"))
        first = _in_thread(lambda: queue.push_within(one, Message("work", b"one", id="b")))
        second = _in_thread(lambda: queue.push_within(two, Message("work", b"two", id="a")))
        for thread, _outcome in (first, second):
            thread.join(20)
        lost = [each for each, (_, [came]) in ((one, first), (two, second)) if came is not None]
        [loser] = lost
        winner, outcome = (two, first[1]) if loser is one else (one, second[1])
        [error] = outcome
        assert isinstance(error, BatchError)
        [failure] = error.failed
        assert isinstance(failure.error, BackendError)
        assert "deadlock" in str(failure.error)
        assert not failure.error.outcome_unknown
        assert isinstance(failure.error.__cause__, psycopg.errors.DeadlockDetected)
        with pytest.raises(BatchError) as caught:
            queue.push_within(loser, Message("work"))
        assert "roll it back" in str(caught.value)
        loser.rollback()
        winner.commit()
        queue.push_within(loser, Message("work", b"again"))
        loser.commit()
    assert len(_payloads(queue)) == 3


def test_the_order_of_ids_within_a_call_makes_no_deadlock(queue: SQLQueue) -> None:
    """Two calls with the same ids, one backwards, many times over: one waits for the other."""
    ids = [f"{number:04}" for number in range(300)]
    problems: list[object] = []

    def push(order: list[str]) -> None:
        with closing(psycopg.connect(_dsn())) as connection:
            for _ in range(20):
                try:
                    queue.push_within(connection, *(Message("work", id=each) for each in order))
                except BatchError as error:
                    problems.extend(each for each in _failed(error) if each[1] is BackendError)
                connection.rollback()

    threads = [threading.Thread(target=push, args=[order]) for order in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


# Time


def test_a_commit_is_heard_by_a_pop_that_waits_in_another_process(
    queue: SQLQueue, url: str
) -> None:
    """By what is announced, or by one of its looks; long before its wait is over (POP-7)."""
    script = """
import sys, time
from datetime import timedelta
from hypercube_queue import open_queue
with open_queue(sys.argv[1]) as queue:
    queue._dialect.listen()
    print("waiting", flush=True)
    [delivery] = queue.pop("work", wait=timedelta(seconds=30))
    print(time.time(), delivery.payload, flush=True)
"""
    with started(script, url) as process, closing(psycopg.connect(_dsn())) as connection:
        assert process.line() == "waiting"
        queue.push_within(connection, Message("work", b"0"))
        time.sleep(1.5)
        connection.commit()
        committed = time.time()
        came, payload = process.line().split()
    assert payload == "b'0'"
    assert -0.1 < float(came) - committed < 10


@pytest.mark.parametrize("library", ["psycopg", "psycopg2", "async psycopg", "asyncpg"])
def test_a_server_that_falls_silent_is_cut_off(
    queue: SQLQueue, url: str, relay, library: str
) -> None:
    """In the caller's transaction as elsewhere, which is lost with its connection (ERR-5)."""
    scheme = f"postgresql+{library.removeprefix('async ')}" if "async" in library else "postgresql"
    address = server("postgres").url(scheme)
    address = address.replace(f":{server('postgres').port}/", f":{relay.port}/")

    def push(connection: Any) -> None:
        own.push_within(connection, Message("work", b"0"))
        relay.cut()
        own.push_within(connection, Message("work", b"1"))

    def push_plain(connect: Callable[[str], Any]) -> None:
        with closing(connect(address)) as connection:
            push(connection)

    async def push_async() -> None:
        engine = create_async_engine(address)
        connection = await engine.connect()
        try:
            await connection.run_sync(push)
        finally:
            await connection.invalidate()
            await engine.dispose()

    calls = {
        "psycopg": lambda: push_plain(psycopg.connect),
        "psycopg2": lambda: push_plain(psycopg2.connect),
    }
    with open_queue(f"{url}&operation_timeout=1.5") as own:
        assert isinstance(own, SQLQueue)
        begun = time.monotonic()
        with pytest.raises(BatchError) as caught:
            calls.get(library, lambda: asyncio.run(push_async()))()
        assert time.monotonic() - begun < 10
    assert _failed(caught.value) == [(0, BackendError)]
    assert "did not answer within" in str(caught.value)
    relay.mend()
    assert _payloads(queue) == []


# Another database


@pytest.fixture
def other_database(engine: Engine, table: str) -> Iterator[str]:
    """A database beside the queue's on the same server, with tables as the queue's."""
    name = f"d{secrets.token_hex(8)}"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        _create_tables(server("postgres"), name, table)
        yield name
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def _create_tables(place: Server, database: str, table: str) -> None:
    engine = create_engine(place.url("postgresql+psycopg", database=database))
    SQLQueue(engine, table=table).create_tables()
    engine.dispose()


def _is_refused(queue: SQLQueue, connection: Any, *named: str) -> None:
    assert not queue.shares_database(connection)
    with pytest.raises(BatchError) as caught:
        queue.push_within(connection, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    assert [each for each in named if each not in str(caught.value)] == []


def test_connections_into_another_database_are_refused(
    queue: SQLQueue, other_database: str
) -> None:
    """Whatever library they are of; the text names both."""
    place = server("postgres")
    url = place.url("postgresql+psycopg", database=other_database)
    engine = create_engine(url)
    with engine.connect() as connection, Session(engine) as session:
        for each in (connection, session):
            _is_refused(queue, each, other_database, f"{place.database} at")
            each.execute(text("SELECT 1"))
            each.rollback()
    engine.dispose()
    for connect in (psycopg.connect, psycopg2.connect):
        with closing(connect(place.url("postgresql", database=other_database))) as plain:
            _is_refused(queue, plain, other_database)

    async def ask() -> bool:
        engine = create_async_engine(place.url("postgresql+asyncpg", database=other_database))
        async with engine.connect() as connection:
            shares = await AsyncQueue(queue).shares_database(connection)
            assert not connection.in_transaction()
        await engine.dispose()
        return shares

    assert asyncio.run(ask()) is False


def test_a_connection_to_another_server_is_refused(
    queue: SQLQueue, engine: Engine, table: str
) -> None:
    """Though database and table have the same names there; a way around to the same is taken."""
    with exclusive("postgres") as place:
        _create_tables(place, place.database, table)
        other = create_engine(place.url("postgresql+psycopg"))
        with other.connect() as connection:
            _is_refused(queue, connection, f"{place.database} at")
        other.dispose()
    with Relay(server("postgres").host, server("postgres").port) as relay:
        url = make_url(server("postgres").url("postgresql+psycopg"))
        relayed = create_engine(url.set(host=relay.host, port=relay.port))
        with relayed.connect() as connection:
            assert queue.shares_database(connection)
        relayed.dispose()


def test_another_search_path_leads_to_the_same_table(
    queue: SQLQueue, engine: Engine, table: str
) -> None:
    """Where the session would find another table of that name first."""
    schema = f"s{secrets.token_hex(8)}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
        for name in (table, f"{table}_layout"):
            connection.execute(text(f"CREATE TABLE {schema}.{name} (LIKE {name} INCLUDING ALL)"))
        connection.commit()
        connection.execute(text(f"SET search_path TO {schema}, public"))
        queue.push_within(connection, Message("work", b"0"))
        connection.commit()
        assert _payloads(queue) == [b"0"]
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        connection.commit()


def test_a_connection_is_asked_once(queue: SQLQueue, engine: Engine) -> None:
    """And none where the queue's engine has it."""
    asked: list[str] = []
    identify = queue._dialect.identify

    def counted(cursor: Any) -> Any:
        asked.append("once")
        return identify(cursor)

    queue._dialect.identify = counted  # type: ignore[method-assign]
    with closing(psycopg.connect(_dsn())) as plain, engine.connect() as connection:
        for _ in range(3):
            queue.push_within(plain, Message("work"))
            queue.push_within(connection, Message("work"))
        plain.commit()
        connection.commit()
    # Each of the two, and the queue's own, for the first of them.
    assert len(asked) == 3
