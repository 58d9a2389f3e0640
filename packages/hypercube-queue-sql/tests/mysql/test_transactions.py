"""Pushing in a transaction of the caller's, through whatever there is of it."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, Protocol

import pymysql
import pytest
from pymysql.cursors import DictCursor, SSCursor
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tools.backends import exclusive
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

NOTHING = timedelta(0)
Connect = Callable[..., "pymysql.Connection[Any]"]


def _payloads(queue: SQLQueue) -> list[bytes]:
    """What is visible."""
    return sorted(each.payload for each in queue.pop("work", 100, wait=NOTHING))


def _failed(error: BatchError) -> list[tuple[int, type]]:
    return [(failure.index, type(failure.error)) for failure in error.failed]


class Way(Protocol):
    """A caller's connection, whatever it is made of."""

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
def _sqlalchemy(queue: SQLQueue, place: Server, kind: type) -> Iterator[Way]:
    engine = create_engine(place.url("mysql+pymysql"))
    with kind(engine) if kind is Session else engine.connect() as connection:
        yield _Joining(queue, connection, lambda statement: connection.execute(text(statement)))
    engine.dispose()


@contextmanager
def _plain(queue: SQLQueue, place: Server, kind: type) -> Iterator[Way]:
    with closing(
        pymysql.connect(
            host=place.host,
            port=place.port,
            user=place.username,
            password=place.password,
            database=place.database,
            cursorclass=kind,
        )
    ) as connection:
        yield _Joining(queue, connection, connection.query)


@contextmanager
def _asynchronous(queue: SQLQueue, place: Server, kind: type) -> Iterator[Way]:
    with asyncio.Runner() as runner:
        engine = create_async_engine(place.url("mysql+asyncmy"))
        connection = AsyncSession(engine) if kind is AsyncSession else engine.connect()
        runner.run(connection.__aenter__())
        try:
            yield _JoiningAsync(runner, queue, connection)
        finally:
            runner.run(connection.close())
            runner.run(engine.dispose())


_WAYS: dict[str, tuple[Callable[..., Any], type]] = {
    "Connection": (_sqlalchemy, Engine),
    "Session": (_sqlalchemy, Session),
    "PyMySQL with rows as mappings": (_plain, DictCursor),
    "PyMySQL with rows read one by one": (_plain, SSCursor),
    "AsyncConnection": (_asynchronous, AsyncConnection),
    "AsyncSession": (_asynchronous, AsyncSession),
}


@pytest.fixture(params=_WAYS.values(), ids=list(_WAYS))
def way(request: pytest.FixtureRequest, queue: SQLQueue, place: Server) -> Iterator[Way]:
    """Each of the ways."""
    opened, kind = request.param
    with opened(queue, place, kind) as made:
        yield made


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
    way.push(Message("work", b"-1"))
    with pytest.raises(BatchError) as caught:
        way.push(
            Message("work", b"0", id="c"),
            Message("work", b"1", id="b"),
            Message("other", b"other", id="b"),
            Message("work", b"2"),
        )
    assert _failed(caught.value) == [(1, AlreadyExists)]
    way.push(Message("work", b"3"))
    way.commit()
    assert _payloads(queue) == [b"-1", b"0", b"2", b"3", b"first"]
    assert [each.payload for each in queue.pop("other")] == [b"other"]


def test_every_byte_is_stored_as_it_is(way: Way, queue: SQLQueue) -> None:
    """And every field: each client library writes statements in its own way (OWN-3)."""
    contents = [bytes(range(256)) * 3, b"", b"\\ %s %(ids)s :name {}'\"`", b"\0"]
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


def test_an_id_that_came_after_the_snapshot_exists(queue: SQLQueue, place: Server, connect) -> None:
    """A transaction at REPEATABLE READ cannot see it, and still is told the truth.

    MariaDB ends a transaction that reads what is newer than its snapshot, from 11.6 on: then it
    is the caller's to repeat.
    """
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        queue.push(Message("other"))
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        queue.push(Message("work", b"first", id="same"))
        with pytest.raises(BatchError) as caught:
            queue.push_within(connection, Message("work", b"0"), Message("work", id="same"))
        if place.name == "mysql":
            assert _failed(caught.value) == [(1, AlreadyExists)]
        else:
            assert {error for _, error in _failed(caught.value)} <= {AlreadyExists, BackendError}
            connection.rollback()
            with pytest.raises(BatchError) as caught:
                queue.push_within(connection, Message("work", b"0"), Message("work", id="same"))
            assert _failed(caught.value) == [(1, AlreadyExists)]
        connection.commit()
    assert _payloads(queue) == [b"0", b"first"]


def test_an_open_transaction_is_in_nobody_s_way(queue: SQLQueue, way: Way) -> None:
    """Others push, pop and settle beside it; only the message whose id it has met waits for it."""
    queue.push(*(Message("work", id=each) for each in ("a", "same", "z")))
    with pytest.raises(BatchError):
        way.push(Message("work", b"0", id="c"), Message("work", id="same"), Message("work", b"1"))
    begun = time.monotonic()
    queue.push(*(Message("work", id=each) for each in ("b", "d", "s", "sb", "zz")), Message("work"))
    popped = queue.pop("work", 20, wait=NOTHING)
    assert sorted(each.id for each in popped)[1:] == ["a", "b", "d", "s", "sb", "z", "zz"]
    queue.retry(*popped)
    queue.dead_letter(*queue.pop("work", 20))
    queue.redrive("work", 20)
    queue.ack(*queue.pop("work", 20))
    assert time.monotonic() - begun < 5
    way.commit()
    assert _payloads(queue) == [b"", b"0", b"1"]


def test_a_delay_counts_from_the_statement(queue: SQLQueue, engine: Engine) -> None:
    """TXN-4: not from the beginning of the transaction."""
    with engine.begin() as connection:
        connection.execute(text("SELECT now()"))
        time.sleep(1.2)
        queue.push_within(connection, Message("work", b"0", delay=timedelta(seconds=1)))
    assert _payloads(queue) == []
    [delivery] = queue.pop("work", wait=timedelta(seconds=10))
    assert delivery.payload == b"0"


def test_a_large_batch_is_checked_whole(queue: SQLQueue, engine: Engine) -> None:
    """PUSH-4, where it takes several statements and every one has its conflicts."""
    queue.push(*(Message("work", id=str(number)) for number in range(0, 2300, 7)))
    with engine.begin() as connection, pytest.raises(BatchError) as caught:
        queue.push_within(connection, *(Message("work", id=str(n)) for n in range(2300)))
    assert [failure.index for failure in caught.value.failed] == list(range(0, 2300, 7))
    assert queue.stats("work").ready == 2300


# Autocommit


@contextmanager
def _autocommit_pymysql(_place: Server, connect: Any) -> Iterator[object]:
    with closing(connect(autocommit=True)) as connection:
        yield connection


@contextmanager
def _autocommit_sqlalchemy(place: Server, _connect: Any) -> Iterator[object]:
    engine = create_engine(place.url("mysql+pymysql"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.mark.parametrize(
    "opened", [_autocommit_pymysql, _autocommit_sqlalchemy], ids=["PyMySQL", "Connection"]
)
def test_a_connection_in_autocommit_is_refused(
    queue: SQLQueue, place: Server, connect, opened
) -> None:
    """It would commit each message at once, and the caller's promise would be broken."""
    with opened(place, connect) as connection, pytest.raises(BatchError) as caught:
        queue.push_within(connection, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    assert "begin a transaction" in str(caught.value)
    assert _payloads(queue) == []


@pytest.mark.parametrize("begun", [False, True], ids=["outside", "in a transaction"])
def test_an_asynchronous_connection_in_autocommit_is_refused_outside_a_transaction(
    queue: SQLQueue, place: Server, begun: bool
) -> None:
    """As the synchronous ones are, though its library does not tell where it is."""

    async def push() -> None:
        engine = create_async_engine(place.url("mysql+asyncmy"), isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                if begun:
                    await connection.execute(text("START TRANSACTION"))
                await AsyncQueue(queue).push_within(connection, Message("work", b"0"))
                assert _payloads(queue) == []
                await connection.execute(text("COMMIT"))
        finally:
            await engine.dispose()

    if begun:
        asyncio.run(push())
        assert _payloads(queue) == [b"0"]
    else:
        with pytest.raises(BatchError) as caught:
            asyncio.run(push())
        assert _failed(caught.value) == [(0, InvalidArgument)]
        assert _payloads(queue) == []


def test_a_transaction_that_was_begun_by_hand_is_one(queue: SQLQueue, connect) -> None:
    """As Django's are: autocommit, with START TRANSACTION and COMMIT as statements."""
    with closing(connect(autocommit=True)) as connection:
        connection.begin()
        queue.push_within(connection, Message("work", b"0"))
        assert _payloads(queue) == []
        connection.commit()
        assert connection.get_autocommit()
    assert _payloads(queue) == [b"0"]


def test_what_is_no_connection_is_refused(queue: SQLQueue, connect) -> None:
    """A cursor is none, and a database of another kind is another one."""
    with closing(connect()) as connection:
        for wrong in (connection.cursor(), "mysql://", None):
            with pytest.raises(InvalidArgument, match="connection is an SQLAlchemy Session"):
                queue.push_within(wrong, Message("work"))
    other = create_engine("sqlite://")
    with other.begin() as connection, pytest.raises(BatchError) as caught:
        queue.push_within(connection, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    assert "leads to sqlite, and this queue is on mysql" in str(caught.value)
    other.dispose()


def test_a_closed_connection_is_told(queue: SQLQueue, engine: Engine, connect) -> None:
    """InvalidArgument for SQLAlchemy's, BackendError for a client library's own."""
    connection = engine.connect()
    connection.close()
    with pytest.raises(BatchError) as caught:
        queue.push_within(connection, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    plain = connect()
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
def test_an_id_in_another_transaction_is_waited_for(queue: SQLQueue, connect, ends: str) -> None:
    """Whether it exists is known only when that one has ended."""
    with closing(connect()) as one, closing(connect()) as two:
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


def test_a_deadlock_is_the_caller_s_to_retry(queue: SQLQueue, connect) -> None:
    """TXN-3: the loser gets a BackendError with a known outcome, and nothing is tried again."""
    with closing(connect()) as one, closing(connect()) as two:
        queue.push_within(one, Message("work", b"one", id="a"))
        queue.push_within(two, Message("work", b"two", id="b"))
        first = _in_thread(lambda: queue.push_within(one, Message("work", b"one", id="b")))
        second = _in_thread(lambda: queue.push_within(two, Message("work", b"two", id="a")))
        for thread, _outcome in (first, second):
            thread.join(20)
        [loser] = [each for each, (_, [came]) in ((one, first), (two, second)) if came is not None]
        winner, outcome = (two, first[1]) if loser is one else (one, second[1])
        [error] = outcome
        assert isinstance(error, BatchError)
        [failure] = error.failed
        assert isinstance(failure.error, BackendError)
        assert "Deadlock" in str(failure.error)
        assert not failure.error.outcome_unknown
        assert isinstance(failure.error.__cause__, pymysql.OperationalError)
        loser.rollback()
        winner.commit()
        queue.push_within(loser, Message("work", b"again"))
        loser.commit()
    assert len(_payloads(queue)) == 3


def test_a_lock_that_does_not_come_free_leaves_the_transaction_open(
    queue: SQLQueue, connect
) -> None:
    """TXN-3: BackendError, and what was in the transaction before is still in it."""
    with closing(connect()) as holder, closing(connect()) as other:
        queue.push_within(holder, Message("work", b"0", id="same"))
        other.query("SET SESSION innodb_lock_wait_timeout = 1")
        queue.push_within(other, Message("work", b"1"))
        with pytest.raises(BatchError) as caught:
            queue.push_within(other, Message("work", b"2", id="same"))
        [failure] = caught.value.failed
        assert isinstance(failure.error, BackendError)
        assert "kept a lock" in str(failure.error)
        assert not failure.error.outcome_unknown
        other.commit()
        holder.rollback()
    assert _payloads(queue) == [b"1"]


def test_the_order_of_ids_within_a_call_makes_no_deadlock(queue: SQLQueue, connect) -> None:
    """Two calls with the same ids, one backwards, many times over: one waits for the other."""
    ids = [f"{number:04}" for number in range(300)]
    problems: list[object] = []

    def push(order: list[str]) -> None:
        with closing(connect()) as connection:
            for _ in range(15):
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


def test_a_commit_is_found_by_a_pop_that_waits_in_another_process(
    queue: SQLQueue, url: str, connect
) -> None:
    """By one of its looks, long before its wait is over."""
    script = """
import sys, time
from datetime import timedelta
from hypercube_queue import open_queue
with open_queue(sys.argv[1]) as queue:
    queue.pop("work", wait=timedelta(seconds=0.3))
    print("waiting", flush=True)
    [delivery] = queue.pop("work", wait=timedelta(seconds=30))
    print(time.time(), delivery.payload, flush=True)
"""
    with started(script, url) as process, closing(connect()) as connection:
        assert process.line() == "waiting"
        queue.push_within(connection, Message("work", b"0"))
        time.sleep(1.0)
        connection.commit()
        committed = time.time()
        came, payload = process.line().split()
    assert payload == "b'0'"
    assert -0.1 < float(came) - committed < 10


def test_a_server_that_falls_silent_is_cut_off(
    queue: SQLQueue, url: str, place: Server, connect, relay
) -> None:
    """In the caller's transaction as elsewhere, which is lost with its connection (ERR-5)."""
    with (
        open_queue(f"{url}&operation_timeout=1.5") as own,
        closing(connect(host=relay.host, port=relay.port)) as connection,
    ):
        assert isinstance(own, SQLQueue)
        own.push_within(connection, Message("work", b"0"))
        relay.cut()
        begun = time.monotonic()
        with pytest.raises(BatchError) as caught:
            own.push_within(connection, Message("work", b"1"))
        assert time.monotonic() - begun < 10
    assert _failed(caught.value) == [(0, BackendError)]
    assert "did not answer within" in str(caught.value)
    relay.drop()
    assert _payloads(queue) == []


# Another database


@pytest.fixture
def other_database(place: Server, engine: Engine, table: str) -> Iterator[str]:
    """A database beside the queue's on the same server, with tables as the queue's."""
    name = f"d{secrets.token_hex(8)}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    _create_tables(place, name, table)
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP DATABASE {name}"))


def _create_tables(place: Server, database: str, table: str) -> None:
    engine = create_engine(place.url("mysql+pymysql", database=database))
    SQLQueue(engine, table=table).create_tables()
    engine.dispose()


def _is_refused(queue: SQLQueue, connection: Any, *named: str) -> None:
    assert not queue.shares_database(connection)
    with pytest.raises(BatchError) as caught:
        queue.push_within(connection, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    assert [each for each in named if each not in str(caught.value)] == []


def test_connections_into_another_database_are_refused(
    queue: SQLQueue, place: Server, connect: Connect, other_database: str
) -> None:
    """Whatever library they are of; the text names both."""
    engine = create_engine(place.url("mysql+pymysql", database=other_database))
    with engine.connect() as connection, Session(engine) as session:
        for each in (connection, session):
            _is_refused(queue, each, other_database, f"{place.database} at")
            each.execute(text("SELECT 1"))
            each.rollback()
    engine.dispose()
    with closing(connect(database=other_database)) as plain:
        _is_refused(queue, plain, other_database)

    async def ask() -> bool:
        engine = create_async_engine(place.url("mysql+asyncmy", database=other_database))
        async with engine.connect() as connection:
            shares = await AsyncQueue(queue).shares_database(connection)
            assert not connection.in_transaction()
        await engine.dispose()
        return shares

    assert asyncio.run(ask()) is False


def test_a_connection_to_another_server_is_refused(
    queue: SQLQueue, place: Server, table: str, relay: Relay
) -> None:
    """Though database and table have the same names there; a way around to the same is taken."""
    with exclusive(place.name) as other:
        _create_tables(other, other.database, table)
        engine = create_engine(other.url("mysql+pymysql"))
        with engine.connect() as connection:
            _is_refused(queue, connection, f"{place.database} at")
        engine.dispose()
    url = make_url(place.url("mysql+pymysql")).set(host=relay.host, port=relay.port)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert queue.shares_database(connection)
    engine.dispose()


def test_a_session_that_uses_another_database_meanwhile_stores_in_the_queue_s(
    queue: SQLQueue, connect: Connect, other_database: str
) -> None:
    """The statements name the queue's, ids that are taken included."""
    queue.push(Message("work", id="taken"))
    with closing(connect()) as plain:
        queue.push_within(plain, Message("work", b"0"))
        plain.select_db(other_database)
        with pytest.raises(BatchError) as caught:
            queue.push_within(plain, Message("work", id="taken"), Message("work", b"1"))
        plain.commit()
    assert _failed(caught.value) == [(0, AlreadyExists)]
    assert _payloads(queue) == [b"", b"0", b"1"]


def test_a_schema_of_the_same_server_is_joined_from_any_database(
    place: Server, table: str, connect: Connect, other_database: str
) -> None:
    """A transaction spans databases there, and `schema` says which one has the table."""
    with (
        open_queue(place.url(place.name, table=table, schema=other_database)) as queue,
        closing(connect()) as plain,
    ):
        queue.push_within(plain, Message("work", b"0"))
        plain.commit()
        assert _payloads(queue) == [b"0"]
