"""Pushing in a transaction of the caller's, through whatever he has of it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import Engine, QueuePool, StaticPool, create_engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from hypercube_queue import (
    AlreadyExists,
    AsyncQueue,
    BackendError,
    BatchError,
    InvalidArgument,
    Message,
    open_queue,
)
from hypercube_queue_sql import SQLQueue

NOTHING = timedelta(0)


class _Base(DeclarativeBase):
    pass


class Order(_Base):
    """What an application stores beside its messages."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(unique=True)


@pytest.fixture
def engine(url: str, queue: SQLQueue) -> Iterator[Engine]:
    """The application's own, with its tables and the queue's."""
    queue.create_tables()
    engine = create_engine(url)
    _Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def _visible(queue: SQLQueue) -> list[bytes]:
    return sorted(each.payload for each in queue.pop("work", 100, wait=NOTHING))


def _failed(error: BatchError) -> list[tuple[int, type]]:
    return [(failure.index, type(failure.error)) for failure in error.failed]


def test_a_session_commits_its_rows_and_messages_together(queue: SQLQueue, engine: Engine) -> None:
    """Both are there after the commit, neither before."""
    with Session(engine) as session:
        session.add(Order(id=1, note="first"))
        queue.push_within(session, Message("work", b"1"))
        assert _visible(queue) == []
        session.commit()
    with Session(engine) as session:
        assert session.get(Order, 1) is not None
    assert _visible(queue) == [b"1"]


def test_a_session_that_rolls_back_leaves_nothing(queue: SQLQueue, engine: Engine) -> None:
    """Neither rows nor messages, and it can go on."""
    with Session(engine) as session:
        queue.push_within(session, Message("work", b"1", id="same"))
        session.add(Order(id=1, note="first"))
        session.rollback()
        assert _visible(queue) == []
        queue.push_within(session, Message("work", b"2", id="same"))
        session.commit()
    assert _visible(queue) == [b"2"]


def test_a_session_is_not_flushed(queue: SQLQueue, engine: Engine) -> None:
    """What the session holds back stays held back, mistakes too."""
    with Session(engine) as session:
        order = Order(id=1, note="first")
        session.add(order)
        queue.push_within(session, Message("work", b"1"))
        assert order in session.new
        session.rollback()


def test_a_scoped_session_is_a_session(queue: SQLQueue, engine: Engine) -> None:
    """As web applications have them."""
    session = scoped_session(sessionmaker(engine))
    queue.push_within(session, Message("work", b"1"))
    session.commit()
    session.remove()
    assert _visible(queue) == [b"1"]


def test_a_failed_session_is_to_be_rolled_back_first(queue: SQLQueue, engine: Engine) -> None:
    """BackendError that says so and shows none of the failed statement's parameters."""
    with Session(engine) as session:
        session.add_all([Order(id=1, note="s3cr3t"), Order(id=2, note="s3cr3t")])
        with pytest.raises(IntegrityError):
            session.flush()
        with pytest.raises(BatchError) as caught:
            queue.push_within(session, Message("work"))
        [failure] = caught.value.failed
        assert isinstance(failure.error, BackendError)
        assert "roll it back" in str(failure.error)
        assert failure.error.__cause__ is None
        assert "s3cr3t" not in str(caught.value)
        session.rollback()
        queue.push_within(session, Message("work", b"1"))
        session.commit()
    assert _visible(queue) == [b"1"]


def test_a_connection_that_has_begun_nothing_begins(queue: SQLQueue, engine: Engine) -> None:
    """As it does for any statement; its commit commits, and closing it rolls back."""
    with engine.connect() as connection:
        queue.push_within(connection, Message("work", b"lost"))
    assert _visible(queue) == []
    with engine.connect() as connection:
        queue.push_within(connection, Message("work", b"kept"))
        connection.commit()
    assert _visible(queue) == [b"kept"]


def test_a_savepoint_takes_its_messages_back(queue: SQLQueue, engine: Engine) -> None:
    """What was pushed before it stays."""
    with engine.begin() as connection:
        queue.push_within(connection, Message("work", b"0"))
        savepoint = connection.begin_nested()
        queue.push_within(connection, Message("work", b"1", id="same"))
        savepoint.rollback()
        queue.push_within(connection, Message("work", b"2", id="same"))
    assert _visible(queue) == [b"0", b"2"]


def test_an_engine_that_begins_by_itself_works(queue: SQLQueue, url: str) -> None:
    """SQLAlchemy's recipe for SQLite: the module begins nothing, an event does."""
    engine = create_engine(url)
    event.listen(engine, "connect", lambda c, _record: setattr(c, "isolation_level", None))
    event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))
    own = SQLQueue(engine, create_tables=True)
    with engine.begin() as connection:
        own.push_within(connection, Message("work", b"0"))
    own.push(Message("work", b"1"))
    assert _visible(queue) == [b"0", b"1"]
    engine.dispose()


def test_a_plain_connection_works(queue: SQLQueue, file: Path) -> None:
    """Python's own, in its traditional mode, whatever it makes of rows and texts."""
    queue.create_tables()
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = lambda _cursor, row: {"row": row}
        connection.text_factory = bytes
        queue.push_within(connection, Message("work", b"0"), Message("work", b"1", id="same"))
        assert _visible(queue) == []
        connection.rollback()
        queue.push_within(connection, Message("work", b"2", id="same"))
        with pytest.raises(BatchError) as caught:
            queue.push_within(connection, Message("work", id="same"), Message("work", b"3"))
        connection.commit()
    assert _failed(caught.value) == [(0, AlreadyExists)]
    assert _visible(queue) == [b"2", b"3"]


def test_a_plain_connection_that_begins_by_hand_works(queue: SQLQueue, file: Path) -> None:
    """As Django's does: no mode of the module's, BEGIN and COMMIT as statements."""
    queue.create_tables()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        queue.push_within(connection, Message("work", b"0"))
        assert connection.in_transaction
        connection.execute("COMMIT")
    assert _visible(queue) == [b"0"]


def test_a_connection_in_autocommit_is_refused(queue: SQLQueue, engine: Engine, file: Path) -> None:
    """It would commit each message at once, and the caller's promise would be broken."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        with pytest.raises(BatchError) as caught:
            queue.push_within(connection, Message("work"))
        assert _failed(caught.value) == [(0, InvalidArgument)]
        assert "begin a transaction" in str(caught.value)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(BatchError) as caught:
            queue.push_within(connection, Message("work"))
        assert _failed(caught.value) == [(0, InvalidArgument)]
    assert _visible(queue) == []


def test_a_closed_connection_is_refused(queue: SQLQueue, engine: Engine, file: Path) -> None:
    """InvalidArgument from SQLAlchemy's, BackendError from Python's own."""
    connection = engine.connect()
    connection.close()
    with pytest.raises(BatchError) as caught:
        queue.push_within(connection, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    plain = sqlite3.connect(file)
    plain.close()
    with pytest.raises(BatchError) as caught:
        queue.push_within(plain, Message("work"))
    assert _failed(caught.value) == [(0, BackendError)]


def test_a_session_without_an_engine_is_refused(queue: SQLQueue) -> None:
    """InvalidArgument that says what to pass instead."""
    with Session() as session, pytest.raises(BatchError) as caught:
        queue.push_within(session, Message("work"))
    assert _failed(caught.value) == [(0, InvalidArgument)]
    assert "knows its engine" in str(caught.value)


def test_an_empty_batch_touches_no_connection(queue: SQLQueue, engine: Engine) -> None:
    """PUSH-1, within a transaction, too."""
    with engine.connect() as connection:
        queue.push_within(connection)
        assert not connection.in_transaction()


def test_a_first_call_within_a_transaction_makes_the_tables_there(url: str) -> None:
    """They are gone with it if it is rolled back, and are made again."""
    engine = create_engine(url)
    queue = SQLQueue(engine, create_tables=True)
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE other (x)"))
        connection.execute(text("INSERT INTO other VALUES (1)"))
        queue.push_within(connection, Message("work", b"lost"))
        connection.rollback()
    with engine.begin() as connection:
        queue.push_within(connection, Message("work", b"kept"))
    assert _visible(queue) == [b"kept"]
    engine.dispose()


def test_missing_tables_are_not_made_unasked(url: str) -> None:
    """BackendError that says how to get them; the transaction stays usable."""
    engine = create_engine(url)
    queue = SQLQueue(engine)
    with engine.begin() as connection:
        with pytest.raises(BatchError) as caught:
            queue.push_within(connection, Message("work"))
        assert "create_tables()" in str(caught.value)
        connection.execute(text("CREATE TABLE other (x)"))
    engine.dispose()


def test_a_lock_is_not_waited_for_beyond_the_connection_s_own_patience(
    queue: SQLQueue, file: Path
) -> None:
    """TXN-3: one attempt, as long as the caller's connection waits; it stays usable."""
    queue.create_tables()
    with (
        closing(sqlite3.connect(file)) as holder,
        closing(sqlite3.connect(file, timeout=0.05)) as other,
    ):
        queue.push_within(holder, Message("work", b"0"))
        begun = time.monotonic()
        with pytest.raises(BatchError) as caught:
            queue.push_within(other, Message("work", b"1"))
        assert time.monotonic() - begun < 5
        [failure] = caught.value.failed
        assert isinstance(failure.error, BackendError)
        assert not failure.error.outcome_unknown
        assert isinstance(failure.error.__cause__, sqlite3.OperationalError)
        holder.commit()
        queue.push_within(other, Message("work", b"1"))
        other.commit()
    assert _visible(queue) == [b"0", b"1"]


def test_a_retained_id_is_found_among_many_in_one_batch(queue: SQLQueue, engine: Engine) -> None:
    """PUSH-4, where a batch takes several statements and every one has its conflicts."""
    queue.push(*(Message("work", id=str(number)) for number in range(0, 230, 7)))
    with engine.begin() as connection, pytest.raises(BatchError) as caught:
        queue.push_within(connection, *(Message("work", id=str(n)) for n in range(230)))
    assert [failure.index for failure in caught.value.failed] == list(range(0, 230, 7))


def test_while_the_only_connection_is_in_a_transaction_a_pop_waits() -> None:
    """In memory: it sees nothing that is not committed, and disturbs nothing."""
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    queue = SQLQueue(engine, create_tables=True)
    came: list[bytes] = []

    def pop() -> None:
        came.extend(each.payload for each in queue.pop("work", wait=timedelta(seconds=20)))

    waiting = Thread(target=pop)
    with engine.begin() as connection:
        queue.push_within(connection, Message("work", b"0"))
        waiting.start()
        assert queue.pop("work", wait=timedelta(milliseconds=300)) == []
        assert came == []
    waiting.join(20)
    assert came == [b"0"]
    engine.dispose()


def test_other_calls_on_the_only_connection_say_that_it_is_taken() -> None:
    """In memory, in the thread that has the transaction: an error, no rollback, no deadlock."""
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    queue = SQLQueue(engine, create_tables=True, operation_timeout=timedelta(milliseconds=100))
    with engine.begin() as connection:
        queue.push_within(connection, Message("work", b"0"))
        with pytest.raises(BatchError, match="push") as caught:
            queue.push(Message("work", b"1"))
        assert "is in a transaction" in str(caught.value)
        with pytest.raises(BackendError, match="is in a transaction"):
            queue.stats("work")
    assert _visible(queue) == [b"0"]
    engine.dispose()


def test_waiting_pops_find_a_commit(url: str, engine: Engine) -> None:
    """Nobody tells them; they look now and then, long before their wait is over."""
    with open_queue(url) as queue:
        came: list[float] = []

        def pop() -> None:
            if queue.pop("work", wait=timedelta(seconds=20)):
                came.append(time.monotonic())

        waiting = Thread(target=pop)
        waiting.start()
        time.sleep(0.3)
        with engine.begin() as connection:
            queue.push_within(connection, Message("work"))
        committed = time.monotonic()
        waiting.join(20)
        assert len(came) == 1
        assert came[0] - committed < 10


def test_an_asynchronous_session_commits_or_leaves_nothing(queue: SQLQueue, url: str) -> None:
    """Through AsyncQueue, with a savepoint, and an id that is retained does no harm."""
    queue.create_tables()
    queue.push(Message("work", b"0", id="taken"))

    async def run() -> list[tuple[int, type]]:
        engine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
        asynchronous = AsyncQueue(queue)
        async with AsyncSession(engine) as session:
            await asynchronous.push_within(session, Message("work", b"1"))
            async with session.begin_nested() as savepoint:
                await asynchronous.push_within(session, Message("work", b"undone"))
                await savepoint.rollback()
            with pytest.raises(BatchError) as caught:
                await asynchronous.push_within(
                    session, Message("work", b"2"), Message("work", b"again", id="taken")
                )
            await session.commit()
        async with AsyncSession(engine) as session:
            await asynchronous.push_within(session, Message("work", b"never"))
            await session.rollback()
        async with engine.begin() as connection:
            await asynchronous.push_within(connection, Message("work", b"3"))
        await engine.dispose()
        return _failed(caught.value)

    assert asyncio.run(run()) == [(1, AlreadyExists)]
    assert _visible(queue) == [b"0", b"1", b"2", b"3"]


# Another database


@pytest.fixture
def application(file: Path) -> Iterator[Path]:
    """A database beside the queue's."""
    other = file.with_name("app.db")
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    yield other
    with closing(sqlite3.connect(other)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert names == [("orders",)]


@pytest.mark.parametrize("kind", ["Connection", "Session", "sqlite3", "in memory"])
def test_a_connection_into_another_file_is_refused(
    queue: SQLQueue, file: Path, application: Path, kind: str
) -> None:
    """InvalidArgument that names both; no table is made there, and the transaction goes on."""
    engine = create_engine(f"sqlite:///{application}")
    opened: dict[str, Callable[[], Any]] = {
        "Connection": engine.connect,
        "Session": lambda: Session(engine),
        "sqlite3": lambda: sqlite3.connect(application),
        "in memory": lambda: sqlite3.connect(":memory:"),
    }
    with closing(opened[kind]()) as connection:
        assert not queue.shares_database(connection)
        with pytest.raises(BatchError) as caught:
            queue.push_within(connection, Message("work"))
        assert _failed(caught.value) == [(0, InvalidArgument)]
        assert str(file) in str(caught.value)
        assert (str(application) if kind != "in memory" else "in memory") in str(caught.value)
        if kind in ("Connection", "Session"):
            connection.execute(text("INSERT INTO orders VALUES (1)"))
            connection.commit()
    engine.dispose()


@pytest.mark.parametrize("way", ["symbolic link", "relative", "file URI", "hard link"])
def test_other_paths_to_the_file_are_the_same_database(
    queue: SQLQueue, file: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What counts is the file."""
    queue.create_tables()
    monkeypatch.chdir(file.parent)
    link = file.with_name("link.db")
    if way == "symbolic link":
        link.symlink_to(file)
    elif way == "hard link":
        # Closed, since the log beside a file is found by its path.
        queue._dialect._engine.dispose()
        link.hardlink_to(file)
    path = {"relative": file.name, "file URI": f"file:{file}?mode=rw"}.get(way, str(link))
    with closing(sqlite3.connect(path, uri=path.startswith("file:"))) as connection:
        assert queue.shares_database(connection)
        if way != "hard link":
            queue.push_within(connection, Message("work", b"0"))
            connection.commit()
            assert _visible(queue) == [b"0"]


@pytest.mark.parametrize("url", ["sqlite:///link.db", "sqlite:///file:jobs.db?uri=true"])
def test_an_engine_may_name_the_file_in_another_way(
    file: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """A queue over it takes connections to the file, before there is one, too."""
    monkeypatch.chdir(file.parent)
    file.with_name("link.db").symlink_to(file)
    engine = create_engine(url)
    queue = SQLQueue(engine, create_tables=True)
    with closing(sqlite3.connect(file)) as connection:
        assert queue.shares_database(connection)
        queue.push_within(connection, Message("work", b"0"))
        connection.commit()
    assert _visible(queue) == [b"0"]
    engine.dispose()


def test_a_memory_is_shared_by_those_who_have_it() -> None:
    """The engine's own connection, and others under a common name; no other memory."""
    single = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    named, same_name = (
        create_engine(
            "sqlite:///file:shared?mode=memory&cache=shared&uri=true", poolclass=QueuePool
        )
        for _ in range(2)
    )
    for engine, other in ((single, single), (named, same_name)):
        queue = SQLQueue(engine, create_tables=True)
        queue.create_tables()
        with other.begin() as connection:
            assert queue.shares_database(connection)
            assert queue.shares_database(connection.connection.dbapi_connection) is (
                engine is single
            )
            queue.push_within(connection, Message("work", b"0"))
        assert _visible(queue) == [b"0"]
    with named.connect() as connection:
        assert not SQLQueue(single).shares_database(connection)
    for engine in (single, named, same_name):
        engine.dispose()


def test_the_file_of_an_attached_database_counts(file: Path, application: Path) -> None:
    """Where the queue's tables are in one: `schema` names it."""
    engine = create_engine(f"sqlite:///{application}")
    event.listen(engine, "connect", lambda c, _record: c.execute(f"ATTACH '{file}' AS jobs"))
    queue = SQLQueue(engine, schema="jobs", create_tables=True)
    queue.create_tables()
    with closing(sqlite3.connect(application)) as connection:
        assert not queue.shares_database(connection)
        connection.execute(f"ATTACH '{file}' AS jobs")
        assert queue.shares_database(connection)
        queue.push_within(connection, Message("work", b"0"))
        connection.commit()
    with engine.begin() as connection:
        queue.push_within(connection, Message("work", b"1"))
    assert _visible(queue) == [b"0", b"1"]
    engine.dispose()
