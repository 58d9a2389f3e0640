"""What these tests share: a table of their own, and other processes beside them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, text
from tools.backends import server
from tools.backends.relay import Relay

from hypercube_queue import open_queue
from hypercube_queue_sql import SQLQueue


@pytest.fixture
def application() -> str:
    """What the server calls the connections of this test's queues."""
    return f"app-{secrets.token_hex(8)}"


@pytest.fixture
def engine() -> Iterator[Engine]:
    """The application's own."""
    made = create_engine(server("postgres").url("postgresql+psycopg"))
    yield made
    made.dispose()


@pytest.fixture
def table(engine: Engine) -> Iterator[str]:
    """A name that no other test has; nothing is there yet."""
    name = f"t{secrets.token_hex(8)}"
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {name}, {name}_layout CASCADE"))


@pytest.fixture
def url(table: str, application: str) -> str:
    """For a queue on the table, which makes it; more options can follow."""
    return server("postgres").url(
        "postgresql", table=table, create_tables="true", application_name=application
    )


@pytest.fixture
def queue(url: str) -> Iterator[SQLQueue]:
    """A queue on the table, opened by URL; the table is there."""
    with open_queue(url) as opened:
        assert isinstance(opened, SQLQueue)
        opened.create_tables()
        yield opened


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A way to the server that can be cut, of this test's own."""
    place = server("postgres")
    with Relay(place.host, place.port) as made:
        yield made


@pytest.fixture
def relayed_url(url: str, relay: Relay) -> str:
    """`url` by way of the relay."""
    return url.replace(f":{server('postgres').port}/", f":{relay.port}/").replace(
        f"@{server('postgres').host}:", f"@{relay.host}:"
    )
