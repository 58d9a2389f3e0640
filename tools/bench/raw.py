"""The limit beside each figure: the same work without a queue around it."""

from __future__ import annotations

import sqlite3
from collections import deque
from pathlib import Path
from typing import Protocol

PAYLOAD = b"x" * 100


class Raw(Protocol):
    """Stores and takes payloads in batches, as plainly as the backend allows."""

    def push(self, count: int) -> None: ...

    def pop_and_ack(self, count: int) -> None: ...

    def close(self) -> None: ...


class Ids:
    """A new id for each message, as an application would have."""

    def __init__(self) -> None:
        self._made = 0

    def take(self, count: int) -> list[str]:
        self._made += count
        return [f"id-{number}" for number in range(self._made - count, self._made)]


class RawDeque:
    """A deque, which knows no leases, ids or threads."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()

    def push(self, count: int) -> None:
        for _ in range(count):
            self._messages.append(bytes(PAYLOAD))

    def pop_and_ack(self, count: int) -> None:
        for _ in range(count):
            self._messages.popleft()

    def close(self) -> None:
        self._messages.clear()


class RawSQLite:
    """sqlite3 with executemany, and a claim and a delete in a commit each."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={synchronous}")
        self._connection.execute(
            "CREATE TABLE raw (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, "
            "visible_at INTEGER, token INTEGER, payload BLOB)"
        )
        self._connection.execute("CREATE INDEX raw_visible ON raw (visible_at, seq)")
        self._ids = Ids()

    def push(self, count: int) -> None:
        rows = [(id, 0, PAYLOAD) for id in self._ids.take(count)]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT INTO raw (id, visible_at, payload) VALUES (?, ?, ?)", rows
        )
        self._connection.execute("COMMIT")

    def pop_and_ack(self, count: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        claimed = self._connection.execute(
            "UPDATE raw SET visible_at = 1 << 60, token = 1 WHERE seq IN (SELECT seq FROM raw "
            "WHERE visible_at <= 1 ORDER BY visible_at, seq LIMIT ?) RETURNING seq, id, payload",
            (count,),
        ).fetchall()
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "DELETE FROM raw WHERE seq = ? AND token = 1", [(row[0],) for row in claimed]
        )
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
