"""What the checker remembers: its runs, and what came of each file."""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: How long another process may hold the file.
_BUSY_S = 30.0

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS runs (
        run TEXT PRIMARY KEY,
        folder TEXT NOT NULL,
        external INTEGER NOT NULL,
        files INTEGER NOT NULL,
        finished INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE IF NOT EXISTS results (
        run TEXT NOT NULL,
        path TEXT NOT NULL,
        links INTEGER NOT NULL,
        problems TEXT NOT NULL,
        PRIMARY KEY (run, path)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS addresses (
        run TEXT NOT NULL,
        address TEXT NOT NULL,
        problem TEXT NOT NULL,
        PRIMARY KEY (run, address)
    ) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One check of a folder."""

    id: str
    folder: str
    external: bool
    files: int

    @property
    def queue(self) -> str:
        """The queue of its jobs, its own, so that nothing else is worked on or counted."""
        return f"links-{self.id}"


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of the files of a run so far. A file without problems is done."""

    done: int
    dead: int
    links_done: int
    links_dead: int


class Runs:
    """The checker's own tables, in the file that the queue is in too."""

    def __init__(self, file: Path) -> None:
        # Transactions are begun by hand: one that reads first and writes later may fail at once.
        self._connection = sqlite3.connect(
            file, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._lock = threading.Lock()
        try:
            _use_write_ahead_log(self._connection)
            # A result must not be forgotten when the queue remembers that its job is done.
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_SCHEMA)
        except BaseException:
            self._connection.close()
            raise

    def latest(self, folder: str) -> tuple[Run, bool] | None:
        """The latest run over the folder, and whether it is finished."""
        rows = self._rows(
            "SELECT run, folder, external, files, finished FROM runs WHERE folder = ?"
            " ORDER BY rowid DESC LIMIT 1",
            folder,
        )
        for run, _folder, external, files, finished in rows:
            return Run(run, folder, bool(external), files), bool(finished)
        return None

    def begin(
        self,
        folder: str,
        paths: Sequence[str],
        *,
        external: bool,
        dispatch: Callable[[sqlite3.Connection, Run, str], object],
    ) -> Run:
        """A new run, in place of the finished one, with a job for each of `paths`.

        The run and its jobs are written in one transaction: whatever ends the process, there
        are all of them or none. If another process has begun a run meanwhile, that one.
        """
        run = Run(secrets.token_hex(4), folder, external, len(paths))
        with self._transaction() as connection:
            for table in ("results", "addresses"):
                connection.execute(
                    f"DELETE FROM {table} WHERE run IN"  # noqa: S608  # one of two constants
                    " (SELECT run FROM runs WHERE folder = ? AND finished)",
                    (folder,),
                )
            connection.execute("DELETE FROM runs WHERE folder = ? AND finished", (folder,))
            begun = connection.execute(
                "SELECT run, folder, external, files FROM runs WHERE folder = ?", (folder,)
            ).fetchone()
            if begun is not None:
                return Run(begun[0], begun[1], bool(begun[2]), begun[3])
            connection.execute(
                "INSERT INTO runs (run, folder, external, files) VALUES (?, ?, ?, ?)",
                (run.id, run.folder, run.external, run.files),
            )
            for path in paths:
                dispatch(connection, run, path)
        return run

    def finish(self, run: Run) -> None:
        """Mark the run as finished: the next one starts anew."""
        with self._transaction() as connection:
            connection.execute("UPDATE runs SET finished = 1 WHERE run = ?", (run.id,))

    def record(self, run: str, path: str, links: int, problems: Sequence[str]) -> None:
        """What came of a file. A second result takes the place of the first."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO results (run, path, links, problems) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (run, path) DO UPDATE"
                " SET links = excluded.links, problems = excluded.problems",
                (run, path, links, "\n".join(problems)),
            )

    def tally(self, run: Run) -> Tally:
        """How many files are done, how many dead, and how many links they have."""
        [row] = self._rows(
            "SELECT count(*) FILTER (WHERE problems = ''), count(*) FILTER (WHERE problems <> ''),"
            " coalesce(sum(links) FILTER (WHERE problems = ''), 0),"
            " coalesce(sum(links) FILTER (WHERE problems <> ''), 0)"
            " FROM results WHERE run = ?",
            run.id,
        )
        return Tally(*row)

    def dead(self, run: Run) -> dict[str, list[str]]:
        """The problems of each file that has some."""
        rows = self._rows(
            "SELECT path, problems FROM results WHERE run = ? AND problems <> '' ORDER BY path",
            run.id,
        )
        return {path: problems.split("\n") for path, problems in rows}

    def remember(self, run: str, address: str, problem: str | None) -> None:
        """What a request for an address told for good."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO addresses VALUES (?, ?, ?)", (run, address, problem or "")
            )

    def remembered(self, run: str, address: str) -> tuple[str | None] | None:
        """The problem of an address, or None in its place, in a tuple; no tuple if unknown."""
        rows = self._rows(
            "SELECT problem FROM addresses WHERE run = ? AND address = ?", run, address
        )
        return (rows[0][0] or None,) if rows else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # SQLite does not wait where two that begin at once both want to change it.
    end = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
            time.sleep(0.02)
        else:
            return
