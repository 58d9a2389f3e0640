"""Connections that fall silent, end, or belong to somebody else."""

from __future__ import annotations

import re
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pymysql
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url
from tools.backends import exclusive
from tools.backends.instance import Server
from tools.backends.relay import Relay

from hypercube_queue import (
    BackendError,
    BatchError,
    InvalidArgument,
    Message,
    QueueError,
    open_queue,
)
from hypercube_queue_sql import SQLQueue, _mysql_client
from hypercube_queue_sql._mysql_client import BeginningCursor, PyMySQLClient

NOTHING = timedelta(0)
_LIMIT = 90


def _error(call: Callable[[], object]) -> BackendError | None:
    """The BackendError of a call or of its only item; None if there is none."""
    try:
        call()
    except BatchError as error:
        [failure] = error.failed
        assert isinstance(failure.error, BackendError)
        return failure.error
    except BackendError as error:
        return error
    return None


def _until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _fill_pool(queue: SQLQueue, count: int = 15) -> list[Any]:
    """So many idle connections, 15 at most; what is beneath them."""
    opened = [queue._dialect._engine.raw_connection() for _ in range(count)]
    beneath = [each.driver_connection for each in opened]
    for each in opened:
        each.close()
    return beneath


# Silence


def _operations(queue: SQLQueue) -> dict[str, Callable[[], object]]:
    """Every operation once, each with messages of its own."""
    for name in ("held", "dead"):
        queue.push(*(Message(name, id=str(number)) for number in range(10)))
    held = queue.pop("held", 10)
    queue.dead_letter(*queue.pop("dead", 10))
    queue.push(Message("ready"), Message("ready"))
    return {
        "push": lambda: queue.push(Message("work")),
        "pop": lambda: queue.pop("ready", wait=NOTHING),
        "ack": lambda: queue.ack(held[0]),
        "retry": lambda: queue.retry(held[1]),
        "dead_letter": lambda: queue.dead_letter(held[2]),
        "extend_visibility": lambda: queue.extend_visibility(timedelta(minutes=1), held[3]),
        "release": lambda: queue.release(held[4]),
        "redrive": lambda: queue.redrive("dead", 1),
        "queues": queue.queues,
        "stats": lambda: queue.stats("held"),
        "dead_letters": lambda: queue.dead_letters("dead", 1),
        "redrive_ids": lambda: queue.redrive_ids("dead", "8"),
        "forget": lambda: queue.forget("dead", "9"),
        "create_tables": queue.create_tables,
    }


def _at_once(calls: dict[str, Callable[[], object]]) -> dict[str, BackendError | None]:
    """The error of each."""
    results: dict[str, BackendError | None] = {}

    def run(name: str) -> None:
        results[name] = _error(calls[name])

    threads = [threading.Thread(target=run, args=[name]) for name in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT)
    assert results.keys() == calls.keys()
    return results


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "unconnected"])
def test_each_operation_on_a_silent_server_ends_in_time(
    relayed_url: str, relay: Relay, connected: bool
) -> None:
    """BackendError (ERR-5): nothing was committed, so nothing is unknown; later all work."""
    with open_queue(f"{relayed_url}&operation_timeout=4") as queue:
        assert isinstance(queue, SQLQueue)
        operations = _operations(queue)
        if connected:
            _fill_pool(queue)
        else:
            queue._dialect._engine.pool.dispose()
        relay.cut()
        begun = time.monotonic()
        results = _at_once(operations)
        assert time.monotonic() - begun < 12
        assert [name for name, error in results.items() if error is None] == []
        assert [name for name, error in results.items() if error and error.outcome_unknown] == []
        told = "did not answer within" if connected else "no connection came about within"
        assert {told in str(error) for error in results.values()} == {True}
        relay.mend()
        results = _at_once(operations)

    assert {name: error for name, error in results.items() if error is not None} == {}


def test_calls_that_connect_again_to_a_silent_server_end_in_time(
    relayed_url: str, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the library gives up, which here takes a minute more than a call may (ERR-5)."""
    monkeypatch.setattr(_mysql_client, "_GRACE_SECONDS", 60)
    with open_queue(f"{relayed_url}&operation_timeout=3") as queue:
        assert isinstance(queue, SQLQueue)
        _until(lambda: _error(lambda: queue.push(Message("other"))) is None, 60)
        relay.cut()
        begun = time.monotonic()
        # The first one cuts the connection that there is, the next one finds its empty place.
        for _ in range(3):
            assert _error(lambda: queue.push(Message("work"))) is not None
        assert time.monotonic() - begun < 45
        relay.mend()
        _until(lambda: _error(lambda: queue.push(Message("work"))) is None, 60)


def test_a_pop_that_waits_on_a_silent_server_ends_in_time(relayed_url: str, relay: Relay) -> None:
    """After its wait and the time limit at the latest, and close does not hang."""
    queue = open_queue(f"{relayed_url}&operation_timeout=1.5")
    queue.push(Message("other"))
    errors: list[BackendError | None] = []
    thread = threading.Thread(
        target=lambda: errors.append(_error(lambda: queue.pop("work", wait=timedelta(seconds=2))))
    )
    begun = time.monotonic()
    thread.start()
    time.sleep(0.5)
    relay.cut()
    thread.join(_LIMIT)
    assert time.monotonic() - begun < 8
    [error] = errors
    assert error is not None
    begun = time.monotonic()
    queue.close()
    assert time.monotonic() - begun < 6


# Ends


def _have_ended(ids: set[int], watching: Callable[[str], Any]) -> bool:
    there = watching("SELECT id FROM information_schema.processlist")
    return not ids & {row[0] for row in there}


@pytest.mark.parametrize("end", ["KILL", "wait_timeout"])
def test_connections_that_the_server_ended_are_replaced(queue: SQLQueue, watching, end) -> None:
    """All of them, while a handler runs: its settlement does not fail, be they ever so many."""
    for call in (queue.ack, queue.retry, queue.dead_letter, queue.release, queue.push):
        queue.push(Message("work"))
        beneath = _fill_pool(queue, 4)
        [delivery] = queue.pop("work")
        ids = {each.thread_id() for each in beneath}
        for each in beneath:
            if end == "KILL":
                watching(f"KILL {each.thread_id()}")
            else:
                each.query("SET SESSION wait_timeout = 1")
                each.query("COMMIT")
        _until(partial(_have_ended, ids, watching))
        if call == queue.push:
            queue.ack(delivery)
            call(Message("work"))
        else:
            call(delivery)
        assert queue.stats("work").in_flight == 0
        for each in queue.pop("work", 10, wait=NOTHING):
            queue.ack(each)


_SETTLEMENTS = ("ack", "retry", "dead_letter", "release", "extend_visibility")
#: Ready, in flight and dead, after each of them.
_AFTER = {
    "ack": (0, 0, 0),
    "retry": (1, 0, 0),
    "dead_letter": (0, 0, 1),
    "release": (1, 0, 0),
    "extend_visibility": (0, 1, 0),
}


def _settlement(queue: SQLQueue, name: str, delivery: Message) -> Callable[[], object]:
    if name == "extend_visibility":
        return lambda: queue.extend_visibility(timedelta(minutes=1), delivery)
    return lambda: getattr(queue, name)(delivery)


def _there(queue: SQLQueue) -> tuple[int, int, int]:
    stats = queue.stats("work")
    return stats.ready, stats.in_flight, stats.dead


@pytest.mark.parametrize("name", _SETTLEMENTS)
def test_a_settlement_whose_connection_ends_in_the_midst_is_repeated(
    queue: SQLQueue, table: str, connect, watching, name: str
) -> None:
    """The token makes that safe: it succeeds, once."""
    queue.push(Message("work"))
    [delivery] = queue.pop("work")
    ids = {each.thread_id() for each in _fill_pool(queue, 2)}
    errors: list[BackendError | None] = []
    settle = _settlement(queue, name, delivery)
    thread = threading.Thread(target=lambda: errors.append(_error(settle)))
    with closing(connect()) as holder:
        holder.query(f"SELECT 1 FROM {table} FOR UPDATE")
        thread.start()
        running = (
            "SELECT id FROM information_schema.processlist "
            f"WHERE command = 'Query' AND info LIKE '%{table}%FOR UPDATE'"
        )

        def waiting() -> set[int]:
            return ids & {row[0] for row in watching(running)}

        _until(waiting)
        for each in waiting():
            watching(f"KILL {each}")
        time.sleep(0.2)
        holder.rollback()
        thread.join(_LIMIT)
    assert errors == [None]
    assert _there(queue) == _AFTER[name]


class _LosingCommits(PyMySQLClient):
    """Loses the connection at a COMMIT, before it reaches the server or after it took effect."""

    def __init__(self, *, reaches: bool) -> None:
        super().__init__(owned=True)
        self.left = 1
        client = self

        class Losing(BeginningCursor):
            def execute(self, query: str, args: object = None) -> int:
                if query != "COMMIT" or not client.left:
                    return super().execute(query, args)  # type: ignore[arg-type]
                client.left -= 1
                if reaches:
                    super().execute(query)
                self.connection._force_close()  # type: ignore[attr-defined]
                raise pymysql.OperationalError(2013, "Lost connection to MySQL server")

        self._cursor = Losing

    def begin(self, connection: Any) -> Any:
        return self._cursor(connection)


@pytest.mark.parametrize("name", _SETTLEMENTS)
def test_a_settlement_whose_commit_does_not_arrive_is_repeated(queue: SQLQueue, name: str) -> None:
    """It succeeds, once."""
    queue.push(Message("work"))
    [delivery] = queue.pop("work")
    client = queue._dialect._connections._client = _LosingCommits(reaches=False)
    assert _error(_settlement(queue, name, delivery)) is None
    assert client.left == 0
    assert _there(queue) == _AFTER[name]


@pytest.mark.parametrize("name", [each for each in _SETTLEMENTS if each != "extend_visibility"])
def test_a_settlement_whose_answer_is_lost_is_never_called_stale(
    queue: SQLQueue, name: str
) -> None:
    """It took effect, which nobody can know: BackendError with unknown outcome, no NotFound."""
    queue.push(Message("work"))
    [delivery] = queue.pop("work")
    client = queue._dialect._connections._client = _LosingCommits(reaches=True)
    error = _error(_settlement(queue, name, delivery))
    assert client.left == 0
    assert error is not None
    assert error.outcome_unknown
    assert isinstance(error.__cause__, pymysql.MySQLError)
    assert _there(queue) == _AFTER[name]


def test_a_push_whose_answer_is_lost_can_be_repeated(queue: SQLQueue) -> None:
    """Under the same id, which then exists (PUSH-2)."""
    queue._dialect._connections._client = _LosingCommits(reaches=True)
    message = Message("work", b"0")
    error = _error(lambda: queue.push(message))
    assert error is not None
    assert error.outcome_unknown
    with pytest.raises(BatchError, match="push"):
        queue.push(message)
    assert [each.payload for each in queue.pop("work", 10)] == [b"0"]


# Locks


def test_a_deadlock_is_retried_inside_the_driver(queue: SQLQueue, table: str, connect) -> None:
    """1213: the server undoes the driver's transaction, which runs again and succeeds."""
    queue.push(*(Message("work") for _ in range(2)), *(Message("other") for _ in range(50)))
    deliveries = queue.pop("work", 2)
    faults: list[object] = []
    client = queue._dialect._connections._client = PyMySQLClient(owned=True)
    explain = client.fault

    def fault(error: BaseException) -> Any:
        faults.append(error.args[0])
        return explain(error)

    client.fault = fault  # type: ignore[method-assign]
    errors: list[BackendError | None] = []
    first, second = sorted(each.driver_data.seq for each in deliveries)  # type: ignore[union-attr]
    thread = threading.Thread(target=lambda: errors.append(_error(lambda: queue.ack(*deliveries))))
    level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    with closing(connect(init_command=level)) as other:
        # Who has changed less is undone.
        other.query(f"UPDATE {table} SET attempt = 7 WHERE queue_name = 'other'")
        other.query(f"SELECT 1 FROM {table} WHERE seq = {second} FOR UPDATE")
        thread.start()
        time.sleep(0.7)
        other.query(f"SELECT 1 FROM {table} WHERE seq = {first} FOR UPDATE")
        other.rollback()
        thread.join(_LIMIT)
    assert errors == [None]
    assert 1213 in faults
    assert queue.stats("work").in_flight == 0


def test_a_lock_that_is_slow_to_come_free_is_waited_for(
    queue: SQLQueue, table: str, connect
) -> None:
    """1205: asked for again, until the time is over; then nothing is unknown."""
    queue.push(Message("work"))
    [delivery] = queue.pop("work")
    for each in _fill_pool(queue, 2):
        each.query("SET SESSION innodb_lock_wait_timeout = 1")
        each.query("COMMIT")
    with closing(connect()) as holder:
        holder.query(f"SELECT 1 FROM {table} FOR UPDATE")
        threading.Timer(2.5, holder.rollback).start()
        assert _error(lambda: queue.ack(delivery)) is None


def test_a_lock_that_does_not_come_free_ends_the_call_in_time(
    url: str, queue: SQLQueue, table: str, connect
) -> None:
    """And pops, which skip what is locked, do not wait for it."""
    queue.push(Message("work", b"0"))
    with open_queue(f"{url}&operation_timeout=1.5") as impatient:
        [delivery] = impatient.pop("work")
        queue.push(Message("work", b"1"))
        with closing(connect()) as holder:
            holder.query(f"SELECT 1 FROM {table} WHERE queue_name = 'work' FOR UPDATE")
            begun = time.monotonic()
            assert impatient.pop("work", wait=NOTHING) == []
            error = _error(lambda: impatient.ack(delivery))
            assert time.monotonic() - begun < 8
            assert error is not None
            assert not error.outcome_unknown
            holder.rollback()
        impatient.ack(delivery)
        assert [each.payload for each in impatient.pop("work", 10)] == [b"1"]


# Engines of the application's


@contextmanager
def _borrowed(place: Server, **options: Any) -> Iterator[Engine]:
    """An engine with one connection, so that what is left on it shows."""
    engine = create_engine(
        place.url("mysql+pymysql"), pool_size=1, max_overflow=0, pool_timeout=20, **options
    )
    yield engine
    engine.dispose()


def _use_all(queue: SQLQueue) -> None:
    contents = [bytes(range(256)), b"", b"\\'\"`%s", b"\0\x1a\n\\"]
    ids = [f"{number} '\"\\ \u00e9 " for number in range(4)]
    queue.push(
        *(Message("work", each, extra=each, id=id) for id, each in zip(ids, contents, strict=True))
    )
    with pytest.raises(BatchError):
        queue.push(Message("work", id=ids[3]))
    popped = queue.pop("work", 10)
    assert [(each.payload, each.extra) for each in popped] == [(each, each) for each in contents]
    queue.retry(*popped[:2])
    queue.dead_letter(*popped[2:])
    queue.release(*queue.pop("work", 10))
    popped = queue.pop("work", 10)
    assert [each.payload for each in popped] == contents[:2]
    queue.extend_visibility(timedelta(minutes=1), *popped)
    queue.ack(*popped)
    assert [letter.message.payload for letter in queue.dead_letters("work", 9) if letter.message]
    assert queue.stats("work").dead == 2
    assert queue.redrive("work", 10) == 2
    with pytest.raises(BatchError):
        queue.ack(*popped)
    queue.ack(*queue.pop("work", 10))
    assert queue.queues() == []


_STATE = """
SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'innodb_lock_wait_timeout', 'sql_mode',
  'time_zone', 'transaction_isolation', 'tx_isolation', 'wait_timeout')
"""


@pytest.mark.parametrize("level", [None, "SERIALIZABLE", "READ COMMITTED", "AUTOCOMMIT"])
def test_an_engine_of_the_application_s_is_left_as_it_was(
    place: Server, table: str, level: str | None
) -> None:
    """Its isolation level and mode, its pool, and no transaction open; after failures, too."""
    with _borrowed(place, isolation_level=level) as engine:
        with engine.connect() as connection:
            before = connection.execute(text(_STATE)).all()
        queue = SQLQueue(engine, table=table)
        with pytest.raises(BackendError):
            queue.pop("work", wait=NOTHING)
        queue.create_tables()
        _use_all(queue)
        with engine.connect() as connection:
            assert connection.execute(text(_STATE)).all() == before
            connection.rollback()
        queue.close()
        assert engine.pool.checkedout() == 0


_MODES = ["", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "ANSI,TRADITIONAL,NO_AUTO_VALUE_ON_ZERO"]


@pytest.mark.parametrize("mode", _MODES)
def test_no_mode_of_a_session_changes_what_is_stored(place: Server, table: str, mode: str) -> None:
    """However literals are written there, and however changed rows are counted."""
    arguments = {
        "init_command": f"SET SESSION sql_mode = '{mode}', SESSION time_zone = '-07:30'",
        "client_flag": 0,  # without FOUND_ROWS, which SQLAlchemy sets
    }
    with _borrowed(place, connect_args=arguments) as engine:
        queue = SQLQueue(engine, table=table, create_tables=True)
        _use_all(queue)
        queue.close()


def test_sessions_in_different_time_zones_agree_on_the_time(
    place: Server, queue: SQLQueue, table: str
) -> None:
    """Delays and leases are counted in UTC, whatever clock a session shows."""
    for zone in ("+13:00", "-12:00"):
        arguments = {"init_command": f"SET SESSION time_zone = '{zone}'"}
        with _borrowed(place, connect_args=arguments) as engine:
            other = SQLQueue(engine, table=table)
            other.push(Message("work", b"0"), Message("work", delay=timedelta(hours=1)))
            [delivery] = queue.pop("work", 10)
            queue.dead_letter(delivery)
            [letter] = other.dead_letters("work", 1)
            assert abs(letter.died_at.timestamp() - time.time()) < 60
            assert other.forget("work", delivery.id) == 1
            other.push(Message("work", b"1"))
            [delivery] = other.pop("work", 10)
            queue_stats = queue.stats("work")
            assert (queue_stats.ready, queue_stats.in_flight) == (0, 1)
            other.ack(delivery)


def test_a_pool_that_the_application_has_emptied_ends_calls_in_time(
    place: Server, table: str
) -> None:
    """By the queue's time limit, not the pool's; nothing was sent, and later all work."""
    with _borrowed(place) as engine:
        queue = SQLQueue(
            engine, table=table, create_tables=True, operation_timeout=timedelta(seconds=1)
        )
        queue.create_tables()
        with engine.connect():
            begun = time.monotonic()
            error = _error(lambda: queue.push(Message("work")))
            assert time.monotonic() - begun < 5
            assert error is not None
            assert "pool" in str(error)
            assert not error.outcome_unknown
        queue.push(Message("work", b"0"))
        assert [each.payload for each in queue.pop("work")] == [b"0"]
        _until(lambda: engine.pool.checkedout() == 0)


# Refusals


def test_a_wrong_password_is_told_without_it(place: Server, table: str) -> None:
    """Nor is it in any cause (ERR-6)."""
    address = make_url(place.url(place.name, table=table)).set(password="wr0ng@:/?")
    with open_queue(address.render_as_string(hide_password=False)) as queue:
        error = _error(lambda: queue.push(Message("work", b"s3cr3t")))
        assert error is not None
        assert "Access denied" in str(error)
        told = "".join(traceback.format_exception(error)) + repr(queue)
        assert not re.search("wr0ng|s3cr3t", told)


def test_no_error_shows_a_payload(queue: SQLQueue, engine: Engine, table: str) -> None:
    """Nor the statement it stands in, which the server quotes (ERR-6)."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN extra")
    payload = b"s3cr3t" * 10
    error = _error(lambda: queue.push(Message("work", payload)))
    assert error is not None
    assert not re.search(f"s3cr3t|{payload.hex()}", str(error))


def test_an_option_that_the_library_refuses_is_an_error_of_ours(url: str) -> None:
    """ERR-4: before anything is stored, and no exception of another kind."""
    with open_queue(f"{url}&connect_timeout=-5") as queue, pytest.raises(QueueError):
        queue.pop("work", wait=NOTHING)


def test_a_socket_that_the_library_has_closed_under_itself_is_a_lost_connection(
    queue: SQLQueue, monkeypatch
) -> None:
    """PyMySQL then asks None for its time-out; other faults of that kind stay what they are."""
    queue.push(Message("work"))
    missing = None
    for read in (lambda *_: missing.settimeout(1), lambda *_: missing.elsewhere):
        monkeypatch.setattr(pymysql.connections.Connection, "_read_bytes", read)
        with pytest.raises((BackendError, AttributeError)) as caught:
            queue.stats("work")
        assert caught.type is (
            BackendError if "settimeout" in str(caught.value) else AttributeError
        )
        monkeypatch.undo()
        assert queue.stats("work").ready == 1


# Failover


@pytest.mark.parametrize("engine_of", ["the queue", "the application"])
def test_a_server_that_became_read_only_is_left(
    place: Server, table: str, engine_of: str, url: str
) -> None:
    """By every connection, and by a pop that waits: new ones lead to what took its place."""
    name = f"u{secrets.token_hex(8)}"
    with exclusive(place.name) as old, old.relay() as relay, open_queue(url) as there:
        for each in (old, place):
            with _administrating(each) as cursor:
                cursor.execute(f"CREATE USER {name}@'%' IDENTIFIED BY 'pass-w0rd'")
                cursor.execute(f"GRANT ALL ON {each.database}.* TO {name}@'%'")
        assert isinstance(there, SQLQueue)
        there.create_tables()
        made = make_url(old.url("mysql+pymysql")).set(
            username=name, password="pass-w0rd", host=relay.host, port=relay.port
        )
        engine = create_engine(made)
        if engine_of == "the application":
            queue = SQLQueue(engine, table=table, create_tables=True)
        else:
            plain = made.set(drivername=place.name, query={"table": table, "create_tables": "true"})
            opened = open_queue(plain.render_as_string(hide_password=False))
            assert isinstance(opened, SQLQueue)
            queue = opened
        with queue:
            queue.create_tables()
            _fill_pool(queue, 5)
            came: list[bytes] = []

            def pop() -> None:
                popped = queue.pop("waiting", wait=timedelta(seconds=60))
                came.extend(each.payload for each in popped)

            waiting = threading.Thread(target=pop)
            waiting.start()
            _until(lambda: "waiting" in queue._dialect._idle)
            with _administrating(old) as cursor:
                cursor.execute("SET GLOBAL read_only = 1")
            relay.lead_to(place.host, place.port)
            there.push(Message("waiting", b"1"))
            waiting.join(_LIMIT)
            assert came == [b"1"]
            queue.push(Message("work", b"0"))
            assert [each.payload for each in there.pop("work")] == [b"0"]
            assert queue.stats("work").in_flight == 1
        engine.dispose()
        for each in (old, place):
            with _administrating(each) as cursor:
                cursor.execute("SET GLOBAL read_only = 0")
                cursor.execute(f"DROP USER {name}@'%'")


@contextmanager
def _administrating(place: Server) -> Iterator[Any]:
    with (
        closing(
            pymysql.connect(
                host=place.host,
                port=place.port,
                user=place.username,
                password=place.password,
                autocommit=True,
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


@pytest.mark.parametrize("code", [1047, 1290, 1792, 1836, 3032, 3100])
def test_what_says_that_a_server_takes_no_changes_drops_the_connections(
    queue: SQLQueue, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Once within a call; what the next connection says counts."""
    queue.push(Message("work", b"0"))
    old = _fill_pool(queue, 3)
    failing = [old[0], *old]
    insert = queue._dialect.insert

    def refused(cursor: Any, items: Any) -> Any:
        if cursor.connection in failing:
            raise pymysql.OperationalError(code, "read-only")
        return insert(cursor, items)

    monkeypatch.setattr(queue._dialect, "insert", refused)
    queue.push(Message("work", b"1"))
    assert [each.payload for each in queue.pop("work", 10)] == [b"0", b"1"]


# Encryption


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    "option",
    ["ssl_check_hostname=true", "ssl_cert=/c.pem", "ssl_key=/k.pem", "ssl_cert=/c&ssl_key=/k"],
)
def test_encryption_without_an_authority_is_refused(scheme: str, option: str) -> None:
    """The library would verify nothing then."""
    url = f"{scheme}://user@host/app?{option}"
    with pytest.raises(InvalidArgument, match="without ssl_ca or ssl_capath"):
        open_queue(url)
    for authority in ("ssl_ca=/ca.pem", "ssl_capath=/certs"):
        open_queue(f"{url}&{authority}").close()


def test_several_hosts_are_refused() -> None:
    """The library takes one."""
    with pytest.raises(InvalidArgument, match="takes one"):
        open_queue("mysql://user@one:1,two:2/app")
