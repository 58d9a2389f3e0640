"""What failovers of PostgreSQL and MySQL cost, measured on a primary and its standby.

    python -m tools.sql_failovers            # prints the table
    python -m tools.sql_failovers --write    # writes it between the markers of its document
    python -m tools.sql_failovers killed     # only what has this word in its name

One thread pushes without a pause, through one queue object, while something is done to the
primary, and another one pops and acknowledges before and afterwards. PostgreSQL's standby is
synchronous, and the URL names both servers. MySQL's replica is asynchronous, and a forwarder
leads new connections to the server that is the primary, as a load balancer does. It fails if the
objects do not work again by themselves, or if PostgreSQL loses a message.

Needs a Docker engine that has the images of the tests or can pull them.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import psycopg
import pymysql
from tools.backends.kind import PASSWORD
from tools.backends.mysql import MySQL
from tools.backends.postgres import Postgres
from tools.backends.relay import Relay
from tools.backends.traffic import Arguments, Traffic, report

_TABLE = "sql-failovers"
#: Seconds for a server to start, or to follow another one.
_PATIENCE = 120.0
_OPTIONS = "create_tables=true&operation_timeout=5&visibility_timeout=5"
_SECRET = quote(PASSWORD, safe="")

#: Becomes a standby of the server that is called `primary`, and runs.
_STANDBY = """\
set -e
mkdir -p "$PGDATA" && chown postgres "$PGDATA" && chmod 700 "$PGDATA"
exec setpriv --reuid=postgres --regid=postgres --init-groups sh -c '
  pg_basebackup --host=primary --username=postgres --pgdata="$PGDATA" --write-recovery-conf
  exec postgres -c listen_addresses="*"'
"""


def _docker(*words: str) -> str:
    done = subprocess.run(("docker", *words), check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"docker {words[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Server:
    """One of the two, in a container."""

    name: str
    port: int

    def kill(self) -> None:
        _docker("kill", self.name)

    def stop(self) -> None:
        """End it in good order."""
        _docker("stop", "--time", "60", self.name)

    def pause(self) -> None:
        """Let it fall silent: connections stay, and nothing is answered."""
        _docker("pause", self.name)


@contextmanager
def _network() -> Iterator[str]:
    """A network of containers, which is removed with all that joined it."""
    name = f"hypercube-failovers-{secrets.token_hex(4)}"
    _docker("network", "create", name)
    try:
        yield name
    finally:
        if joined := _docker("ps", "--all", "--quiet", "--filter", f"network={name}").split():
            _docker("rm", "--force", "--volumes", *joined)
        _docker("network", "rm", name)


def _run(network: str, role: str, *, port: int, words: Sequence[str]) -> Server:
    name = f"{network}-{role}"
    where = ("--name", name, "--network", network, "--network-alias", role)
    _docker("run", "--detach", *where, "--publish", f"127.0.0.1::{port}", *words)
    address = _docker("port", name, str(port)).splitlines()[0]
    return Server(name, int(address.rpartition(":")[2]))


def _wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        with suppress(psycopg.Error, pymysql.MySQLError):
            if holds():
                return
        if time.monotonic() > end:
            raise SystemExit("a server does not become ready in time")
        time.sleep(0.2)


# PostgreSQL


def _postgresql(server: Server, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(
        host="127.0.0.1",
        port=server.port,
        user="postgres",
        password=PASSWORD,
        dbname="postgres",
        autocommit=True,
        connect_timeout=3,
    ) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else []


@contextmanager
def _postgresql_pair() -> Iterator[Pair]:
    """A primary that confirms a commit when its standby has it."""
    environment = [f"--env={name}={value}" for name, value in Postgres.environment.items()]
    with _network() as network:
        primary = _run(network, "primary", port=Postgres.port, words=(*environment, Postgres.image))
        _wait_until(lambda: _postgresql(primary, "SELECT 1"))
        secret = f"--env=PGPASSWORD={PASSWORD}"
        command = ("--entrypoint=sh", secret, Postgres.image, "-c", _STANDBY)
        standby = _run(network, "standby", port=Postgres.port, words=command)
        _wait_until(lambda: _postgresql(standby, "SELECT 1"))
        _postgresql(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        _postgresql(primary, "SELECT pg_reload_conf()")
        state = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        _wait_until(lambda: _postgresql(primary, state))
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://postgres:{_SECRET}@{hosts}/postgres?target_session_attrs=read-write"

        def promote() -> None:
            _postgresql(standby, "SELECT pg_promote()")

        yield Pair(primary, standby, f"{url}&{_OPTIONS}", promote)


# MySQL


def _mysql(server: Server, *statements: str) -> tuple[object, ...] | None:
    connection = pymysql.connect(
        host="127.0.0.1", port=server.port, user="root", password=PASSWORD, connect_timeout=3
    )
    with connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchone()


def _is_caught_up(primary: Server, replica: Server) -> bool:
    [done] = _mysql(primary, "SELECT @@GLOBAL.gtid_executed") or ("",)
    found = _mysql(replica, f"SELECT GTID_SUBSET('{done}', @@GLOBAL.gtid_executed)")
    return found == (1,)


@contextmanager
def _mysql_pair() -> Iterator[Pair]:
    """A primary, its asynchronous replica, and a forwarder before the primary."""
    environment = [f"--env={name}={value}" for name, value in MySQL.environment.items()]
    settings = ("--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
    with _network() as network:
        run = partial(_run, network, port=MySQL.port)
        command = (*environment, MySQL.image, *settings)
        primary = run("primary", words=(*command, "--server-id=1"))
        replica = run("replica", words=(*command, "--server-id=2"))
        for server in (primary, replica):
            _wait_until(partial(_mysql, server, "SELECT 1"))
            # Each has made its users by itself.
            _mysql(server, "RESET BINARY LOGS AND GTIDS")
        _mysql(
            replica,
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'primary', SOURCE_USER = 'root', "
            f"SOURCE_PASSWORD = '{PASSWORD}', SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1",
            "START REPLICA",
            "SET GLOBAL super_read_only = ON",
        )
        _mysql(primary, "CREATE DATABASE IF NOT EXISTS hypercube")
        _wait_until(lambda: _is_caught_up(primary, replica))
        with Relay("127.0.0.1", primary.port) as forwarder:

            def promote() -> None:
                _mysql(
                    replica,
                    "STOP REPLICA",
                    "SET GLOBAL super_read_only = OFF",
                    "SET GLOBAL read_only = OFF",
                )
                forwarder.lead_to("127.0.0.1", replica.port)

            url = f"mysql://root:{_SECRET}@127.0.0.1:{forwarder.port}/hypercube?{_OPTIONS}"
            yield Pair(primary, replica, url, promote)


# Cases


@dataclass(frozen=True)
class Pair:
    """A primary and the server that takes over when it is promoted."""

    primary: Server
    standby: Server
    url: str
    promote: Callable[[], None]


def _kill(pair: Pair) -> None:
    pair.primary.kill()
    pair.promote()


def _fall_silent(pair: Pair) -> None:
    pair.primary.pause()
    pair.promote()


def _stop(pair: Pair) -> None:
    pair.primary.stop()
    pair.promote()


def _demote(pair: Pair) -> None:
    """The old primary lives on, read-only, and keeps its connections."""
    _mysql(pair.primary, "SET GLOBAL super_read_only = ON")
    _wait_until(lambda: _is_caught_up(pair.primary, pair.standby))
    pair.promote()


@dataclass(frozen=True)
class Case:
    """Something that happens to a pair."""

    what: str
    pair: Callable[[], AbstractContextManager[Pair]]
    do: Callable[[Pair], None]
    may_lose: bool = False


_POSTGRESQL = "PostgreSQL, synchronous standby"
_MYSQL = "MySQL, asynchronous replica behind a forwarder"
_CASES = (
    Case(f"{_POSTGRESQL}: primary killed", _postgresql_pair, _kill),
    Case(f"{_POSTGRESQL}: primary falls silent", _postgresql_pair, _fall_silent),
    Case(f"{_POSTGRESQL}: primary stopped in good order", _postgresql_pair, _stop),
    Case(f"{_MYSQL}: primary killed", _mysql_pair, _kill, may_lose=True),
    Case(f"{_MYSQL}: primary falls silent", _mysql_pair, _fall_silent, may_lose=True),
    Case(f"{_MYSQL}: primary made read-only and left", _mysql_pair, _demote),
)


def run(case: Case) -> str:
    """The row of a case; raises SystemExit where something was lost that was safe."""
    with case.pair() as pair:
        traffic = Traffic(pair.url)
        begun = traffic.endure(lambda: case.do(pair))
    return traffic.row(case.what, begun, may_lose=case.may_lose)


def main() -> None:
    arguments = Arguments.parse("The table of failovers of PostgreSQL and MySQL.")
    cases = [case for case in _CASES if arguments.names(case.what)]
    report(map(run, cases), _TABLE, write=arguments.write)


if __name__ == "__main__":
    main()
