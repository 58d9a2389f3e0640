"""Several processes on one file, started afresh as workers are."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tools.script import started

from hypercube_queue import Message, open_queue
from hypercube_queue.driver import Deadline
from hypercube_queue_sql import DEFAULT_TABLE, SQLQueue

NOTHING = timedelta(0)
_LIMIT = 60

_PUSH = """
import sys
from hypercube_queue import Message, open_queue
url, name, count = sys.argv[1:]
queue = open_queue(url)
for number in range(int(count)):
    queue.push(*(Message("work", id=f"{name}-{number}-{part}") for part in range(3)))
    print(f"{name}-{number}", flush=True)
"""
_DRAIN = """
import json, sys
from datetime import timedelta
from hypercube_queue import open_queue
taken = []
with open_queue(sys.argv[1]) as queue:
    while popped := queue.pop("work", 7, wait=timedelta(seconds=float(sys.argv[2]))):
        queue.ack(*popped)
        taken += [each.id for each in popped]
print(json.dumps(taken))
"""
_WAIT = """
import sys, time
from datetime import timedelta
from hypercube_queue import open_queue
with open_queue(sys.argv[1]) as queue:
    queue.pop("work", wait=timedelta(0))
    print("waiting", flush=True)
    [delivery] = queue.pop("work", wait=timedelta(seconds=30))
    print(time.time(), flush=True)
"""
_START = """
import sys
from hypercube_queue import Message, open_queue
sys.stdin.readline()
with open_queue(sys.argv[1]) as queue:
    queue.push(Message("work", sys.argv[2].encode()))
"""


def test_processes_share_a_file_without_loss_or_repetition(url: str) -> None:
    """Two push, three drain, all at once: each message is taken exactly once."""
    with open_queue(url) as queue:
        queue.push(Message("other"))
    with (
        started(_PUSH, url, "a", "60") as first,
        started(_PUSH, url, "b", "60") as second,
        started(_DRAIN, url, "3") as one,
        started(_DRAIN, url, "3") as two,
        started(_DRAIN, url, "3") as three,
    ):
        taken = [each for drainer in (one, two, three) for each in json.loads(drainer.rest(_LIMIT))]
        for process in (first, second):
            process.rest(_LIMIT)

    assert Counter(taken) == Counter(
        f"{name}-{number}-{part}" for name in "ab" for number in range(60) for part in range(3)
    )


def test_processes_that_start_at_once_make_the_tables_once(url: str) -> None:
    """None fails, whoever is first."""
    with (
        started(_START, url, "0") as a,
        started(_START, url, "1") as b,
        started(_START, url, "2") as c,
        started(_START, url, "3") as d,
    ):
        time.sleep(1.0)
        for process in (a, b, c, d):
            process.tell("go")
        for process in (a, b, c, d):
            process.rest(_LIMIT)
    with open_queue(url) as queue:
        assert sorted(each.payload for each in queue.pop("work", 10)) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_what_a_killed_process_has_pushed_is_there(url: str, synchronous: str) -> None:
    """Each push that returned, whole; of the one that did not, all or nothing."""
    with started(_PUSH, f"{url}?synchronous={synchronous}", "a", "1000000") as process:
        reported = [process.line() for _ in range(150)]
        reported += process.kill().split()
    with open_queue(url) as queue:
        there: Counter[str] = Counter()
        while popped := queue.pop("work", 1000, wait=NOTHING):
            there.update(each.id.rpartition("-")[0] for each in popped)

    assert set(reported) <= there.keys()
    assert len(there) - len(reported) <= 1
    assert set(there.values()) == {3}


def test_messages_outlive_their_queue_object(file: Path, url: str) -> None:
    """In every state, with all that belongs to them."""
    with open_queue(url) as queue:
        queue.push(*(Message("work", b"%d" % number, extra=b"extra") for number in range(3)))
        queue.push(Message("work", b"3", delay=timedelta(hours=1)))
        held, dead, _ready = queue.pop("work", 3)
        queue.dead_letter(dead)
        queue.release(_ready)
        assert held.attempt == 1
    with open_queue(url) as queue:
        assert isinstance(queue, SQLQueue)
        stats = queue.stats("work")
        assert (stats.ready, stats.delayed, stats.in_flight, stats.dead) == (1, 1, 1, 1)
        [letter] = queue.dead_letters("work", 10)
        assert letter.message is not None
        assert (letter.message.payload, letter.message.extra) == (b"1", b"extra")


def test_a_waiting_pop_finds_what_another_process_pushes(url: str) -> None:
    """By one of its looks, long before its wait is over."""
    with open_queue(url) as queue:
        queue.push(Message("other"))
        with started(_WAIT, url) as process:
            assert process.line() == "waiting"
            time.sleep(0.5)
            pushed = time.time()
            queue.push(Message("work"))
            came = float(process.line())

    assert came - pushed < 10


@pytest.mark.usefixtures("told_only")
def test_a_waiting_pop_is_woken_by_another_queue_object(url: str) -> None:
    """Objects of one process on one file wake each other; they need not look."""
    with open_queue(url) as waiting, open_queue(url) as pushing:
        for wake in (_push, _retry, _release, _redrive, _redrive_ids):
            came: list[bytes] = []

            def pop(came: list[bytes] = came) -> None:
                popped = waiting.pop("work", wait=timedelta(seconds=30))
                came.extend(each.payload for each in popped)
                waiting.ack(*popped)

            prepared = wake(pushing)
            next(prepared)
            thread = threading.Thread(target=pop)
            thread.start()
            time.sleep(0.2)
            next(prepared, None)
            thread.join(20)
            assert came == [b"0"], wake.__name__


def _push(queue) -> Iterator[None]:
    yield
    queue.push(Message("work", b"0"))


def _retry(queue) -> Iterator[None]:
    queue.push(Message("work", b"0"))
    [delivery] = queue.pop("work")
    yield
    queue.retry(delivery)


def _release(queue) -> Iterator[None]:
    queue.push(Message("work", b"0"))
    [delivery] = queue.pop("work")
    yield
    queue.release(delivery)


def _redrive(queue) -> Iterator[None]:
    queue.push(Message("work", b"0"))
    queue.dead_letter(*queue.pop("work"))
    yield
    queue.redrive("work", 1)


def _redrive_ids(queue) -> Iterator[None]:
    queue.push(Message("work", b"0", id="same"))
    queue.dead_letter(*queue.pop("work"))
    yield
    queue.redrive_ids("work", "same")


def test_a_pop_that_is_idle_for_long_asks_twice_a_second_at_most(queue: SQLQueue) -> None:
    """And holds neither a connection nor a transaction meanwhile (POP-7)."""
    queue.pop("work", wait=timedelta(seconds=2))
    asked = 0
    look = queue._dialect._next_visible

    def counted(queue_name: str, end: Deadline) -> float | None:
        nonlocal asked
        asked += 1
        return look(queue_name, end)

    queue._dialect._next_visible = counted
    begun = time.monotonic()
    thread = threading.Thread(
        target=queue.pop, args=["work"], kwargs={"wait": timedelta(seconds=2)}
    )
    thread.start()
    time.sleep(1.0)
    assert queue._dialect._engine.pool.checkedout() == 0
    thread.join(20)

    # The first look and the last among them.
    assert 3 <= asked <= 2 * (time.monotonic() - begun) + 2


def test_many_waiting_threads_take_each_message_once(queue: SQLQueue) -> None:
    """More threads than any pool has connections, woken one by one."""
    taken: list[bytes] = []

    def work() -> None:
        while popped := queue.pop("work", 2, wait=timedelta(seconds=2)):
            queue.ack(*popped)
            taken.extend(each.payload for each in popped)

    threads = [threading.Thread(target=work) for _ in range(40)]
    for thread in threads:
        thread.start()
    for number in range(300):
        queue.push(Message("work", b"%d" % number))
    for thread in threads:
        thread.join(_LIMIT)

    assert sorted(taken, key=int) == [b"%d" % number for number in range(300)]


def test_closing_ends_a_log_that_would_stay_behind(file: Path, url: str) -> None:
    """What the queue opened is closed: the database is one file again."""
    with open_queue(url) as queue:
        queue.push(Message("work"))
        assert file.with_name("jobs.db-wal").exists()

    assert [each.name for each in file.parent.iterdir()] == ["jobs.db"]
    with closing(sqlite3.connect(file)) as connection:
        [(count,)] = connection.execute(f"SELECT count(*) FROM {DEFAULT_TABLE}").fetchall()
    assert count == 1
