"""What these tests share: each server, a table of their own, other processes beside them."""

from __future__ import annotations

import functools
import secrets
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from sqlalchemy import Engine, create_engine, text
from tools.backends import server
from tools.backends.instance import Server
from tools.backends.relay import Relay

from hypercube_queue import open_queue
from hypercube_queue_sql import SQLQueue

Connect = Callable[..., "pymysql.Connection[Any]"]


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """The system's are read once: PyMySQL reads them for each connection, and uses none here.

    It takes 25 ms of computing, and these tests open thousands of connections.
    """
    read_once = functools.cache(ssl.create_default_context)
    with pytest.MonkeyPatch.context() as patch:
        patched = SimpleNamespace(**{**vars(ssl), "create_default_context": read_once})
        patch.setattr(pymysql.connections, "ssl", patched)
        yield


@pytest.fixture(
    params=[
        pytest.param("mysql", marks=pytest.mark.server("mysql")),
        pytest.param("mariadb", marks=pytest.mark.server("mariadb")),
    ]
)
def place(request: pytest.FixtureRequest) -> Server:
    """Each of the two."""
    return server(request.param)


@pytest.fixture
def engine(place: Server) -> Iterator[Engine]:
    """The application's own."""
    made = create_engine(place.url("mysql+pymysql"))
    yield made
    made.dispose()


@pytest.fixture
def connect(place: Server) -> Connect:
    """Opens connections of PyMySQL's, to be closed by the test."""

    def opened(**options: object) -> pymysql.Connection[Any]:
        address: dict[str, Any] = {
            "host": place.host,
            "port": place.port,
            "user": place.username,
            "password": place.password,
            "database": place.database,
        }
        return pymysql.connect(**{**address, **options})

    return opened


@pytest.fixture
def watching(connect: Connect) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Runs statements on a connection that looks at the others."""
    with closing(connect(autocommit=True)) as connection:
        cursor = connection.cursor()

        def run(statement: str) -> list[tuple[Any, ...]]:
            cursor.execute(statement)
            return list(cursor.fetchall())

        yield run


@pytest.fixture
def table(engine: Engine) -> Iterator[str]:
    """A name that no other test has; nothing is there yet."""
    name = f"t{secrets.token_hex(8)}"
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {name}, {name}_layout"))


@pytest.fixture
def url(place: Server, table: str) -> str:
    """For a queue on the table, which makes it; more options can follow."""
    return place.url(place.name, table=table, create_tables="true")


@pytest.fixture
def queue(url: str) -> Iterator[SQLQueue]:
    """A queue on the table, opened by URL; the table is there."""
    with open_queue(url) as opened:
        assert isinstance(opened, SQLQueue)
        opened.create_tables()
        yield opened


@pytest.fixture
def relay(place: Server) -> Iterator[Relay]:
    """A way to the server that can be cut, of this test's own."""
    with Relay(place.host, place.port) as made:
        yield made


@pytest.fixture
def relayed_url(url: str, place: Server, relay: Relay) -> str:
    """`url` by way of the relay."""
    return url.replace(f"@{place.host}:{place.port}/", f"@{relay.host}:{relay.port}/")
