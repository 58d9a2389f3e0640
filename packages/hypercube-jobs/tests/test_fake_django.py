"""Handlers that run within a Django TestCase are part of its transaction."""

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import django
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection, connections
from django.test import TestCase

from hypercube_jobs import Jobs
from hypercube_jobs.testing import fake, inline
from hypercube_queue_memory import MemoryQueue


@dataclass
class Ship:
    """Ships an order."""

    order_id: int


@dataclass
class ShipAsync:
    """The same, in a coroutine."""

    order_id: int


@dataclass
class Quit:
    """Ends with an exception that is no Exception."""


jobs = Jobs(MemoryQueue())
#: The threads in which handlers and their statements ran.
threads: set[int] = set()


@pytest.fixture(autouse=True)
def database(tmp_path: Path) -> Iterator[None]:
    """Django's default database, a file with a table of orders."""
    file = tmp_path / "app.db"
    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}}
        )
        django.setup()
    connections["default"].settings_dict["NAME"] = str(file)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, shipped INTEGER)")
    threads.clear()
    yield
    connections.close_all()


def insert() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (1, 0)")


def update(order_id: int) -> None:
    threads.add(threading.get_ident())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders SET shipped = 1 WHERE id = %s", [order_id])
        assert cursor.rowcount == 1, "the order is not to be seen"


def shipped() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT shipped FROM orders")
        return bool(cursor.fetchone()[0])


@jobs.handler("ship", retries=0)
def ship(job: Ship) -> None:
    """Ship it."""
    update(job.order_id)


@jobs.handler("ship_async", retries=0)
async def ship_async(job: ShipAsync) -> None:
    """Ship it, by the way in which Django's asynchronous API does it."""
    await asyncio.sleep(0)
    await sync_to_async(update)(job.order_id)


@jobs.handler("quit", retries=0)
async def quit_(job: Quit) -> None:
    """End."""
    raise SystemExit(3)


EITHER = pytest.mark.parametrize("job", [Ship(1), ShipAsync(1)], ids=["sync", "async"])


def run(test: type[TestCase]) -> None:
    """Run a test of Django's as its runner does, and raise what it raised."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(test).run(result)
    assert result.testsRun == 1
    problems = result.errors + result.failures
    assert not problems, problems[0][1]


@EITHER
def test_the_fake_queue_works_in_the_transaction_of_the_test(job: object) -> None:
    """Which is never committed, so no other connection can see the order."""

    class Test(TestCase):
        databases = frozenset({"default"})

        def test(self) -> None:
            insert()
            with fake(jobs) as queue:
                jobs.dispatch(job)
                queue.work()
                assert jobs.failed() == []
            assert shipped()

    run(Test)
    assert threads == {threading.get_ident()}


@EITHER
def test_a_job_of_a_transaction_is_worked_after_its_commit_is_played(job: object) -> None:
    """As TESTING.md has it."""

    class Test(TestCase):
        databases = frozenset({"default"})

        def test(self) -> None:
            insert()
            with fake(jobs) as queue:
                with self.captureOnCommitCallbacks(execute=True):
                    jobs.dispatch_within(connection, job)
                queue.work()
            assert shipped()

    run(Test)


@EITHER
def test_an_inline_queue_works_in_the_transaction_of_the_test(job: object) -> None:
    """Synchronous handlers and asynchronous ones."""

    class Test(TestCase):
        databases = frozenset({"default"})

        def test(self) -> None:
            insert()
            with inline(jobs):
                jobs.dispatch(job)
            assert shipped()

    run(Test)


@EITHER
def test_an_asynchronous_test_works_in_its_transaction_too(job: object) -> None:
    """By `sync_to_async`, as its other synchronous calls; or inline, on its own loop."""

    class Test(TestCase):
        databases = frozenset({"default"})

        async def test(self) -> None:
            await sync_to_async(insert)()
            with fake(jobs) as queue:
                jobs.dispatch(job)
                await sync_to_async(queue.work)()
                assert jobs.failed() == []
            assert await sync_to_async(shipped)()
            with inline(jobs):
                await jobs.dispatch_async(job)

    run(Test)


def test_a_handler_that_ends_the_process_is_a_failed_attempt() -> None:
    """On Django's loop as on ours."""
    with fake(jobs) as queue:
        jobs.dispatch(Quit())
        queue.work()
        [failed] = jobs.failed()

    assert failed.reason == "SystemExit: 3"
