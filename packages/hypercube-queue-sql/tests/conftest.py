"""The servers that these tests need, and what all of them share."""

from __future__ import annotations

import pytest

from hypercube_queue_sql._pace import Pace
from hypercube_queue_sql._postgresql import PostgreSQLDialect
from hypercube_queue_sql._server import ServerDialect
from hypercube_queue_sql._sqlite import SQLiteDialect


@pytest.hookimpl(optionalhook=True)
def pytest_hypercube_servers() -> list[str]:
    """For the plugin that provides them."""
    return ["postgres", "pgbouncer", "mysql", "mariadb"]


@pytest.fixture
def told_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits never looks by itself, so that what comes has been told."""
    for dialect in (SQLiteDialect, ServerDialect, PostgreSQLDialect):
        monkeypatch.setattr(dialect, "poll_seconds", 300.0)
    monkeypatch.setattr(Pace, "seconds", lambda _pace, _name, _watchers, longest: longest)
