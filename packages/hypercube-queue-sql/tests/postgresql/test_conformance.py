"""The contract, kept by PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Self

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from tools.backends import exclusive, server

from hypercube_queue import CAPABILITIES, Guarantees, Queue, open_queue
from hypercube_queue_conformance import Borrowed, Harness, QueueConformance, Silenceable
from hypercube_queue_sql import SQLQueue

pytestmark = pytest.mark.server("postgres")


class PostgreSQLHarness(Harness):
    """A table of its own in a database that all tests share."""

    guarantees = Guarantees(durable=True, ordering="fifo", max_message_bytes=256 * 1024 * 1024)
    capabilities = frozenset(CAPABILITIES)

    def __init__(self) -> None:
        self._place = server("postgres")
        self._undo = ExitStack()
        self._table = f"t{secrets.token_hex(8)}"
        self._made: Engine | None = None

    @classmethod
    def restartable(cls) -> Self:
        harness = cls()
        harness._place = harness._undo.enter_context(exclusive("postgres"))
        return harness

    @property
    def _engine(self) -> Engine:
        """The application's own."""
        if self._made is None:
            self._made = create_engine(self._place.url("postgresql+psycopg"))
            self._undo.callback(self._made.dispose)
        return self._made

    def close(self) -> None:
        with self._engine.begin() as connection:
            for table in (self._table, f"{self._table}_layout"):
                connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
        self._undo.close()

    def url(self) -> str:
        return self._place.url("postgresql", table=self._table, create_tables="true")

    def open(self, **options: timedelta) -> Queue:
        seconds = "".join(f"&{name}={value.total_seconds()}" for name, value in options.items())
        return open_queue(self.url() + seconds)

    def opener(self) -> Callable[[], Queue]:
        return partial(open_queue, self.url())

    def borrow(self) -> Borrowed:
        queue = SQLQueue(self._engine, table=self._table, create_tables=True)
        return Borrowed(queue, partial(_answers, self._engine))

    def restart(self) -> None:
        self._place.kill()
        self._place.start()

    def open_unreachable(self) -> Queue:
        """A server that has gone silent, behind connections that stay open."""
        place = self._undo.enter_context(exclusive("postgres"))
        relay = self._undo.enter_context(place.relay())
        relay.cut()
        url = place.url("postgresql", operation_timeout=1)
        return open_queue(url.replace(f":{place.port}/", f":{relay.port}/"))

    def open_silenceable(self) -> Silenceable:
        """A server that is stopped in the midst."""
        place = self._undo.enter_context(exclusive("postgres"))
        options = {"table": f"t{secrets.token_hex(8)}", "create_tables": "true"}
        url = place.url("postgresql", **options, operation_timeout=3)
        return Silenceable(open_queue(url), place.pause, timedelta(seconds=3))

    def open_misconfigured(self) -> Queue:
        """A database that does not exist."""
        place = server("postgres")
        return open_queue(place.url("postgresql").replace(f"/{place.database}", "/missing"))

    def insert_unreadable(self, queue_name: str) -> bytes:
        """A job name that is not UTF-8."""
        SQLQueue(self._engine, table=self._table).create_tables()
        with self._engine.begin() as connection:
            connection.execute(
                text(
                    f"INSERT INTO {self._table} (queue_name, id, state, visible_at, attempt, "
                    r"job_name, namespace, extra, payload) VALUES (:name, '\x01', 0, 0, 0, "
                    r"'\xff', '', '', :payload)"
                ),
                {"name": queue_name.encode(), "payload": b"payload"},
            )
        return b"payload"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def foreign_transaction(self) -> Iterator[Connection]:
        """Another database of the server, with the table."""
        name = f"d{secrets.token_hex(8)}"
        with _administrating(self._engine) as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine = create_engine(self._place.url("postgresql+psycopg", database=name))
        try:
            SQLQueue(engine, table=self._table).create_tables()
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()
            with _administrating(self._engine) as connection:
                connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@contextmanager
def _administrating(engine: Engine) -> Iterator[Connection]:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


def _answers(engine: Engine) -> bool:
    with engine.connect() as connection:
        return connection.scalar(text("SELECT 1")) == 1


class TestPostgreSQL(QueueConformance):
    """A server with its default settings, through psycopg."""

    harness = PostgreSQLHarness
