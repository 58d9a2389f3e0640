"""A fresh place for each measurement, gone afterwards: a folder, or a database on a server."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from tools.backends import server
from tools.bench.raw import Raw, RawDeque, RawSQLite
from tools.bench.raw_servers import RawMySQL, RawPostgreSQL, connect_mysql


@dataclass(frozen=True)
class Store:
    """Where a queue, the raw limit beside it, or a peer keeps its messages."""

    #: Of the queue.
    url: str
    raw: Callable[[], Raw]
    #: How a peer finds it.
    address: str = ""
    #: How many statements the server has run by now, for anybody.
    statements: Callable[[], int] | None = None
    #: Does at once what a server that reuses space does by itself once a minute.
    clean: Callable[[], None] | None = None


@contextmanager
def memory() -> Iterator[Store]:
    yield Store("memory://", RawDeque)


@contextmanager
def sqlite(synchronous: str) -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield Store(
            f"sqlite:///{folder}/queue.db?synchronous={synchronous}",
            lambda: RawSQLite(folder, synchronous),
            address=f"{folder}/peer.db",
        )


@contextmanager
def postgresql() -> Iterator[Store]:
    place, name = server("postgres"), _name()
    with psycopg.connect(place.url("postgresql"), autocommit=True) as admin:

        def statements() -> int:
            row = admin.execute(
                "SELECT xact_commit FROM pg_stat_database WHERE datname = %s", (name,)
            ).fetchone()
            return row[0] if row else 0

        address = place.url("postgresql", name)

        def clean() -> None:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")

        admin.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield Store(
                place.url("postgresql", name, create_tables="true"),
                lambda: RawPostgreSQL(address),
                address=address,
                statements=statements,
                clean=clean,
            )
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@contextmanager
def mysql(kind: str) -> Iterator[Store]:
    """On MySQL or MariaDB."""
    place, name = server(kind), _name()
    with connect_mysql(place, place.database) as admin, admin.cursor() as cursor:

        def statements() -> int:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            row = cursor.fetchone()
            return int(row[1]) if row else 0

        cursor.execute(f"CREATE DATABASE {name}")
        try:
            yield Store(
                place.url(kind, name, create_tables="true"),
                lambda: RawMySQL(place, name),
                statements=statements,
            )
        finally:
            cursor.execute(f"DROP DATABASE {name}")


def _name() -> str:
    return f"bench_{secrets.token_hex(4)}"
