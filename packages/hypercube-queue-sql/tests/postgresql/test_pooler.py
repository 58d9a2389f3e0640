"""Behind PgBouncer in transaction mode, which gives out a connection for each transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from tools.backends import server
from tools.backends.instance import Server
from tools.backends.pgbouncer import lead_to

from hypercube_queue import Message, open_queue
from hypercube_queue_sql import SQLQueue, _listener

pytestmark = pytest.mark.server("postgres", "pgbouncer")

_LIMIT = 120
NOTHING = timedelta(0)


@pytest.fixture
def pooler() -> Server:
    """A pooler in front of the server."""
    place = server("pgbouncer")
    lead_to(place, server("postgres"))
    return place


@pytest.fixture
def pooled_url(pooler: Server, table: str) -> str:
    """For a queue on the table by way of the pooler, which makes it; more options can follow."""
    return pooler.url(
        "postgresql", database=server("postgres").database, table=table, create_tables="true"
    )


@pytest.fixture
def pooled(pooled_url: str) -> Iterator[SQLQueue]:
    """A queue by way of the pooler; the table is there."""
    with open_queue(pooled_url) as opened:
        assert isinstance(opened, SQLQueue)
        opened.create_tables()
        yield opened


def _until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_clients_that_share_the_pooler_s_connections_do_not_meet(
    pooled: SQLQueue, pooled_url: str
) -> None:
    """No statement of theirs is prepared under a name that another one has."""
    done: list[str] = []
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            with open_queue(pooled_url) as queue:
                for number in range(20):
                    queue.push(Message("work", id=f"{name}-{number}"))
                    queue.retry(*queue.pop("work", 2, wait=NOTHING))
                    popped = queue.pop("work", 2, wait=NOTHING)
                    queue.ack(*popped)
                    done.extend(each.id for each in popped)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=[name]) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT)
    assert errors == []
    while popped := pooled.pop("work", 10, wait=NOTHING):
        pooled.ack(*popped)
        done.extend(each.id for each in popped)
    assert sorted(done) == sorted(f"{name}-{number}" for name in "abcd" for number in range(20))


def test_statements_are_prepared_only_where_no_pooler_is(
    pooled: SQLQueue, queue: SQLQueue, url: str, pooler: Server
) -> None:
    """It is known after the first call, long before psycopg would prepare one."""
    for each, prepares in ((pooled, False), (queue, True)):
        for _ in range(20):
            each.push(Message("work"))
        assert bool(_prepared(each)) is prepares
    with open_queue(f"{url}&prepared_statements=false") as direct:
        assert isinstance(direct, SQLQueue)
        for _ in range(20):
            direct.push(Message("work"))
        assert _prepared(direct) == []


def _prepared(queue: SQLQueue) -> list[Any]:
    """What psycopg has prepared on one of the queue's connections."""
    with closing(queue._dialect._engine.raw_connection()) as pooled:
        return list(pooled.driver_connection._prepared._names)


def test_a_pooler_that_came_later_is_found_out_by_its_errors(
    table: str, pooler: Server, queue: SQLQueue
) -> None:
    """The call is repeated without: a statement that is not there has changed nothing."""
    url = make_url(pooler.url("postgresql+psycopg", database=server("postgres").database))
    engine = create_engine(url)
    late = SQLQueue(engine, table=table)
    late.create_tables()
    late._dialect.client._prepares = True
    for number in range(10):
        late.push(Message("work", b"%d" % number))
    assert _prepared(late)
    with closing(psycopg.connect(pooler.url("postgresql", database="postgres"))) as other:
        other.autocommit = True
        other.prepare_threshold = None
        for _ in range(20):
            other.execute("DEALLOCATE ALL")
            late.push(Message("work"))
    assert late.stats("work").ready == 30
    late.close()
    engine.dispose()


def test_nothing_is_heard_and_pops_look_instead(
    pooled: SQLQueue,
    queue: SQLQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """LISTEN succeeds there; the driver notices that it has no effect, and says so once."""
    caplog.set_level(logging.INFO, "hypercube_queue_sql")
    monkeypatch.setattr(_listener, "_ARRIVAL", 0.5)
    monkeypatch.setattr(_listener, "_SILENCE", 0.2)
    came: list[bytes] = []

    def pop() -> None:
        popped = pooled.pop("work", wait=timedelta(seconds=60))
        came.extend(each.payload for each in popped)

    waiting = threading.Thread(target=pop)
    waiting.start()
    _until(lambda: "LISTEN has no effect" in caplog.text)
    assert not pooled._dialect.hears
    queue.push(Message("work", b"0"))
    waiting.join(_LIMIT)
    assert came == [b"0"]
    assert caplog.text.count("LISTEN has no effect") == 1


def test_a_transaction_through_the_pooler_is_the_server_s(queue: SQLQueue, pooler: Server) -> None:
    """It is told by the server, not by the address."""
    url = pooler.url("postgresql", database=server("postgres").database)
    with closing(psycopg.connect(url)) as connection:
        assert queue.shares_database(connection)
        queue.push_within(connection, Message("work", b"0"))
        connection.commit()
    assert [each.payload for each in queue.pop("work")] == [b"0"]


def test_the_option_takes_true_or_false(url: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="prepared_statements"):
        open_queue(f"{url}&prepared_statements=maybe")
