"""Dispatching within Django's transactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import django
import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from sqlalchemy import create_engine

from hypercube_jobs import Jobs
from hypercube_queue import Queue
from hypercube_queue_memory import MemoryQueue
from hypercube_queue_sql import SQLQueue


@dataclass
class Invoice:
    """A job."""

    order_id: int


@pytest.fixture(autouse=True)
def database(tmp_path: Path) -> Iterator[Path]:
    """Django's default database, a file with a table of orders."""
    file = tmp_path / "app.db"
    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}}
        )
        django.setup()
    connections["default"].settings_dict["NAME"] = str(file)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    yield file
    connections.close_all()


def on(queue: Queue) -> Jobs:
    jobs = Jobs(queue)
    jobs.declare("invoice", Invoice)
    return jobs


def insert(order_id: int = 1) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", [order_id])


EITHER = pytest.mark.parametrize(
    "named", [lambda: connection, lambda: connections["default"]], ids=["proxy", "by alias"]
)


@EITHER
def test_a_job_is_stored_after_the_commit(named) -> None:
    """`django.db.connection` and `connections[alias]` are alike."""
    jobs = on(MemoryQueue())
    with transaction.atomic():
        insert()
        result = jobs.dispatch_within(named(), Invoice(1))
        assert jobs.pending() == 0

    assert jobs.pending() == 1
    assert result.created is None


def test_a_rollback_takes_the_job_along() -> None:
    """Of the transaction, or of the savepoint it was dispatched in."""
    jobs = on(MemoryQueue())
    with transaction.atomic():
        jobs.dispatch_within(connection, Invoice(1))
        transaction.set_rollback(True)
    with transaction.atomic():
        with transaction.atomic():
            jobs.dispatch_within(connection, Invoice(2))
            transaction.set_rollback(True)
        jobs.dispatch_within(connection, Invoice(3), id="three")

    assert [message.id for message in jobs.queue.pop("default", 9)] == ["three"]


@pytest.mark.parametrize("shares", [False, True])
def test_outside_of_atomic_the_job_is_stored_now(database: Path, shares: bool) -> None:
    """Each statement commits by itself there."""
    engine = create_engine(f"sqlite:///{database}")
    queue = SQLQueue(engine, create_tables=True) if shares else MemoryQueue()
    jobs = on(queue)

    assert jobs.dispatch_within(connection, Invoice(1)).created is True
    assert jobs.pending() == 1
    queue.close()
    engine.dispose()


def test_a_driver_that_shares_the_transaction_stores_at_once(database: Path) -> None:
    """Through Django's own connection, in the same database."""
    engine = create_engine(f"sqlite:///{database}")
    queue = SQLQueue(engine, create_tables=True)
    jobs = on(queue)
    queue.stats("default")
    with transaction.atomic():
        jobs.dispatch_within(connection, Invoice(1), id="one")
        transaction.set_rollback(True)
    with transaction.atomic():
        insert()
        first = jobs.dispatch_within(connection, Invoice(1), id="one")
        second = jobs.dispatch_within(connection, Invoice(1), id="one")

    assert (first.created, second.created) == (True, False)
    assert jobs.pending() == 1
    queue.close()
    engine.dispose()
