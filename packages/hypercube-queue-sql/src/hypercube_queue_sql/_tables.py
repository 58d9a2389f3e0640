"""The tables, their names and the version of their layout."""

from __future__ import annotations

import re

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    UniqueConstraint,
)
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement, DropIndex
from sqlalchemy.types import VARBINARY

from hypercube_queue import MAX_NAME_BYTES, BackendError, InvalidArgument
from hypercube_queue.driver import safe_repr

#: Where messages are kept unless a queue is told otherwise.
DEFAULT_TABLE = "hypercube_messages"
#: Changes with every change of the tables; a database with a newer one is refused.
#: 1 had the index `visible` without `seq`, so a server had to sort what came at one moment.
LAYOUT_VERSION = 2

#: 40 characters leave room for what the names of indexes add, within PostgreSQL's 63.
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")

#: MySQL and MariaDB index no blob, and keep only 64 KiB in a plain one.
_NAME = LargeBinary().with_variant(VARBINARY(MAX_NAME_BYTES), "mysql", "mariadb")
_BYTES = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")


def metadata(
    *, table: str = DEFAULT_TABLE, schema: str | None = None, into: MetaData | None = None
) -> MetaData:
    """The tables of a queue, for a migration tool such as Alembic.

    `table` and `schema` are what the queue is constructed with. They are added to `into`, or
    come in a MetaData of their own. Raises InvalidArgument for a name that is no plain
    identifier.
    """
    target = MetaData() if into is None else into
    Tables(target, table, schema)
    return target


class TablesMissing(BackendError):
    """The tables are not there, and nobody has asked to create them."""

    def __init__(self, message: str) -> None:
        super().__init__(message, permanent=True)


class Tables:
    """The two tables under the names of one queue object."""

    def __init__(self, target: MetaData, table: str, schema: str | None) -> None:
        name = checked_identifier("table", table)
        if schema is not None:
            checked_identifier("schema", schema)
        # Small columns come first: to read what stands behind a large payload, SQLite walks
        # through all of it.
        self.messages = Table(
            name,
            target,
            # Never used twice, as a stale delivery must not meet a newer message.
            Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
            Column("state", SmallInteger, nullable=False),
            Column("visible_at", BigInteger, nullable=False),
            Column("place", BigInteger),
            Column("token", BigInteger),
            Column("attempt", BigInteger, nullable=False),
            Column("visibility_us", BigInteger),
            # Names are bytes, because databases fold, pad and normalise texts.
            Column("queue_name", _NAME, nullable=False),
            Column("id", _NAME, nullable=False),
            Column("job_name", _NAME, nullable=False),
            Column("namespace", _NAME, nullable=False),
            Column("reason", _BYTES),
            Column("extra", _BYTES, nullable=False),
            Column("payload", _BYTES, nullable=False),
            UniqueConstraint("queue_name", "id", name=f"uq_{name}_id"),
            Index(f"ix_{name}_ready", "queue_name", "state", "visible_at", "seq"),
            schema=schema,
            sqlite_autoincrement=True,
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
        )
        self.layout = Table(
            f"{name}_layout",
            target,
            Column("version", Integer, primary_key=True, autoincrement=False),
            schema=schema,
        )

    def quoted(self, dialect: Dialect, *, schema: str | None = None) -> dict[str, str]:
        """The names as statements need them, with another `schema` if it is given."""
        prepare = dialect.identifier_preparer
        messages, layout = map(prepare.format_table, (self.messages, self.layout))
        if schema is not None:
            messages, layout = (
                f"{prepare.quote(schema)}.{prepare.quote(table.name)}"
                for table in (self.messages, self.layout)
            )
        return {
            "messages": messages,
            "layout": layout,
            "ready": f"ix_{self.messages.name}_ready",
            "unique": f"uq_{self.messages.name}_id",
        }

    def creation(self, dialect: Dialect, *, index_if_not_exists: bool = True) -> list[str]:
        """The statements that create what is missing.

        Without `index_if_not_exists` those for indexes fail where there is one.
        """
        statements: list[DDLElement] = [
            CreateTable(self.messages, if_not_exists=True),
            *(
                CreateIndex(index, if_not_exists=index_if_not_exists)
                for index in self.messages.indexes
            ),
            # The last one: where each statement is committed at once, it says that all is there.
            CreateTable(self.layout, if_not_exists=True),
        ]
        return [str(statement.compile(dialect=dialect)) for statement in statements]

    def migration(self, dialect: Dialect, version: int) -> list[str]:
        """The statements that lead from an older layout to the present one.

        `creation` has run before, so what is new and has a name of its own is there.
        """
        statements: list[DDLElement] = []
        if version < 2:
            old = Index(f"ix_{self.messages.name}_visible", self.messages.c.visible_at)
            statements.append(DropIndex(old))
            self.messages.indexes.discard(old)
        return [str(statement.compile(dialect=dialect)) for statement in statements]

    def is_older(self, version: int) -> bool:
        """Whether `migration` leads from this layout to the present one."""
        return 1 <= version < LAYOUT_VERSION

    def check_layout(self, version: object) -> None:
        """Raise BackendError if the tables have another layout than this release."""
        if version == LAYOUT_VERSION:
            return
        raise BackendError(
            f"table {self.messages.fullname} has layout {safe_repr(version)}, and this release of "
            f"hypercube-queue-sql needs layout {LAYOUT_VERSION}: "
            + (
                "call create_tables() once, open the queue with create_tables=true, or run the "
                "migration that its changelog describes"
                if isinstance(version, int) and version < LAYOUT_VERSION
                else "install the release that migrated it, or a newer one"
            ),
            permanent=True,
        )

    def missing(self) -> TablesMissing:
        """What to raise where the tables are not there."""
        return TablesMissing(
            f"table {self.messages.fullname} or {self.layout.fullname} does not exist: call "
            "create_tables() once, open the queue with create_tables=true, or run the migration "
            "that makes them"
        )


def checked_identifier(option: str, value: object) -> str:
    """`value` if it can name a table without quoting on any database."""
    if (
        not isinstance(value, str)
        or not _IDENTIFIER.fullmatch(value)
        or value.lower().startswith("sqlite_")
    ):
        raise InvalidArgument(
            f"{option} is {safe_repr(value)}; it takes up to 40 ASCII letters, digits and "
            "underscores, no digit first, and not sqlite_ in front"
        )
    return value
