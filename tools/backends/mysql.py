"""MySQL and MariaDB."""

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
    says,
)

#: Quick to start, room for four workers of the tests; what is written is synced as ever.
_SETTINGS = (
    "--max-connections=400",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=64M",
)


class MySQL(Kind):
    """The newest that the image or the machine has."""

    name = "mysql"
    title = "MySQL"
    image = "mysql:9.7"
    port = 3306
    username = "root"
    password = PASSWORD
    database = "hypercube"
    environment: Mapping[str, str] = {
        "MYSQL_ROOT_PASSWORD": PASSWORD,
        "MYSQL_DATABASE": "hypercube",
    }
    programs: ClassVar[Sequence[str]] = ("mysqld",)
    packages: ClassVar[Sequence[str]] = ("mysql-server",)  # of Ubuntu; Debian has none
    user = "mysql"
    remedy = "install it from mysql.com, since Debian has no package of it"
    settings: ClassVar[Sequence[str]] = (*_SETTINGS, "--mysqlx=OFF")

    def probe(self, address: Address) -> str:
        try:
            import pymysql  # of the tests, which need it themselves
        except ImportError:
            raise Unavailable("PyMySQL, which asks whether it answers, is not installed") from None
        try:
            connection = pymysql.connect(
                host=address.host,
                port=address.port,
                user=address.username,
                password=address.password,
                database=address.database or None,
                connect_timeout=int(PROBE_TIMEOUT),
                read_timeout=int(PROBE_TIMEOUT),
            )
        except (pymysql.MySQLError, RuntimeError) as error:
            raise NotReady(str(error)) from error
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            (version,) = cursor.fetchone() or ("?",)
        return str(version).split("-")[0]

    def arguments(self, port: int) -> list[str]:
        return [*self.settings, f"--port={port}"]

    def accepts(self, program: Path) -> bool:
        """MariaDB installs a mysqld too."""
        return ("MariaDB" in says(program)) == (self.title == "MariaDB")

    def prepare(self, site: Site, run: Runner) -> None:
        run(
            [
                site.program,
                "--no-defaults",
                "--initialize-insecure",
                f"--datadir={site.folder / 'data'}",
            ]
        )
        self._write_users(site.folder)

    def command(self, site: Site) -> list[str | Path]:
        return [
            *(
                site.program,
                "--no-defaults",
                f"--datadir={site.folder / 'data'}",
                f"--port={site.port}",
            ),
            *("--bind-address=127.0.0.1", f"--socket={site.folder / 'socket'}"),
            *(f"--pid-file={site.folder / 'pid'}", f"--init-file={site.folder / 'users.sql'}"),
            *self.settings,
        ]

    def _write_users(self, folder: Path) -> None:
        """What each start reads before it listens."""
        (folder / "users.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS {self.database};\n"
            f"CREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '{self.password}';\n"
            "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n"
            + "".join(
                f"ALTER USER IF EXISTS root@'{host}' IDENTIFIED BY '{self.password}';\n"
                for host in ("localhost", "127.0.0.1", "::1")
            )
        )


class MariaDB(MySQL):
    """The newest that the image or the machine has."""

    name = "mariadb"
    title = "MariaDB"
    image = "mariadb:11.8"
    environment: Mapping[str, str] = {
        "MARIADB_ROOT_PASSWORD": PASSWORD,
        "MARIADB_DATABASE": "hypercube",
    }
    programs = ("mariadbd",)
    packages = ("mariadb-server-core", "mariadb-client-core")
    remedy = Kind.remedy
    settings = _SETTINGS

    def prepare(self, site: Site, run: Runner) -> None:
        install = site.program.resolve().parent.parent / "bin/mariadb-install-db"
        root = "--auth-root-authentication-method=normal"
        run([install, "--no-defaults", root, "--skip-test-db", f"--datadir={site.folder / 'data'}"])
        self._write_users(site.folder)
