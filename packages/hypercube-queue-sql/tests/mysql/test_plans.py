"""No statement reads more rows than it needs, whatever the server knows of the table (POP-9)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from tools.backends.instance import Server

from hypercube_queue import BatchError, Message
from hypercube_queue_sql import SQLQueue, _mysql
from hypercube_queue_sql._statements import load_statements

NOTHING = timedelta(0)
_DIGITS = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
#: 100,000 messages of one queue: 4 in 10 ready, 3 dead, 3 in flight.
_FILL = f"""
INSERT INTO {{table}} (queue_name, id, attempt, job_name, namespace, extra, payload, state,
  visible_at, token)
SELECT 'work', concat('id', n), 0, '', '', '', 'payload', n % 10 < 3,
  {_mysql.MySQLDialect.now} + n + IF(n % 10 BETWEEN 3 AND 5, 1, -1) * 3600000000,
  IF(n % 10 BETWEEN 3 AND 5, n, NULL)
FROM (
  SELECT a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d AS n
  FROM ({_DIGITS}) AS a, ({_DIGITS}) AS b, ({_DIGITS}) AS c, ({_DIGITS}) AS d, ({_DIGITS}) AS e
) AS numbers
"""


class Reads:
    """Counts the rows that the only connection of an engine has read."""

    def __init__(self, place: Server) -> None:
        self.engine = create_engine(place.url("mysql+pymysql"), pool_size=1, max_overflow=0)

    def _total(self) -> int:
        with self.engine.connect() as connection:
            rows = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
        return sum(int(count) for _, count in rows)

    def of(self, call: Callable[[], object]) -> int:
        """Those of a call, less those of counting."""
        first = self._total()
        second = self._total()
        call()
        return self._total() - second - (second - first)


@pytest.fixture
def reads(place: Server) -> Iterator[Reads]:
    made = Reads(place)
    yield made
    made.engine.dispose()


def _check_each(queue: SQLQueue, reads: Reads, name: str) -> None:
    """Every operation, on a few messages beside the many."""

    def exactly(most: int, call: Callable[[], object]) -> None:
        count = reads.of(call)
        assert count <= most, call

    batch = [Message("work", id=f"{name} {number}") for number in range(40)]
    exactly(0, lambda: queue.push(*batch))

    def again() -> None:
        with pytest.raises(BatchError):
            queue.push(Message("work", id=f"{name} 0"), Message("work", id=f"{name} new"))

    exactly(10, again)
    popped: list[Message] = []
    # Once to lock it, once to change it, and a few for the next one.
    exactly(70, lambda: popped.extend(queue.pop("work", 20, wait=NOTHING)))
    exactly(10, lambda: queue.pop("empty", wait=NOTHING))
    exactly(10, lambda: queue.retry(popped[0]))
    exactly(40, lambda: queue.dead_letter(*popped[1:6]))
    exactly(10, lambda: queue.extend_visibility(timedelta(minutes=1), popped[6]))
    exactly(10, lambda: queue.release(popped[7]))
    exactly(80, lambda: queue.ack(*popped[8:20]))

    def stale() -> None:
        with pytest.raises(BatchError):
            queue.ack(*popped[8:20])

    exactly(40, stale)
    exactly(10, lambda: queue.dead_letters("work", 3))
    # Among the oldest of them, so that those before would have to be passed over.
    oldest = f"SELECT min(visible_at) + 5000 FROM {queue._dialect._key[2]} WHERE state = 1"
    with reads.engine.connect() as connection:
        died_at = connection.scalar(text(oldest))
    exactly(20, lambda: queue.dead_letters("work", 10, f"{died_at}.1"))
    exactly(10, lambda: queue.forget("work", popped[1].id, "unknown"))
    exactly(10, lambda: queue.redrive_ids("work", popped[2].id, "unknown"))
    exactly(20, lambda: queue.redrive("work", 2))
    exactly(20, queue.queues)
    exactly(10, lambda: queue.stats("empty"))

    def set_aside() -> None:
        assert queue.pop("unread", wait=NOTHING) == []

    with reads.engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO {queue._dialect._key[2]} (queue_name, id, state, visible_at, "
                "attempt, job_name, namespace, extra, payload) "
                f"VALUES ('unread', '{name}', 0, 0, 0, X'FF', '', '', '')"
            )
        )
    exactly(20, set_aside)


def test_no_statement_reads_more_than_it_needs(
    queue: SQLQueue, engine: Engine, table: str, reads: Reads
) -> None:
    """With few rows and with 100,000, before and after ANALYZE."""
    own = SQLQueue(reads.engine, table=table)
    own.queues()
    _check_each(own, reads, "few")
    with engine.begin() as connection:
        connection.exec_driver_sql(_FILL.format(table=table).replace("%", "%%"))
    _check_each(own, reads, "many")
    with engine.begin() as connection:
        connection.execute(text(f"ANALYZE TABLE {table}"))
    _check_each(own, reads, "analysed")
    own.close()
    assert queue.stats("work").ready > 39_000


def test_a_claim_leases_what_it_returns(queue: SQLQueue, engine: Engine, table: str) -> None:
    """No row more, however many claim at once: each lease is in somebody's hands."""
    queue.push(*(Message("work") for _ in range(1_000)))
    taken: list[tuple[int, int]] = []

    def pop() -> None:
        while popped := queue.pop("work", 7, wait=NOTHING):
            [token] = {each.driver_data.token for each in popped}  # type: ignore[union-attr]
            taken.append((token, len(popped)))

    threads = [threading.Thread(target=pop) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with engine.connect() as connection:
        leased = connection.execute(
            text(f"SELECT token, count(*) FROM {table} WHERE token IS NOT NULL GROUP BY token")
        )
        assert sorted(taken) == sorted(tuple(row) for row in leased)
    assert sum(count for _, count in taken) == 1_000


def test_each_statement_is_used() -> None:
    """None stays behind in the file when the code no longer runs it."""
    folder = Path(_mysql.__file__).parent
    modules = [*folder.glob("_mysql*.py"), *folder.glob("_server*.py")]
    sources = "".join(module.read_text() for module in modules)
    names = load_statements("mysql.sql", messages="", layout="", now="", ready="", unique="")

    assert [name for name in names if f'"{name}"' not in sources] == []
