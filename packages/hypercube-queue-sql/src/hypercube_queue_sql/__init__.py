"""Hypercube's queue on SQL databases: PostgreSQL, MySQL, MariaDB and SQLite."""

from __future__ import annotations

from hypercube_queue_sql.__about__ import __version__
from hypercube_queue_sql._queue import SQLQueue
from hypercube_queue_sql._tables import DEFAULT_TABLE, metadata

__all__ = ["DEFAULT_TABLE", "SQLQueue", "__version__", "metadata"]
