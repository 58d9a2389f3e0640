"""Dispatching within a transaction, whose driver shares it or not."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from hypercube_jobs import InlineDelay, InlineQueue, InvalidPayload, Jobs, NotSupported, UnknownKind
from hypercube_queue import InvalidArgument
from hypercube_queue_memory import MemoryQueue
from hypercube_queue_sql import SQLQueue


@dataclass
class Invoice:
    """A job."""

    order_id: int


def on(queue: Any) -> Jobs:
    jobs = Jobs(queue)
    jobs.declare("invoice", Invoice)
    return jobs


@pytest.fixture
def jobs() -> Jobs:
    """On a queue that shares no transaction."""
    return on(MemoryQueue())


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/app.db")
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
    yield made
    made.dispose()


Opened = Callable[[Engine], Any]
EACH = pytest.mark.parametrize(
    "opened",
    [
        pytest.param(lambda engine: engine.connect(), id="Connection"),
        pytest.param(Session, id="Session"),
        pytest.param(lambda engine: scoped_session(sessionmaker(engine)), id="scoped_session"),
    ],
)


def close(connection: Any) -> None:
    connection.close()


def insert(connection: Any, order_id: int = 1) -> None:
    connection.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order_id})


@EACH
def test_a_job_is_stored_after_the_commit(jobs: Jobs, engine: Engine, opened: Opened) -> None:
    """Not before, and only once; whether its id was new is not known before."""
    connection = opened(engine)
    insert(connection)
    result = jobs.dispatch_within(connection, Invoice(1), id="one")

    assert jobs.pending() == 0
    connection.commit()
    assert jobs.pending() == 1
    insert(connection, 2)
    connection.commit()
    assert jobs.pending() == 1
    assert (result.id, result.created) == ("one", None)
    close(connection)


@EACH
def test_a_rollback_takes_the_job_along(jobs: Jobs, engine: Engine, opened: Opened) -> None:
    """Also when something else is committed later, and when the connection is just closed."""
    connection = opened(engine)
    insert(connection)
    jobs.dispatch_within(connection, Invoice(1))
    connection.rollback()
    insert(connection)
    connection.commit()
    insert(connection, 2)
    jobs.dispatch_within(connection, Invoice(2))
    close(connection)

    assert jobs.pending() == 0


def test_a_session_that_is_closed_and_used_again_has_no_jobs_left(
    jobs: Jobs, engine: Engine
) -> None:
    """Closing it rolls back, savepoints too."""
    with Session(engine) as session:
        insert(session)
        jobs.dispatch_within(session, Invoice(1))
        session.begin_nested()
        jobs.dispatch_within(session, Invoice(2))
        session.close()
        insert(session)
        jobs.dispatch_within(session, Invoice(3), id="three")
        session.commit()

    assert [message.id for message in jobs.queue.pop("default", 9)] == ["three"]


@EACH
def test_without_an_open_transaction_the_job_is_stored_now(
    jobs: Jobs, engine: Engine, opened: Opened
) -> None:
    """There is nothing to wait for."""
    connection = opened(engine)

    assert jobs.dispatch_within(connection, Invoice(1)).created is True
    assert jobs.pending() == 1
    close(connection)


@EACH
def test_a_savepoint_that_is_rolled_back_takes_its_jobs_along(
    jobs: Jobs, engine: Engine, opened: Opened
) -> None:
    """And no others; one that is released leaves them to the transaction."""
    connection = opened(engine)
    insert(connection)
    jobs.dispatch_within(connection, Invoice(1), id="before")
    with connection.begin_nested():
        jobs.dispatch_within(connection, Invoice(1), id="released")
    assert jobs.pending() == 0
    outer = connection.begin_nested()
    jobs.dispatch_within(connection, Invoice(1), id="in the outer")
    with connection.begin_nested():
        jobs.dispatch_within(connection, Invoice(1), id="in the inner")
    outer.rollback()
    jobs.dispatch_within(connection, Invoice(1), id="behind")
    connection.commit()

    ids = [message.id for message in jobs.queue.pop("default", 10)]
    assert ids == ["before", "released", "behind"]
    close(connection)


@EACH
def test_a_savepoint_that_is_older_than_all_jobs_takes_all_along(
    jobs: Jobs, engine: Engine, opened: Opened
) -> None:
    """It was set before anybody watched."""
    connection = opened(engine)
    insert(connection)
    savepoint = connection.begin_nested()
    jobs.dispatch_within(connection, Invoice(1))
    savepoint.rollback()
    connection.commit()

    assert jobs.pending() == 0
    close(connection)


def test_a_with_block_commits_as_well(jobs: Jobs, engine: Engine) -> None:
    """Of the engine, the connection, and the session."""
    with engine.begin() as connection:
        jobs.dispatch_within(connection, Invoice(1))
    with engine.connect() as connection, connection.begin():
        jobs.dispatch_within(connection, Invoice(2))
    with Session(engine) as session, session.begin():
        jobs.dispatch_within(session, Invoice(3))
    with Session(engine) as session, session.begin():
        # The connection beneath is committed by the session.
        jobs.dispatch_within(session.connection(), Invoice(4))

    assert jobs.pending() == 4


def test_a_commit_that_fails_stores_nothing(jobs: Jobs, engine: Engine) -> None:
    """The error is SQLAlchemy's own, as if nobody had listened."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE lines (id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES "
                "orders(id) DEFERRABLE INITIALLY DEFERRED)"
            )
        )

    def fail(connection: Any) -> None:
        connection.execute(text("INSERT INTO lines VALUES (1, 99)"))
        jobs.dispatch_within(connection, Invoice(1))
        with pytest.raises(IntegrityError):
            connection.commit()
        connection.rollback()
        connection.close()

    event.listen(engine, "connect", lambda made, _: made.execute("PRAGMA foreign_keys=ON"))
    engine.dispose()
    fail(engine.connect())
    engine.dispose()
    fail(Session(engine))

    assert jobs.pending() == 0


def test_bad_jobs_are_refused_within_the_transaction(jobs: Jobs, engine: Engine) -> None:
    """While it can still be rolled back."""
    with engine.begin() as connection:
        with pytest.raises(UnknownKind):
            jobs.dispatch_within(connection, object())
        with pytest.raises(InvalidPayload):
            jobs.dispatch_kind_within(connection, "invoice", {"order_id": "x"})
        jobs.dispatch_kind_within(connection, "invoice", {"order_id": 1})

    assert jobs.pending() == 1


def test_what_goes_wrong_after_the_commit_is_logged(
    jobs: Jobs, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit is done, so nobody may believe that it failed."""
    with engine.begin() as connection:
        jobs.dispatch_within(connection, Invoice(1), id="one")
        jobs.queue.close()

    assert "job invoice one was dispatched within a transaction" in caplog.text
    assert "could not be stored after the commit: hypercube_queue.QueueClosed" in caplog.text


def test_an_inline_job_runs_after_the_commit(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """It sees what was committed, and may use the session; its error is logged."""
    jobs, seen = Jobs(InlineQueue()), []
    sessions = scoped_session(sessionmaker(engine))

    @jobs.handler("invoice")
    def invoice(job: Invoice) -> None:
        seen.append(sessions().execute(text("SELECT count(*) FROM orders")).scalar())
        if job.order_id < 0:
            raise ValueError("there is no such order")

    with sessions() as session:
        insert(session)
        jobs.dispatch_within(session, Invoice(1))
        assert seen == []
        session.commit()
    with sessions() as session:
        insert(session, 2)
        jobs.dispatch_within(session, Invoice(-1))
        session.commit()

    assert seen == [1, 2]
    assert "failed after the commit: ValueError: there is no such order" in caplog.text


def test_what_is_known_up_front_is_raised_within_the_transaction(engine: Engine) -> None:
    """A delay that cannot be, and a kind that nobody handles."""
    jobs = on(InlineQueue())
    with engine.begin() as connection:
        with pytest.raises(UnknownKind, match="has no handler here"):
            jobs.dispatch_within(connection, Invoice(1))
        from datetime import timedelta

        with pytest.raises(InlineDelay):
            jobs.dispatch_within(connection, Invoice(1), delay=timedelta(1))


def test_a_connection_that_tells_nothing_is_refused(jobs: Jobs) -> None:
    """The job would exist whether the caller commits or not."""
    connection = sqlite3.connect(":memory:")
    with pytest.raises(NotSupported, match="a Connection tells nobody when it commits"):
        jobs.dispatch_within(connection, Invoice(1))
    connection.close()

    assert jobs.pending() == 0


def test_a_driver_that_shares_the_transaction_stores_at_once(engine: Engine) -> None:
    """The job exists if and only if it commits, and `created` is known."""
    queue = SQLQueue(engine, create_tables=True)
    jobs = on(queue)
    with engine.connect() as connection:
        assert jobs.dispatch_within(connection, Invoice(1), id="one").created is True
        assert (
            jobs.dispatch_kind_within(connection, "invoice", {"order_id": 1}, id="one").created
            is False
        )
        connection.rollback()
    assert jobs.pending() == 0
    with Session(engine) as session, session.begin():
        jobs.dispatch_within(session, Invoice(1))
    assert jobs.pending() == 1
    queue.close()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[SQLQueue]:
    """A queue in another database than the application's."""
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
    yield SQLQueue(engine, create_tables=True)
    engine.dispose()


def tables(engine: Engine) -> list[str]:
    return inspect(engine).get_table_names()


@EACH
def test_a_job_for_another_database_is_stored_after_the_commit(
    elsewhere: SQLQueue, engine: Engine, opened: Opened
) -> None:
    """It cannot be in the transaction, and nothing of it may end in the application's database."""
    jobs = on(elsewhere)
    connection = opened(engine)
    insert(connection)
    assert jobs.dispatch_within(connection, Invoice(1), id="one").created is None
    assert jobs.pending() == 0
    connection.commit()
    assert [message.id for message in elsewhere.pop("default", 10)] == ["one"]

    insert(connection, 2)
    jobs.dispatch_within(connection, Invoice(2))
    connection.rollback()
    assert elsewhere.pop("default", 10, wait=timedelta(0)) == []
    close(connection)
    assert tables(engine) == ["orders"]


@EACH
def test_a_job_for_another_database_is_stored_now_where_no_transaction_is_open(
    elsewhere: SQLQueue, engine: Engine, opened: Opened
) -> None:
    """And none is begun: nobody would commit it."""
    jobs = on(elsewhere)
    connection = opened(engine)
    assert jobs.dispatch_within(connection, Invoice(1)).created is True
    synchronous = connection() if callable(connection) else connection
    assert not synchronous.in_transaction()
    close(connection)
    assert jobs.pending() == 1


def test_a_plain_connection_into_another_database_is_refused(
    elsewhere: SQLQueue, tmp_path: Path
) -> None:
    """Nothing tells when it commits."""
    connection = sqlite3.connect(tmp_path / "app.db")
    with pytest.raises(NotSupported, match="not in the same database"):
        on(elsewhere).dispatch_within(connection, Invoice(1))
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()


# Asynchronous connections


@pytest.fixture
def async_engine(engine: Engine) -> AsyncEngine:
    return create_async_engine(engine.url.set(drivername="sqlite+aiosqlite"))


ASYNC = pytest.mark.parametrize(
    "opened",
    [
        pytest.param(lambda engine: engine.connect(), id="AsyncConnection"),
        pytest.param(AsyncSession, id="AsyncSession"),
        pytest.param(
            lambda engine: async_scoped_session(
                lambda: AsyncSession(engine), scopefunc=asyncio.current_task
            ),
            id="async_scoped_session",
        ),
    ],
)


async def started(connection: Any) -> Any:
    if isinstance(connection, AsyncConnection):
        await connection.start()
    return connection


@ASYNC
@pytest.mark.parametrize("shares", [False, True])
def test_asynchronous_transactions_are_alike(
    engine: Engine, async_engine: AsyncEngine, opened: Any, shares: bool
) -> None:
    """With and without a driver that shares them."""
    queue = SQLQueue(engine, create_tables=True) if shares else MemoryQueue()
    jobs = on(queue)
    queue.stats("default")

    async def main() -> None:
        connection = await started(opened(async_engine))
        await connection.execute(text("INSERT INTO orders VALUES (1)"))
        await jobs.dispatch_within_async(connection, Invoice(1), id="rolled back")
        await connection.rollback()
        await connection.execute(text("INSERT INTO orders VALUES (2)"))
        await jobs.dispatch_within_async(connection, Invoice(1), id="one")
        await jobs.dispatch_kind_within_async(connection, "invoice", {"order_id": 2}, id="two")
        with pytest.raises(InvalidArgument, match=r"await jobs\.dispatch_within_async"):
            jobs.dispatch_within(connection, Invoice(1))
        await connection.commit()
        await connection.close()
        await async_engine.dispose()

    asyncio.run(main())

    assert sorted(message.id for message in queue.pop("default", 10)) == ["one", "two"]
    queue.close()


@ASYNC
def test_an_asynchronous_transaction_of_another_database_is_waited_for(
    elsewhere: SQLQueue, engine: Engine, async_engine: AsyncEngine, opened: Any
) -> None:
    """Stored after the commit; without a transaction, now."""
    jobs = on(elsewhere)

    async def main() -> None:
        connection = await started(opened(async_engine))
        assert (await jobs.dispatch_within_async(connection, Invoice(1))).created is True
        await connection.execute(text("INSERT INTO orders VALUES (1)"))
        assert (await jobs.dispatch_within_async(connection, Invoice(2))).created is None
        assert jobs.pending() == 1
        await connection.commit()
        assert jobs.pending() == 2
        await connection.close()
        await async_engine.dispose()

    asyncio.run(main())
    assert tables(engine) == ["orders"]


def test_an_asynchronous_inline_job_runs_on_the_callers_loop(async_engine: AsyncEngine) -> None:
    """After the commit, where it can use what belongs to that loop."""
    jobs, seen = Jobs(InlineQueue()), []

    @jobs.handler("invoice")
    async def invoice(job: Invoice) -> None:
        async with async_engine.connect() as connection:
            count = (await connection.execute(text("SELECT count(*) FROM orders"))).scalar()
        seen.append((count, asyncio.get_running_loop()))

    async def main() -> None:
        async with AsyncSession(async_engine) as session:
            await session.execute(text("INSERT INTO orders VALUES (1)"))
            await jobs.dispatch_within_async(session, Invoice(1))
            assert seen == []
            await session.commit()
        async with AsyncSession(async_engine) as session:
            # Nothing is open, so it runs now.
            await jobs.dispatch_within_async(session, Invoice(2))
        assert seen == [(1, asyncio.get_running_loop())] * 2
        await async_engine.dispose()

    asyncio.run(main())
    assert len(seen) == 2


_WITHOUT_GREENLET = """
import sys
from dataclasses import dataclass

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name == "greenlet":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusing())

from sqlalchemy import create_engine
from hypercube_jobs import Jobs
from hypercube_queue_memory import MemoryQueue

@dataclass
class Note:
    text: str

jobs = Jobs(MemoryQueue())
jobs.declare("note", Note)
with create_engine("sqlite://").begin() as connection:
    jobs.dispatch_within(connection, Note("x"))
assert jobs.pending() == 1
"""


def test_synchronous_connections_need_no_greenlet() -> None:
    """SQLAlchemy installs that library only for asynchronous ones."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_GREENLET], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def test_a_synchronous_connection_may_be_used_by_a_coroutine(jobs: Jobs, engine: Engine) -> None:
    """It blocks as its own calls do, with and without a driver that shares it."""

    async def main(jobs: Jobs) -> None:
        with engine.begin() as connection:
            insert(connection)
            await jobs.dispatch_within_async(connection, Invoice(1))
            connection.execute(text("DELETE FROM orders"))

    asyncio.run(main(jobs))
    queue = SQLQueue(engine, create_tables=True)
    sharing = on(queue)
    queue.stats("default")
    asyncio.run(main(sharing))

    assert (jobs.pending(), sharing.pending()) == (1, 1)
    queue.close()


def test_an_asynchronous_connection_that_was_not_started_is_refused(
    jobs: Jobs, async_engine: AsyncEngine
) -> None:
    """It has no transaction yet, and no way to tell."""

    async def main() -> None:
        with pytest.raises(InvalidArgument, match="has not been started"):
            await jobs.dispatch_within_async(async_engine.connect(), Invoice(1))

    asyncio.run(main())


def test_a_transaction_in_two_phases_is_refused(jobs: Jobs) -> None:
    """What would tell of its commit is not there."""
    from sqlalchemy.engine import TwoPhaseTransaction

    class Fake(Connection):
        def __init__(self) -> None:
            pass

        def in_transaction(self) -> bool:
            return True

        def get_transaction(self) -> Any:
            return object.__new__(TwoPhaseTransaction)

    with pytest.raises(NotSupported, match="nothing tells when a TwoPhaseTransaction commits"):
        jobs.dispatch_within(Fake(), Invoice(1))


def test_a_locked_database_is_sqlalchemys_error(engine: Engine) -> None:
    """Watching changes nothing about errors of other statements."""
    jobs = on(MemoryQueue())
    with engine.connect() as connection:
        insert(connection)
        jobs.dispatch_within(connection, Invoice(1))
        with pytest.raises(OperationalError):
            connection.execute(text("SELECT * FROM nowhere"))
        connection.commit()

    assert jobs.pending() == 1
