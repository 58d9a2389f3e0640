"""Engines of the caller's, with whatever pools, modes and events they have."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Engine, NullPool, QueuePool, StaticPool, create_engine, event, make_url
from sqlalchemy.pool import SingletonThreadPool

from hypercube_queue import BackendError, InvalidArgument, Message
from hypercube_queue_sql import SQLQueue

NOTHING = timedelta(0)


def _with_rows_as_dicts(url: str) -> Engine:
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def set_up(connection, _record) -> None:
        connection.row_factory = lambda cursor, row: {
            c[0]: v for c, v in zip(cursor.description, row, strict=True)
        }
        connection.text_factory = bytes

    return engine


ENGINES: dict[str, Callable[[str], Engine]] = {
    "as SQLAlchemy makes it": create_engine,
    "without a pool": lambda url: create_engine(url, poolclass=NullPool),
    "one connection in the pool": lambda url: create_engine(url, pool_size=1, max_overflow=0),
    "in autocommit": lambda url: create_engine(url, isolation_level="AUTOCOMMIT"),
    "by the module's immediate mode": lambda url: create_engine(
        url, connect_args={"isolation_level": "IMMEDIATE"}
    ),
    "without patience": lambda url: create_engine(url, connect_args={"timeout": 0}),
    "by a creator": lambda url: create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(make_url(url).database, check_same_thread=False),
        poolclass=QueuePool,
    ),
    "by an SQLite URI": lambda url: create_engine(
        f"sqlite:///file:{make_url(url).database}?mode=rwc&uri=true"
    ),
    "with rows as dicts": _with_rows_as_dicts,
    "one connection for all": lambda url: create_engine(
        url, poolclass=StaticPool, connect_args={"check_same_thread": False}
    ),
    "in memory": lambda _url: create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    ),
    "in memory, several connections": lambda _url: create_engine(
        "sqlite:///file:/hypercube-test?vfs=memdb&uri=true",
        pool_size=3,
        connect_args={"check_same_thread": False},
    ),
}
if sys.version_info >= (3, 12):
    ENGINES["always in a transaction"] = lambda url: create_engine(
        url, connect_args={"autocommit": False}
    )


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, url: str):
    """Each way in which an application may have made its engine."""
    made = ENGINES[request.param](url)
    yield made
    made.dispose()


def test_a_queue_works_on_any_engine(engine: Engine) -> None:
    """Push, pop, settle, look, all through what the caller has made."""
    queue = SQLQueue(engine, create_tables=True)
    queue.push(*(Message("work", b"%d" % number) for number in range(4)))
    acked, retried, dead, released = queue.pop("work", 10)
    queue.ack(acked)
    queue.retry(retried)
    queue.dead_letter(dead)
    queue.release(released)

    assert queue.stats("work").ready == 2
    assert [each.message.payload for each in queue.dead_letters("work", 10)] == [b"2"]
    assert queue.redrive("work", 1) == 1
    assert sorted(each.payload for each in queue.pop("work", 10)) == [b"1", b"2", b"3"]


def test_threads_share_any_engine(engine: Engine) -> None:
    """Each message goes to one of them, none is lost, and none waits for a pool in vain."""
    queue = SQLQueue(engine, create_tables=True)

    def push(thread: int) -> None:
        for number in range(10):
            queue.push(Message("work", b"%d-%d" % (thread, number)))

    def drain(_thread: int) -> list[bytes]:
        taken = []
        while popped := queue.pop("work", 3, wait=NOTHING):
            queue.ack(*popped)
            taken += [each.payload for each in popped]
        return taken

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(push, range(6)))
        taken = [payload for each in threads.map(drain, range(6)) for payload in each]

    assert sorted(taken) == sorted(b"%d-%d" % (t, n) for t in range(6) for n in range(10))


@pytest.mark.parametrize("engine", sorted(ENGINES.keys() - {"in autocommit"}), indirect=True)
def test_a_transaction_joins_any_engine(engine: Engine) -> None:
    """Rolled back it left nothing, committed it left the message."""
    queue = SQLQueue(engine, create_tables=True)
    queue.create_tables()
    with engine.connect() as connection:
        queue.push_within(connection, Message("work", b"lost"))
        connection.rollback()
        queue.push_within(connection, Message("work", b"kept"))
        connection.commit()

    assert [each.payload for each in queue.pop("work", 10, wait=NOTHING)] == [b"kept"]


def test_closing_the_queue_leaves_the_engine_open(engine: Engine) -> None:
    """Its connections too: an in-memory database lives on."""
    queue = SQLQueue(engine, create_tables=True)
    queue.push(Message("work", b"0"))
    queue.close()

    assert [each.payload for each in SQLQueue(engine).pop("work")] == [b"0"]


def test_a_connection_is_given_back_as_it_came(url: str) -> None:
    """In the module's mode and with the journal that the caller chose."""
    engine = create_engine(url, pool_size=1, max_overflow=0)
    queue = SQLQueue(engine, create_tables=True)
    queue.push(Message("work"))
    with engine.connect() as connection:
        plain = connection.connection.dbapi_connection
        assert plain.isolation_level == ""
        assert not plain.in_transaction
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
    engine.dispose()


def test_a_disposed_engine_opens_anew(url: str) -> None:
    """LIFE-2: whatever the caller does to his pool, the next call works."""
    engine = create_engine(url)
    queue = SQLQueue(engine, create_tables=True)
    queue.push(Message("work", b"0"))
    engine.dispose()

    assert [each.payload for each in queue.pop("work")] == [b"0"]
    engine.dispose()


def test_a_connection_that_somebody_closed_fails_one_call(url: str) -> None:
    """LIFE-2: BackendError, nothing changed, and the next call has another connection."""
    engine = create_engine(url, pool_size=1)
    queue = SQLQueue(engine, create_tables=True)
    queue.push(Message("work", b"0"))
    with engine.connect() as connection:
        connection.connection.dbapi_connection.close()
        connection.invalidate()
    pooled = engine.raw_connection()
    pooled.driver_connection.close()
    pooled._connection_record.checkin()
    with pytest.raises(BackendError):
        queue.pop("work", wait=NOTHING)

    assert [each.payload for each in queue.pop("work")] == [b"0"]
    engine.dispose()


def test_a_pool_without_a_free_connection_is_an_error_that_says_so(url: str) -> None:
    """BackendError with SQLAlchemy's time-out as its cause."""
    engine = create_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    queue = SQLQueue(engine, create_tables=True)
    with engine.connect(), pytest.raises(BackendError, match="pool"):
        queue.pop("work", wait=NOTHING)

    assert queue.pop("work", wait=NOTHING) == []
    engine.dispose()


def test_guarantees_follow_the_engine(url: str) -> None:
    """Known without I/O: what is in memory is not durable."""
    durable = {name: SQLQueue(make(url)).guarantees.durable for name, make in ENGINES.items()}

    assert {name for name, is_durable in durable.items() if not is_durable} == {
        "by a creator",  # its URL names no file, so nothing is promised
        "in memory",
        "in memory, several connections",
    }


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: "sqlite:///jobs.db", "not str; open_queue"),
        (lambda: None, "not NoneType"),
        (object, "not object"),
        (lambda: create_engine("sqlite://"), "StaticPool"),
        (lambda: create_engine("sqlite://", poolclass=SingletonThreadPool), "StaticPool"),
    ],
)
def test_what_is_no_engine_for_a_queue_is_refused(make: Callable[[], Engine], named: str) -> None:
    """InvalidArgument at the construction, with the remedy."""
    with pytest.raises(InvalidArgument, match=named):
        SQLQueue(make())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"table": "a b"}, "table is 'a b'"),
        ({"schema": "a;b"}, "schema is 'a;b'"),
        ({"poll_timeout": timedelta(-1)}, "poll_timeout is -1 day"),
        ({"poll_timeout": 1.5}, "not float"),
        ({"visibility_timeout": NOTHING}, "visibility_timeout is 0"),
        ({"visibility_timeout": timedelta(days=4000)}, "visibility_timeout is 4000 days"),
        ({"operation_timeout": NOTHING}, "operation_timeout is 0"),
        ({"operation_timeout": 30}, "operation_timeout is a timedelta, not int"),
    ],
)
def test_a_wrong_option_is_refused(url: str, options: dict[str, object], named: str) -> None:
    """InvalidArgument that names the option and the value."""
    with pytest.raises(InvalidArgument, match=named):
        SQLQueue(create_engine(url), **options)
