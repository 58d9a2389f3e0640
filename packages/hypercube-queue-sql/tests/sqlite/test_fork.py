"""A forked child has connections of its own, and takes nothing from its parent (LIFE-4)."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from hypercube_queue import Message, QueueError, open_queue
from hypercube_queue_sql import DEFAULT_TABLE, SQLQueue

NOTHING = timedelta(0)


class Child:
    """A fork of this process that runs a call and tells what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Forking beside threads is what a preloading server does, and what is tested here.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid:
            os.close(writing)
            return
        signal.alarm(60)
        try:
            answer = f"{call()!r}"
        except BaseException as error:  # noqa: BLE001 - the parent is told
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)

    def answer(self) -> str:
        """What the call returned or raised."""
        with os.fdopen(self._reading, "rb") as told:
            answer = told.read().decode()
        os.waitpid(self._pid, 0)
        return answer


def test_what_a_child_commits_outlives_its_parent_s_connections(file: Path, url: str) -> None:
    """The parent closes its queue while the child goes on: no log is pulled away beneath it."""
    go_on, told = os.pipe()
    queue = open_queue(url)
    queue.push(Message("work", b"parent"))

    def in_child() -> int:
        queue.push(Message("work", b"child before"))
        os.read(go_on, 1)
        for number in range(50):
            queue.push(Message("work", b"child after %d" % number))
        return len(queue.pop("work", 100))

    child = Child(in_child)
    while queue.stats("work").ready < 2:
        time.sleep(0.01)
    queue.close()
    os.write(told, b"x")
    assert child.answer() == "52"
    with closing(sqlite3.connect(file)) as connection:
        [(count,)] = connection.execute(f"SELECT count(*) FROM {DEFAULT_TABLE}").fetchall()
    assert count == 52


def test_a_fork_in_the_midst_of_calls_waits_for_them(url: str) -> None:
    """Threads push all the while; nothing fails in the parent, and every child works."""
    with open_queue(url) as queue:
        queue.push(Message("mine"))
        stop = threading.Event()
        pushed: list[int] = []

        def push() -> None:
            while not stop.is_set():
                queue.push(Message("work"))
                pushed.append(1)

        threads = [threading.Thread(target=push) for _ in range(3)]
        for thread in threads:
            thread.start()
        answers = [
            Child(lambda n=number: queue.push(Message("child", b"%d" % n))).answer()
            for number in range(5)
        ]
        stop.set()
        for thread in threads:
            thread.join(20)
        assert answers == ["None"] * 5
        assert queue.stats("child").ready == 5
        assert queue.stats("work").ready == len(pushed)


def test_a_child_that_could_not_be_had_cleanly_is_told(
    file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that hangs in the parent cannot be waited for: the child refuses, for its own good."""
    monkeypatch.setattr("hypercube_queue_sql._fork._PATIENCE", 0.1)
    with open_queue(url) as queue:
        queue.push(Message("work", b"0"))
        with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            hanging = threading.Thread(target=queue.push, args=[Message("work", b"1")])
            hanging.start()
            time.sleep(0.2)
            child = Child(lambda: queue.pop("work", wait=NOTHING))
            answer = child.answer()
            other.execute("COMMIT")
            hanging.join(20)
        assert answer.startswith("BackendError: ")
        assert "forked while another thread used the database" in answer
        assert [each.payload for each in queue.pop("work", 10)] == [b"0", b"1"]


def test_a_queue_opened_after_the_fork_is_the_child_s_own(url: str) -> None:
    """Beside an inherited one that is not used."""
    with open_queue(url) as queue:
        queue.push(Message("work", b"0"))

        def in_child() -> list[bytes]:
            with open_queue(url) as own:
                popped = own.pop("work")
                own.ack(*popped)
                return [each.payload for each in popped]

        assert Child(in_child).answer() == "[b'0']"
        assert queue.pop("work", wait=NOTHING) == []


def test_a_child_s_child_works(url: str) -> None:
    """Forks may follow each other."""
    with open_queue(url) as queue:
        queue.push(Message("work", b"0"))

        def in_child() -> str:
            queue.push(Message("work", b"1"))
            return Child(lambda: len(queue.pop("work", 10))).answer()

        assert Child(in_child).answer() == "'2'"


def test_an_engine_of_the_caller_s_is_not_used_in_a_child(url: str) -> None:
    """BackendError that says what to do, each time, and the parent goes on."""
    engine = create_engine(url)
    queue = SQLQueue(engine, create_tables=True)
    queue.push(Message("work", b"0"))

    def in_child() -> list[str]:
        answers = []
        for _ in range(2):
            try:
                queue.pop("work", wait=NOTHING)
            except QueueError as error:
                answers.append(f"{type(error).__name__}: {error}")
        return answers

    answer = Child(in_child).answer()
    assert answer.count("BackendError: ") == 2
    assert answer.count("make an engine and a queue after the fork") == 2
    assert [each.payload for each in queue.pop("work")] == [b"0"]
    engine.dispose()


def test_memory_stays_with_the_parent() -> None:
    """QueueClosed that names the fork."""
    with open_queue("sqlite://") as queue:
        queue.push(Message("work", b"0"))
        answer = Child(lambda: queue.push(Message("work"))).answer()
        assert answer.startswith("QueueClosed: ")
        assert "forked" in answer
        assert [each.payload for each in queue.pop("work")] == [b"0"]
