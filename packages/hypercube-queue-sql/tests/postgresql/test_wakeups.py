"""How a pop that waits learns what others store, and how little it costs to tell."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import create_engine
from tools.backends import server
from tools.script import started

from hypercube_queue import Message, QueueClosed, open_queue
from hypercube_queue_sql import SQLQueue
from hypercube_queue_sql._notices import Notices

pytestmark = pytest.mark.server("postgres")

NOTHING = timedelta(0)

#: Waits for one message after the other, never looks by itself, and says what came.
_WAIT = """
import sys, time
from datetime import timedelta
from hypercube_queue import open_queue
from hypercube_queue_sql._pace import Pace
Pace.seconds = lambda pace, queue_name, watchers, longest: longest
with open_queue(sys.argv[1]) as queue:
    type(queue._dialect).poll_seconds = 300
    queue._dialect.listen()
    while not queue._dialect.hears:
        time.sleep(0.02)
    print("waiting", flush=True)
    while True:
        popped = queue.pop("work", wait=timedelta(seconds=60))
        print(popped[0].id, flush=True)
        queue.ack(*popped)
"""


@contextmanager
def _watching() -> Iterator[psycopg.Connection]:
    """A connection that looks at the others."""
    with psycopg.connect(server("postgres").url("postgresql"), autocommit=True) as connection:
        yield connection


def _pids(connection: psycopg.Connection, application: str, where: str = "true") -> list[int]:
    found = connection.execute(
        f"SELECT pid FROM pg_stat_activity WHERE application_name = %s AND {where}", [application]
    )
    return [pid for (pid,) in found]


_LISTENS = "query LIKE 'LISTEN %%' OR query = 'SELECT 1'"


def _until(condition: Callable[[], object], what: str = "") -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what or "it never came to this"
        time.sleep(0.02)


def _listening_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "hypercube-listener"}


def _listener(connection: psycopg.Connection, application: str) -> int:
    """The connection that listens, as soon as there is one."""
    _until(lambda: _pids(connection, application, _LISTENS))
    [pid] = _pids(connection, application, _LISTENS)
    return pid


@contextmanager
def _waiting(queue: SQLQueue, name: str = "work") -> Iterator[list[str]]:
    """A thread that pops; the ids of what came."""
    came: list[str] = []
    stop = threading.Event()

    def pop() -> None:
        while not stop.is_set():
            for delivery in queue.pop(name, wait=timedelta(seconds=60)):
                came.append(delivery.id)
                queue.ack(delivery)

    thread = threading.Thread(target=pop)
    thread.start()
    try:
        yield came
    finally:
        stop.set()
        queue.push(Message(name))
        thread.join(20)
        assert not thread.is_alive()


def test_a_push_wakes_a_pop_of_another_process(queue: SQLQueue, url: str) -> None:
    """Each time, though it comes between two pops."""
    with started(_WAIT, url) as process:
        assert process.line() == "waiting"
        for number in range(15):
            queue.push(Message("work", id=f"{number}"))
            assert process.line() == f"{number}"


@pytest.mark.usefixtures("told_only")
def test_all_that_makes_a_message_visible_is_announced(queue: SQLQueue, url: str) -> None:
    """Retry, release, and both ways to redrive: to waiting pops of other queue objects."""
    calls = {
        "retry": lambda: queue.retry(held),
        "release": lambda: queue.release(held),
        "redrive": lambda: (queue.dead_letter(held), queue.redrive("work", 1)),
        "redrive_ids": lambda: (queue.dead_letter(held), queue.redrive_ids("work", held.id)),
    }
    # Another database name for the same database, so that nothing is shared within the process.
    with open_queue(f"{url}&connect_timeout=20") as other, open_queue(url) as first:
        assert isinstance(other, SQLQueue)
        assert isinstance(first, SQLQueue)
        assert other._dialect.wakeups is not queue._dialect.wakeups
        for name, call in calls.items():
            queue.push(Message("work"))
            [held] = queue.pop("work")
            time.sleep(0.5)
            with _waiting(other) as came:
                _until(lambda: other._dialect.hears)
                time.sleep(0.1)
                call()
                _until(lambda: came, name)


def test_an_idle_pop_asks_once_a_second_at_most(
    table: str, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And holds neither a connection of the pool nor a transaction meanwhile (POP-7).

    The process that listens asks every two seconds, beside that, whether its connection lives.
    """
    executed: list[str] = []
    execute = psycopg.Cursor.execute

    def counted(cursor: psycopg.Cursor, query: str, *args, **options) -> psycopg.Cursor:
        if cursor.connection.info.parameter_status("application_name") == application:
            executed.append(query)
        return execute(cursor, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    engine = create_engine(
        server("postgres").url("postgresql+psycopg", application_name=application)
    )
    queue = SQLQueue(engine, table=table, create_tables=True)
    queue.push(Message("other", delay=timedelta(hours=1)))
    errors: list[object] = []
    thread = threading.Thread(target=_closed, args=[queue, errors])
    with _watching() as watching:
        thread.start()
        _listener(watching, application)
        time.sleep(1.2)
        del executed[:]
        begun = time.monotonic()
        while time.monotonic() - begun < 4:
            assert _pids(watching, application, "state LIKE 'idle in transaction%%'") == []
            time.sleep(0.05)
        asked = [each for each in executed if each != "SELECT 1"]
        checked = len(executed) - len(asked)
        assert engine.pool.checkedout() == 0
        queue.close()
        thread.join(20)
    engine.dispose()

    assert 2 <= len(asked) <= 5
    assert checked <= 3
    assert [type(each) for each in errors] == [QueueClosed]


def _closed(queue: SQLQueue, errors: list[object]) -> None:
    try:
        queue.pop("work", wait=timedelta(hours=1))
    except QueueClosed as error:
        errors.append(error)


@pytest.mark.usefixtures("told_only")
def test_a_listener_that_is_killed_comes_back_and_hears_again(
    queue: SQLQueue, url: str, application: str
) -> None:
    """By itself, within seconds; waiting pops do not notice."""
    pusher = open_queue(url.replace(application, "pusher"))
    with _watching() as watching, _waiting(queue) as came, pusher:
        for killed in range(3):
            pid = _listener(watching, application)
            watching.execute("SELECT pg_terminate_backend(%s)", [pid])
            _until(lambda: pid not in _pids(watching, application))  # noqa: B023  # runs at once
            _listener(watching, application)
            _until(lambda: queue._dialect.hears)
            time.sleep(0.1)
            pusher.push(Message("work"))
            _until(lambda: len(came) > killed)  # noqa: B023  # runs at once


@contextmanager
def _hearing(queue: SQLQueue) -> Iterator[Callable[[int], list[str]]]:
    """Listens to what the queue sends; call it with how many messages that has to be about."""
    with _watching() as connection:
        connection.execute(f"LISTEN {queue._dialect._channel}")

        def heard(about: int) -> list[str]:
            end = time.monotonic() + 20
            while sum(int(notice.partition(" ")[0]) for notice in came) < about:
                assert time.monotonic() < end, f"only {came} came"
                came.extend(each.payload for each in connection.notifies(timeout=0.1))
            # And nothing else.
            came.extend(each.payload for each in connection.notifies(timeout=0.6))
            return came

        came: list[str] = []
        yield heard


def test_a_burst_of_pushes_is_told_in_a_few_notices(queue: SQLQueue) -> None:
    """Each notice takes a lock of the whole server's; none is lost, only put together."""
    with _hearing(queue) as heard:
        begun = time.monotonic()
        for _ in range(1000):
            queue.push(Message("work"))
        took = time.monotonic() - begun
        notices = heard(1000)

    hints = [payload.split() for payload in notices]
    assert {name for _, name in hints} == {b"work".hex()}
    assert sum(int(count) for count, _ in hints) == 1000
    assert len(notices) <= 5 + 5 * (took + 0.5)


def test_what_is_held_back_is_told_though_nobody_pushes_any_more(queue: SQLQueue) -> None:
    """A moment later."""
    with _hearing(queue) as heard:
        for _ in range(8):
            queue.push(Message("work"))
        notices = heard(8)

    assert sum(int(payload.split()[0]) for payload in notices) == 8


def test_a_closed_queue_tells_nothing_more(table: str, application: str) -> None:
    """The engine is the caller's to dispose of then: a connection made later would stay open."""
    engine = create_engine(
        server("postgres").url("postgresql+psycopg", application_name=application)
    )
    queue = SQLQueue(engine, table=table, create_tables=True)
    for _ in range(5):
        queue.push(Message("work"))
    notices = queue._dialect._notices
    tell = notices._send_all
    begun = threading.Event()

    def tell_late(counts: Mapping[str, int]) -> None:
        begun.set()
        time.sleep(0.5)
        tell(counts)

    notices._send_all = tell_late
    queue.push(Message("work"))
    assert begun.wait(10)
    queue.close()
    engine.dispose()
    time.sleep(1)
    with _watching() as watching:
        assert _pids(watching, application) == []


def test_each_queue_has_notices_of_its_own(queue: SQLQueue) -> None:
    """A busy one does not silence another."""
    quiet = "quiet, 'ü' "
    with _hearing(queue) as heard:
        for _ in range(20):
            queue.push(Message("busy"))
        queue.push(Message(quiet))
        notices = heard(21)

    assert notices.count(f"1 {quiet.encode().hex()}") == 1


def test_a_busy_queue_does_not_delay_the_notices_of_another() -> None:
    """They are sent within the call, before what is held back."""
    sent: list[Mapping[str, int]] = []
    notices = Notices(sent.append)
    for _ in range(20):
        notices.send("busy", 1)
    notices.send("quiet", 3)
    assert sent[-1] == {"quiet": 3}
    notices.flush()
    assert sum(each.get("busy", 0) for each in sent) == 20


def test_a_push_in_a_transaction_is_told_when_it_commits(queue: SQLQueue) -> None:
    """And never if it does not."""
    with _hearing(queue) as heard:
        with psycopg.connect(server("postgres").url("postgresql")) as connection:
            queue.push_within(connection, Message("work"))
            connection.rollback()
            queue.push_within(connection, Message("work"), Message("work"), Message("other"))
            assert heard(0) == []
        notices = heard(3)

    assert sorted(notices) == [
        f"1 {b'other'.hex()}",
        f"2 {b'work'.hex()}",
    ]


@pytest.mark.parametrize("payload", ["", "x", "1 zz", "many 776f726b", "1 ff", "-1 776f726b"])
def test_what_others_send_on_the_channel_does_no_harm(queue: SQLQueue, payload: str) -> None:
    """Anybody may; listening goes on."""
    with _watching() as watching, _waiting(queue) as came:
        _until(lambda: queue._dialect.hears)
        watching.execute("SELECT pg_notify(%s, %s)", [queue._dialect._channel, payload])
        watching.execute(
            "SELECT pg_notify(%s, %s)", [queue._dialect._channel, f"1 {b'work'.hex()}"]
        )
        time.sleep(0.2)
        assert queue._dialect.hears
        queue.push(Message("work"))
        _until(lambda: came)


def test_closing_a_queue_ends_its_connections(url: str, application: str) -> None:
    """The one that listens, too, soon, and the thread with it."""
    before = _listening_threads()
    with _watching() as watching:
        queue = open_queue(url)
        with open_queue(url) as other:
            for each in (queue, other):
                each.queues()
                each._dialect.listen()
            _until(lambda: len(_pids(watching, application, _LISTENS)) == 2)
            queue.close()
            _until(lambda: len(_pids(watching, application, _LISTENS)) == 1)
        _until(lambda: _pids(watching, application) == [])
    _until(lambda: _listening_threads() <= before)


def test_a_queue_that_never_waited_has_no_listener(queue: SQLQueue, application: str) -> None:
    """Whoever only pushes, or pops what is there, costs the server no more than that."""
    queue.push(Message("work"))
    queue.ack(*queue.pop("work"))
    assert queue.pop("work", wait=NOTHING) == []
    with _watching() as watching:
        assert len(_pids(watching, application)) == 1
        assert _pids(watching, application, _LISTENS) == []


def _forked(call: Callable[[], object]) -> str:
    """What a call in a forked child returns or raises."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Forking beside threads is what a preloading server does, and what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        signal.alarm(60)
        try:
            answer = f"{call()!r}"
        except BaseException as error:  # noqa: BLE001 - the parent is told
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        answer = told.read().decode()
    os.waitpid(pid, 0)
    return answer


@pytest.mark.usefixtures("told_only")
def test_a_forked_child_listens_for_itself(queue: SQLQueue, application: str) -> None:
    """LIFE-4: on a connection of its own, and the parent's goes on hearing."""
    with _watching() as watching, _waiting(queue) as came:
        parent_s = _listener(watching, application)

        def in_child() -> list[bool]:
            queue.push(Message("elsewhere"))
            heard_at_first = queue._dialect.hears
            queue.ack(*queue.pop("elsewhere"))
            queue.pop("elsewhere", wait=timedelta(seconds=1))
            heard_then = queue._dialect.hears
            with psycopg.connect(server("postgres").url("postgresql")) as connection:
                pids = _pids(connection, application, _LISTENS)
            queue.close()
            return [heard_at_first, heard_then, parent_s in pids, len(pids) == 2]

        assert _forked(in_child) == "[False, True, True, True]"
        _until(lambda: _pids(watching, application, _LISTENS) == [parent_s])
        with psycopg.connect(server("postgres").url("postgresql")) as connection:
            queue.push_within(connection, Message("work"))
        _until(lambda: came)
        assert _pids(watching, application, _LISTENS) == [parent_s]
