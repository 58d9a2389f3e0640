"""No statement reads more rows than it needs, whatever SQLite knows about the table (POP-9)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hypercube_queue import Message, open_queue
from hypercube_queue_sql import DEFAULT_TABLE, _sqlite
from hypercube_queue_sql._statements import load_statements

_ROW = "(?, 0, ?, ?, 0, ?, ?, ?, ?, ?, ?)"
STATEMENTS = load_statements(
    "sqlite.sql", messages=DEFAULT_TABLE, layout=f"{DEFAULT_TABLE}_layout", rows=_ROW
)
#: Those that begin with a search for messages, in the index made for it.
BY_INDEX = {"next_visible", "claim", "claim_undated", "redrive", "dead_letters", "stats"}
#: The version table has one row.
OF_ONE_ROW = {"layout", "set_layout"}


@pytest.fixture(scope="module", params=[0, 10_000], ids=["empty", "10000 rows"])
def connection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """A database with so many messages, a part of them in each state."""
    file: Path = tmp_path_factory.mktemp("plans") / "jobs.db"
    with open_queue(f"sqlite:///{file}") as queue:
        queue.push(*(Message("work", b"%d" % number) for number in range(request.param)))
        if request.param:
            queue.dead_letter(*queue.pop("work", request.param // 4))
            queue.pop("work", request.param // 4)
        else:
            queue.create_tables()
    with closing(sqlite3.connect(file)) as opened:
        yield opened


def _plan(connection: sqlite3.Connection, name: str) -> list[str]:
    statement = STATEMENTS[name]
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    count = max(numbered, default=0) or statement.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * count)
    return [detail for *_, detail in rows]


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - OF_ONE_ROW))
def test_no_statement_scans_the_table(connection: sqlite3.Connection, name: str) -> None:
    """Nor sorts what it found: the order is the index's."""
    plan = _plan(connection, name)
    scans = [line for line in plan if DEFAULT_TABLE in line and not line.startswith("SEARCH")]

    assert scans == []
    assert [line for line in plan if "TEMP B-TREE" in line] == []


@pytest.mark.parametrize("name", sorted(BY_INDEX))
def test_messages_are_found_by_the_index_made_for_it(
    connection: sqlite3.Connection, name: str
) -> None:
    """By queue, state and time, not by queue alone."""
    plan = _plan(connection, name)
    searches = [line for line in plan if f"ix_{DEFAULT_TABLE}_ready" in line]

    assert searches != []
    assert [line for line in searches if "queue_name=? AND state=?" not in line] == []


def test_each_statement_is_used_and_each_used_one_exists() -> None:
    """The file and the modules of the dialect name the same statements."""
    modules = Path(_sqlite.__file__).parent.glob("_sqlite*.py")
    sources = "".join(module.read_text() for module in modules)

    assert set(re.findall(r'_sql\["(\w+)"\]', sources)) == STATEMENTS.keys()
