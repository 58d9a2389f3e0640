"""What most tests need: a file for a database, and a queue on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hypercube_queue import open_queue
from hypercube_queue_sql import SQLQueue


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a database can be; nothing is there yet."""
    return tmp_path / "jobs.db"


@pytest.fixture
def url(file: Path) -> str:
    """The URL of the file."""
    return f"sqlite:///{file}"


@pytest.fixture
def queue(url: str) -> Iterator[SQLQueue]:
    """A queue on the file, opened by URL."""
    with open_queue(url) as opened:
        assert isinstance(opened, SQLQueue)
        yield opened
