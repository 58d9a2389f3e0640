"""PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tools.backends.kind import (
    PASSWORD,
    PROBE_TIMEOUT,
    Address,
    Kind,
    NotReady,
    Runner,
    Site,
    Unavailable,
)

_INSTALLED = Path("/usr/lib/postgresql")

#: Four workers of the tests hold dozens of connections each.
_SETTINGS = ("-c", "max_connections=400")


class Postgres(Kind):
    """The newest that the image or the machine has."""

    name = "postgres"
    title = "PostgreSQL"
    image = "postgres:18"
    port = 5432
    username = "postgres"
    password = PASSWORD
    database = "postgres"
    environment: Mapping[str, str] = {
        "POSTGRES_PASSWORD": PASSWORD,
        "POSTGRES_INITDB_ARGS": "--no-sync",
    }
    lock_files: ClassVar[Sequence[str]] = ("data/postmaster.pid",)
    programs = ("postgres",)
    packages = ("postgresql",)
    user = "postgres"
    stop_signal = "SIGINT"  # SIGTERM waits for clients

    def probe(self, address: Address) -> str:
        try:
            import psycopg  # of the tests, which need it themselves
        except ImportError:
            raise Unavailable("psycopg, which asks whether it answers, is not installed") from None
        try:
            with psycopg.connect(
                host=address.host,
                port=address.port,
                user=address.username,
                password=address.password,
                dbname=address.database,
                connect_timeout=int(PROBE_TIMEOUT),
            ) as connection:
                version = connection.info.parameter_status("server_version")
        except psycopg.Error as error:
            raise NotReady(str(error)) from error
        return (version or "?").split(" ")[0]

    def arguments(self, port: int) -> list[str]:
        return [*_SETTINGS, "-p", str(port)]

    def find(self) -> Path | None:
        """The newest: Debian keeps each version in a folder of its own, off the path."""
        versions = [
            program
            for program in _INSTALLED.glob("*/bin/postgres")
            if program.parents[1].name.isdigit()
        ]
        newest = max(versions, key=lambda program: int(program.parents[1].name), default=None)
        return newest or super().find()

    def prepare(self, site: Site, run: Runner) -> None:
        secret = site.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        initdb = site.program.resolve().parent / "initdb"
        options: Sequence[str] = ("--no-sync", "--auth=scram-sha-256", "-U", self.username)
        run([initdb, *options, f"--pwfile={secret}", "-E", "UTF8", "-D", site.folder / "data"])
        secret.unlink()

    def command(self, site: Site) -> list[str | Path]:
        address = ("-h", "127.0.0.1", "-p", str(site.port), "-k", "")
        return [site.program, "-D", site.folder / "data", *address, *_SETTINGS]
