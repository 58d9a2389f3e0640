"""Which file, or which memory, an SQLite database is."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import Engine, StaticPool
from sqlalchemy.engine.interfaces import DBAPICursor


def is_in_memory(engine: Engine) -> bool:
    """Whether the engine's database is gone with its connections."""
    url = engine.url
    return (
        not url.database
        or ":memory:" in url.database
        or url.query.get("mode") == "memory"
        or url.query.get("vfs") == "memdb"
    )


def file_of(engine: Engine) -> str:
    """The path of the engine's file, which need not exist yet."""
    database = engine.url.database or ""
    return unquote(urlsplit(database).path) if database.startswith("file:") else database


def database_file(cursor: DBAPICursor, schema: str = "main") -> str:
    """The full path of a database that a connection has open; empty in memory."""
    cursor.execute("PRAGMA database_list")
    # As bytes, where that is what the caller has made of texts.
    paths = {os.fsdecode(name): os.fsdecode(path or "") for _seq, name, path in cursor.fetchall()}
    return next((paths[name] for name in paths if name.lower() == schema.lower()), "")


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file, through links or not."""
    try:
        return Path(one).samefile(other)
    except OSError:  # it is made with the first write
        return os.path.realpath(one) == os.path.realpath(other)


def is_memory_of(engine: Engine, connection: object, other: Engine | None) -> bool:
    """Whether a connection is in the memory of the engine's database."""
    if isinstance(engine.pool, StaticPool):
        return engine.pool.connection.driver_connection is connection
    # Only a name can lead two engines into one memory.
    named = ":memory:" not in (engine.url.database or ":memory:")
    return named and other is not None and other.url == engine.url
