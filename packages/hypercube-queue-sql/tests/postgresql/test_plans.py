"""No statement reads more rows than it needs, whatever PostgreSQL knows of the table (POP-9)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, event, text
from tools.backends import server

from hypercube_queue import BatchError, Message
from hypercube_queue_sql import SQLQueue, _postgresql
from hypercube_queue_sql._statements import load_statements

pytestmark = pytest.mark.server("postgres")

NOTHING = timedelta(0)
_MANY = 100_000
#: As many as one statement takes.
_BATCH = 1_000

#: The rest of a row that is in this state: `n` counts, `now` is the database's clock.
_STATES = {
    "ready": "0, now - 3600000000 + n, NULL",
    "dead": "1, now - 3600000000 + n, NULL",
    "in flight": "0, now + 3600000000 + n, n",
}
_FILL = """
INSERT INTO {table} (queue_name, id, attempt, job_name, namespace, extra, payload, state,
  visible_at, token)
SELECT 'work', ('id' || n)::bytea, 0, '', '', '', 'payload', {rest}
FROM generate_series(1, {many}) AS n,
  (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS clock
"""

#: What the driver sets aside.
_UNREADABLE = r"""
INSERT INTO {table} (queue_name, id, state, visible_at, attempt, job_name, namespace, extra,
  payload)
VALUES ('unread', '{id}', 0, 0, 0, '\xff', '', '', '')
"""


class Plans:
    """What the server did for each statement of an engine's connections, as it tells it."""

    def __init__(self, mode: str, table: str) -> None:
        self._table = table
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.engine = create_engine(server("postgres").url("postgresql+psycopg"))
        self._settings = (
            "LOAD 'auto_explain'",
            "SET auto_explain.log_min_duration = 0",
            "SET auto_explain.log_analyze = on",
            "SET auto_explain.log_format = json",
            "SET auto_explain.log_level = notice",
            f"SET plan_cache_mode = {mode}",
        )
        event.listen(self.engine, "connect", self._prepare)

    def _prepare(self, connection: psycopg.Connection, _record: object) -> None:
        connection.autocommit = True
        for setting in self._settings:
            connection.execute(setting)
        connection.autocommit = False
        # From the first time on, so that there is a plan to keep.
        connection.prepare_threshold = 0
        connection.add_notice_handler(self._hear)

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        _, found, plan = (notice.message_primary or "").partition("plan:\n")
        if found:
            told = json.loads(plan)
            self.told.append((told["Query Text"], told["Plan"]))

    def about_the_table(self) -> list[tuple[str, dict[str, Any]]]:
        """Each step that reads the table, with the statement that it is part of."""
        return [
            (statement, step)
            for statement, plan in self.told
            for step in _steps(plan)
            if step.get("Relation Name") == self._table and "Scan" in step["Node Type"]
        ]


def _steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _steps(each)


def _rows_read(step: dict[str, Any]) -> float:
    removed = sum(count for name, count in step.items() if name.startswith("Rows Removed"))
    return float(step["Actual Rows"] * step["Actual Loops"] + removed)


def _fill(engine: Engine, table: str, state: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))
        fill = _FILL.format(table=table, rest=_STATES[state], many=_MANY)
        connection.exec_driver_sql(fill)


@pytest.fixture
def filled(request: pytest.FixtureRequest, queue: SQLQueue, engine: Engine, table: str) -> str:
    """The table, with many messages in the state asked for, of which no statistics exist."""
    _fill(engine, table, request.param)
    return table


def _wasteful(plans: Plans) -> list[tuple[str, float, str]]:
    """The steps that read the whole table, or more of it than they need."""
    return [
        (step["Node Type"], _rows_read(step), statement)
        for statement, step in plans.about_the_table()
        if step["Node Type"] == "Seq Scan" or _rows_read(step) > _BATCH + 100
    ]


def _use_all(queue: SQLQueue, name: str) -> None:
    """Every statement, on a few messages beside the many, and on as many as it takes."""
    queue.push(*(Message("work", id=f"{name} {number}") for number in range(40)))
    with pytest.raises(BatchError):
        queue.push(Message("work", id=f"{name} 0"), Message("work", id=f"{name} new"))
    popped = queue.pop("work", 20, wait=NOTHING)
    queue.retry(popped[0])
    queue.dead_letter(*popped[1:6])
    queue.extend_visibility(timedelta(minutes=1), popped[6])
    queue.release(popped[7])
    queue.ack(popped[8])
    queue.ack(*popped[9:20])
    queue.pop("work", wait=NOTHING)
    queue.pop("empty", wait=NOTHING)
    queue.push(*(Message("batch") for _ in range(_BATCH)))
    queue.retry(*queue.pop("batch", _BATCH))
    queue.ack(*queue.pop("batch", _BATCH))
    with queue._dialect._engine.begin() as connection:
        connection.execute(text(_UNREADABLE.format(table=queue._dialect._key[2], id=name)))
    assert queue.pop("unread", wait=NOTHING) == []
    letters = queue.dead_letters("work", 3)
    queue.dead_letters("work", 10, letters[-1].cursor)
    assert queue.forget("work", popped[1].id) == 1
    assert queue.redrive_ids("work", popped[2].id, "unknown") == 1
    assert queue.redrive("work", 2) == 2
    assert queue.queues() == ["unread", "work"]


@pytest.mark.parametrize("filled", _STATES, indirect=True)
def test_no_statement_reads_more_than_it_needs(filled: str, engine: Engine) -> None:
    """By an index each time, before and after ANALYZE, with plans made for a call or for all."""
    for analysed in (False, True):
        if analysed:
            with engine.begin() as connection:
                connection.execute(text(f"ANALYZE {filled}"))
        for mode in ("force_custom_plan", "force_generic_plan"):
            plans = Plans(mode, filled)
            queue = SQLQueue(plans.engine, table=filled)
            _use_all(queue, f"{analysed} {mode}")
            if mode == "force_custom_plan":
                # How much there is to count is not known to a plan for all queues.
                queue.stats("empty")
            queue.close()
            plans.engine.dispose()
            assert _wasteful(plans) == []
            statements = {statement for statement, _ in plans.about_the_table()}
            assert len(statements) == 12 + (mode == "force_custom_plan")


@pytest.mark.parametrize("state", ["ready", "dead"])
def test_plans_made_for_a_small_table_stay_good(
    queue: SQLQueue, engine: Engine, table: str, state: str
) -> None:
    """A worker's connections keep them for hours, while the table grows under them."""
    plans = Plans("force_generic_plan", table)
    queue.push(*(Message("work") for _ in range(30)))
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))
        connection.execute(text(f"ANALYZE {table}"))
    kept = SQLQueue(plans.engine, table=table)
    _use_all(kept, "small")
    _fill(engine, table, state)
    plans.told.clear()
    _use_all(kept, "full")
    kept.close()
    plans.engine.dispose()
    assert _wasteful(plans) == []


def test_a_claim_leases_what_it_returns(queue: SQLQueue, engine: Engine, table: str) -> None:
    """No row more, however many claim at once: each lease is in somebody's hands."""
    queue.push(*(Message("work") for _ in range(2_000)))
    taken: list[tuple[int, int]] = []

    def pop() -> None:
        for _ in range(25):
            popped = queue.pop("work", 7, wait=NOTHING)
            [token] = {each.driver_data.token for each in popped}  # type: ignore[union-attr]
            taken.append((token, len(popped)))

    threads = [threading.Thread(target=pop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with engine.connect() as connection:
        leased = connection.execute(
            text(f"SELECT token, count(*) FROM {table} WHERE token IS NOT NULL GROUP BY token")
        )
        assert sorted(taken) == sorted(tuple(row) for row in leased)
    assert {count for _, count in taken} == {7}
    assert len(taken) == 200


def test_each_statement_is_used() -> None:
    """None stays behind in the file when the code no longer runs it."""
    folder = Path(_postgresql.__file__).parent
    modules = [*folder.glob("_postgresql*.py"), *folder.glob("_server*.py")]
    sources = "".join(module.read_text() for module in modules)
    names = load_statements("postgresql.sql", messages="", layout="", now="")

    assert [name for name in names if f'"{name}"' not in sources] == []
