"""sqlite: URLs and their options."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from hypercube_queue import BackendError, BatchError, InvalidArgument, Message, open_queue
from hypercube_queue_sql import SQLQueue

NOTHING = timedelta(0)


def test_opening_a_queue_makes_no_file(file: Path, url: str) -> None:
    """The file and its tables come with the first call (LIFE-1)."""
    with open_queue(url) as queue:
        assert queue.guarantees.durable
        queue.push()
        assert not file.exists()
        queue.push(Message("work"))
        assert file.exists()


def test_a_relative_path_starts_from_the_working_directory_of_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three slashes name a file here; going elsewhere afterwards changes nothing."""
    monkeypatch.chdir(tmp_path)
    with open_queue("sqlite:///a%20file.db") as queue:
        monkeypatch.chdir("/")
        queue.push(Message("work"))

    assert [each.name for each in tmp_path.iterdir()] == ["a file.db"]


@pytest.mark.parametrize("memory", ["sqlite://", "sqlite:///:memory:", "sqlite+pysqlite://"])
def test_a_url_without_a_file_is_a_database_of_its_own_in_memory(memory: str) -> None:
    """Nothing is durable, and two such queues share nothing."""
    with open_queue(memory) as one, open_queue(memory) as other:
        one.push(Message("work", b"0"))
        assert not one.guarantees.durable
        assert other.pop("work", wait=NOTHING) == []
        assert [each.payload for each in one.pop("work", wait=NOTHING)] == [b"0"]


def test_the_options_of_a_url_reach_the_queue(file: Path) -> None:
    """Each option, in seconds where it is a duration."""
    options = (
        "table=orders&create_tables=yes&synchronous=NORMAL&poll_timeout=0.01"
        "&visibility_timeout=7.5&operation_timeout=2"
    )
    with open_queue(f"sqlite:///{file}?{options}") as queue:
        assert isinstance(queue, SQLQueue)
        assert queue.visibility_timeout == timedelta(seconds=7.5)
        assert queue.pop("work") == []
    with closing(sqlite3.connect(file)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}

    assert {"orders", "orders_layout"} <= names


def test_a_queue_without_create_tables_says_how_to_get_them(file: Path, url: str) -> None:
    """BackendError that names the tables and the ways, until create_tables() made them."""
    with open_queue(f"{url}?create_tables=false") as queue:
        assert isinstance(queue, SQLQueue)
        with pytest.raises(BackendError, match=r"there is no file .*create_tables=true"):
            queue.pop("work", wait=NOTHING)
        with pytest.raises(BatchError) as caught:
            queue.push(Message("work"))
        assert "there is no file" in str(caught.value)
        assert not file.exists()
        file.touch()
        with pytest.raises(BackendError, match=r"hypercube_messages.*create_tables\(\)"):
            queue.pop("work", wait=NOTHING)
        queue.create_tables()
        queue.push(Message("work"))
        assert len(queue.pop("work")) == 1


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_synchronous_is_what_the_url_says(url: str, synchronous: str, level: int) -> None:
    """On every connection, with a write-ahead log."""
    with open_queue(f"{url}?synchronous={synchronous}") as queue:
        assert isinstance(queue, SQLQueue)
        queue.create_tables()
        assert queue._dialect.read(_pragmas) == (level, "wal")


def test_full_is_the_default(queue: SQLQueue) -> None:
    """A push that returned has reached the disk."""
    queue.create_tables()
    assert queue._dialect.read(_pragmas) == (2, "wal")


def _pragmas(cursor) -> tuple[int, str]:
    [(synchronous,)] = cursor.execute("PRAGMA synchronous").fetchall()
    [(journal,)] = cursor.execute("PRAGMA journal_mode").fetchall()
    return synchronous, journal


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("sqlite:///jobs.db?tabel=x", "'tabel'.*Did you mean 'table'"),
        ("sqlite:///jobs.db?schema=x", "'schema'"),
        ("sqlite:///jobs.db?table=a-b", "table is 'a-b'"),
        ("sqlite:///jobs.db?table=", "table is ''"),
        ("sqlite:///jobs.db?table=1a", "table is '1a'"),
        ("sqlite:///jobs.db?table=sqlite_x", "table is 'sqlite_x'"),
        (f"sqlite:///jobs.db?table={'x' * 41}", "up to 40"),
        ("sqlite:///jobs.db?create_tables=perhaps", "create_tables.*'perhaps'"),
        ("sqlite:///jobs.db?synchronous=OFF", "synchronous.*'OFF'.*FULL, NORMAL"),
        ("sqlite:///jobs.db?file_mode=777", "file_mode.*'777'.*0600, 0640, 0660"),
        ("sqlite:///jobs.db?synchronous=full", "synchronous.*'full'"),
        ("sqlite:///jobs.db?poll_timeout=-1", "poll_timeout.*'-1'"),
        ("sqlite:///jobs.db?visibility_timeout=0", "visibility_timeout is 0"),
        ("sqlite:///jobs.db?operation_timeout=0", "operation_timeout is 0"),
        ("sqlite:///jobs.db?operation_timeout=soon", "operation_timeout.*'soon'"),
        ("sqlite://jobs.db", "three slashes"),
        ("sqlite://user:pw@/jobs.db", "three slashes"),
        ("sqlite://host/jobs.db", "three slashes"),
        ("sqlite:///", "names the file ''"),
        ("sqlite:///a%00b", "names the file"),
        ("sqlite+aiosqlite:///jobs.db", "AsyncQueue"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(
    wrong: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """InvalidArgument that names the option and the value, before anything is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=named):
        open_queue(wrong)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_the_file_has_the_permissions_that_the_url_asks_for(
    file: Path, url: str, mode: int
) -> None:
    """From the start, whatever the process masks, and the files beside it as well."""
    masked = os.umask(0o027)
    try:
        with open_queue(f"{url}?file_mode={mode:04o}") as queue:
            queue.push(Message("work"))
            found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in file.parent.iterdir()}
    finally:
        os.umask(masked)
    assert found == {file.name: mode, f"{file.name}-wal": mode, f"{file.name}-shm": mode}


def test_a_file_that_is_there_keeps_its_permissions(file: Path, url: str) -> None:
    """Its owner may have reasons."""
    with open_queue(url) as queue:
        queue.push(Message("work", b"0"))
    file.chmod(0o644)
    with open_queue(f"{url}?file_mode=0600") as queue:
        assert [each.payload for each in queue.pop("work")] == [b"0"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
