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
from tools.backends.instance import Server
from tools.bench.raw import Raw, RawDeque, RawSQLite
from tools.bench.raw_broker import RawRabbitMQ, connect_rabbitmq
from tools.bench.raw_scripts import Glide, RawScripts, RedisPy, connect_redis
from tools.bench.raw_servers import RawMySQL, RawPostgreSQL, connect_mysql
from tools.bench.raw_sqs import RawSQS
from tools.strict_sqs import strict_process

#: Of Redis and Valkey as they come; one of them is for each store.
_DATABASES = range(16)
#: What pops and settlements of the drivers are for a server. It counts also what scripts do.
_SENT_COMMANDS = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_blpop")

#: The queues that are used in the course of a run.
_QUEUES = ("bench", "default", "pickup")


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


@contextmanager
def redis(kind: str) -> Iterator[Store]:
    """On Redis or Valkey, which writes to disk once a second, as most do; the tests' is slower."""
    place = server(kind)
    number = _empty_database(place)
    client = RedisPy if kind == "redis" else Glide
    with connect_redis(place, number) as admin:

        def statements() -> int:
            found = admin.info("commandstats")
            return sum(found[name]["calls"] for name in _SENT_COMMANDS if name in found)

        before = admin.config_get("appendfsync")
        admin.config_set("appendfsync", "everysec")
        try:
            yield Store(
                place.url(kind, str(number)),
                lambda: RawScripts(client(place, number)),
                address=place.url("redis", str(number)),
                statements=statements,
            )
        finally:
            admin.config_set("appendfsync", before["appendfsync"])
            admin.flushdb(asynchronous=True)


@contextmanager
def rabbitmq(kind: str, queue_type: str) -> Iterator[Store]:
    """On RabbitMQ, in the one vhost that there is; peers name and delete queues of their own."""
    place, name = server(kind), _name()
    try:
        yield Store(
            place.url("amqp", prefix=f"{name}.", queue_type=queue_type),
            lambda: RawRabbitMQ(place, f"{name}.raw", queue_type),
            address=place.url("amqp"),
        )
    finally:
        with connect_rabbitmq(place) as admin:
            for queue in _QUEUES:
                admin.channel().queue_delete(f"{name}.{queue}")
                admin.channel().queue_delete(f"hypercube.dead.{name}.{queue}")


@contextmanager
def sqs_on_ministack() -> Iterator[Store]:
    """On an emulator, with queues of its own."""
    place = server("ministack")
    with _sqs(f"http://{place.host}:{place.port}") as store:
        yield store


@contextmanager
def sqs_with_delay(seconds: float) -> Iterator[Store]:
    """On a server that answers so late, as one in a data centre does."""
    with strict_process("--delay", str(seconds)) as endpoint, _sqs(endpoint) as store:
        yield store


@contextmanager
def _sqs(endpoint: str) -> Iterator[Store]:
    name = _name()
    options = f"endpoint={endpoint}&prefix={name}-&ensure_queues=true"
    yield Store(f"sqs://testing:testing@eu-west-1?{options}", lambda: RawSQS(endpoint, name))


def _empty_database(place: Server) -> int:
    """The number of a database that nobody uses, which is not empty any more."""
    for number in _DATABASES:
        with connect_redis(place, number) as admin:
            if not admin.dbsize() and admin.set("bench", "taken", nx=True):
                return number
    raise RuntimeError(f"{place.host}:{place.port} has no empty database")


def _name() -> str:
    return f"bench_{secrets.token_hex(4)}"
