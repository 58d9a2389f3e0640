"""The contract, kept by MySQL and by MariaDB."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import cache, partial
from typing import ClassVar, Self

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from tools.backends import exclusive, server

from hypercube_queue import CAPABILITIES, Guarantees, Queue, open_queue
from hypercube_queue_conformance import Borrowed, Harness, QueueConformance, Silenceable
from hypercube_queue_sql import SQLQueue

#: Tables by server: creating some takes longer than most tests, so they are emptied and used on.
_MADE: dict[str, list[str]] = {"mysql": [], "mariadb": []}
_FREE: dict[str, list[str]] = {"mysql": [], "mariadb": []}


@pytest.fixture(scope="module", autouse=True)
def tables() -> Iterator[None]:
    """Those of this process are dropped when all tests have run."""
    yield
    for name, made in _MADE.items():
        if made:
            with _engine(name).begin() as connection:
                layouts = [f"{table}_layout" for table in made]
                connection.execute(text(f"DROP TABLE {', '.join(made + layouts)}"))
            _engine(name).dispose()


@cache
def _engine(name: str) -> Engine:
    """The application's own."""
    return create_engine(server(name).url("mysql+pymysql"))


def _empty_table(name: str) -> str:
    if not _FREE[name]:
        table = f"t{secrets.token_hex(8)}"
        SQLQueue(_engine(name), table=table).create_tables()
        _MADE[name].append(table)
        _FREE[name].append(table)
    return _FREE[name].pop()


class MySQLHarness(Harness):
    """A table of its own in a database that all tests share."""

    guarantees = Guarantees(durable=True, ordering="fifo")
    capabilities = frozenset(CAPABILITIES)
    name: ClassVar[str] = "mysql"

    def __init__(self) -> None:
        self._place = server(self.name)
        self._engine = _engine(self.name)
        self._table = _empty_table(self.name)
        self._undo = ExitStack()
        self._undo.callback(self._give_back, self._table)

    def _give_back(self, table: str) -> None:
        with _engine(self.name).begin() as connection:
            connection.execute(text(f"DELETE FROM {table}"))
        _FREE[self.name].append(table)

    @classmethod
    def restartable(cls) -> Self:
        harness = cls()
        harness._place = harness._undo.enter_context(exclusive(cls.name))
        harness._engine = create_engine(harness._place.url("mysql+pymysql"))
        harness._undo.callback(harness._engine.dispose)
        # What was emptied is on the other server.
        harness._table = f"t{secrets.token_hex(8)}"
        harness._undo.callback(harness._drop)
        return harness

    def _drop(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(f"DROP TABLE IF EXISTS {self._table}, {self._table}_layout"))

    def close(self) -> None:
        self._undo.close()

    def url(self) -> str:
        return self._place.url(self.name, table=self._table, create_tables="true")

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
        place = self._undo.enter_context(exclusive(self.name))
        relay = self._undo.enter_context(place.relay())
        relay.cut()
        url = place.url(self.name, operation_timeout=1)
        return open_queue(url.replace(f":{place.port}/", f":{relay.port}/"))

    def open_silenceable(self) -> Silenceable:
        """A server that is stopped in the midst."""
        place = self._undo.enter_context(exclusive(self.name))
        options = {"table": f"t{secrets.token_hex(8)}", "create_tables": "true"}
        url = place.url(self.name, **options, operation_timeout=3)
        return Silenceable(open_queue(url), place.pause, timedelta(seconds=3))

    def open_misconfigured(self) -> Queue:
        """A database that does not exist."""
        place = server(self.name)
        return open_queue(place.url(self.name).replace(f"/{place.database}", "/missing"))

    def insert_unreadable(self, queue_name: str) -> bytes:
        """A job name that is not UTF-8."""
        SQLQueue(self._engine, table=self._table).create_tables()
        with self._engine.begin() as connection:
            connection.execute(
                text(
                    f"INSERT INTO {self._table} (queue_name, id, state, visible_at, attempt, "
                    "job_name, namespace, extra, payload) VALUES (:name, X'01', 0, 0, 0, X'FF', "
                    "X'', X'', :payload)"
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
        with self._engine.begin() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine = create_engine(self._place.url("mysql+pymysql", database=name))
        try:
            SQLQueue(engine, table=self._table).create_tables()
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()
            with self._engine.begin() as connection:
                connection.execute(text(f"DROP DATABASE {name}"))


class MariaDBHarness(MySQLHarness):
    """The same on MariaDB."""

    name = "mariadb"


def _answers(engine: Engine) -> bool:
    with engine.connect() as connection:
        return connection.scalar(text("SELECT 1")) == 1


@pytest.mark.server("mysql")
class TestMySQL(QueueConformance):
    """A server with its default settings, through PyMySQL."""

    harness = MySQLHarness


@pytest.mark.server("mariadb")
class TestMariaDB(QueueConformance):
    """The same on MariaDB."""

    harness = MariaDBHarness
