"""PgBouncer, which gives out connections by the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tools.backends.kind import (
    PROBE_TIMEOUT,
    Address,
    Kind,
    NotReady,
    Runner,
    Site,
    Unavailable,
)

if TYPE_CHECKING:
    from tools.backends.instance import Server

#: The file in its folder that says where its databases are.
_DATABASES = "databases.ini"

_SETTINGS = """\
[databases]
%include {databases}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
admin_users = pgbouncer
pool_mode = transaction
default_pool_size = 3
max_client_conn = 400
"""


class PgBouncer(Kind):
    """The one that the machine has; it leads nowhere until `lead_to` says where."""

    name = "pgbouncer"
    title = "PgBouncer"
    port = 6432
    username = "pgbouncer"
    database = "pgbouncer"
    programs = ("pgbouncer",)
    packages: ClassVar[Sequence[str]] = ("pgbouncer",)
    stop_signal = "SIGINT"

    def probe(self, address: Address) -> str:
        try:
            [(version,)] = _console(address, "SHOW VERSION")
        except OSError as error:
            raise NotReady(str(error)) from error
        return str(version).removeprefix("PgBouncer ")

    def prepare(self, site: Site, run: Runner) -> None:
        del run
        databases = site.folder / _DATABASES
        databases.touch()
        settings = site.folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(databases=databases, port=site.port))
        for file in (databases, settings):
            file.chmod(0o644)

    def command(self, site: Site) -> list[str | Path]:
        return [site.program, site.folder / "pgbouncer.ini"]


def lead_to(pooler: Server, target: Server) -> None:
    """Have every database of the pooler be that of a PostgreSQL server.

    One that was given by its address leads there already.
    """
    if "folder" not in pooler.handle:
        return
    secret = target.password.replace("'", "''")
    line = f"* = host={target.host} port={target.port} user={target.username} password='{secret}'\n"
    (Path(pooler.handle["folder"]) / _DATABASES).write_text(line)
    _console(pooler, "RELOAD")


def _console(address: Address, command: str) -> list[tuple[object, ...]]:
    try:
        import psycopg  # of the tests, which need it themselves
    except ImportError:
        raise Unavailable("psycopg, which asks whether it answers, is not installed") from None
    try:
        with psycopg.connect(
            host=address.host,
            port=address.port,
            user=address.username,
            dbname=address.database,
            connect_timeout=int(PROBE_TIMEOUT),
            autocommit=True,
        ) as connection:
            cursor = connection.execute(command)
            return cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise OSError(str(error)) from error
