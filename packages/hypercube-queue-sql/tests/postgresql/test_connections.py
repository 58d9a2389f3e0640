"""Connections that fall silent, end, lack, or belong to somebody else."""

from __future__ import annotations

import json
import re
import secrets
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from tools.backends import exclusive, server
from tools.backends.instance import Server
from tools.backends.relay import Relay
from tools.script import started

from hypercube_queue import (
    BackendError,
    BatchError,
    InvalidArgument,
    Message,
    QueueError,
    open_queue,
)
from hypercube_queue_sql import SQLQueue

pytestmark = pytest.mark.server("postgres")

NOTHING = timedelta(0)
_LIMIT = 90


@contextmanager
def _watching() -> Iterator[psycopg.Connection]:
    """A connection that looks at the others."""
    with psycopg.connect(server("postgres").url("postgresql"), autocommit=True) as connection:
        yield connection


def _until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


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


def _fill_pool(queue: SQLQueue) -> None:
    """As many idle connections as there can be."""
    opened = [queue._dialect._engine.raw_connection() for _ in range(15)]
    for each in opened:
        each.close()


# Silence


class _Operations:
    """Every operation once, each with messages of its own."""

    #: Those whose outcome matters.
    CHANGES = frozenset(
        ["push", "pop", "ack", "retry", "dead_letter", "extend_visibility", "release"]
    ) | {"redrive", "redrive_ids", "forget"}

    def __init__(self, queue: SQLQueue) -> None:
        for name in ("held", "dead"):
            queue.push(*(Message(name, id=str(number)) for number in range(10)))
        held = queue.pop("held", 10)
        queue.dead_letter(*queue.pop("dead", 10))
        queue.push(Message("ready"), Message("ready"))
        self.calls: dict[str, Callable[[], object]] = {
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

    def run(self) -> dict[str, tuple[BackendError | None, float]]:
        """The error of each and how long it took, all of them at once."""
        results: dict[str, tuple[BackendError | None, float]] = {}

        def run(name: str) -> None:
            begun = time.monotonic()
            error = _error(self.calls[name])
            results[name] = error, time.monotonic() - begun

        threads = [threading.Thread(target=run, args=[name]) for name in self.calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_LIMIT)
        assert results.keys() == self.calls.keys()
        return results


def test_each_operation_on_a_server_that_falls_silent_ends_in_time(
    relayed_url: str, relay: Relay
) -> None:
    """BackendError, its outcome unknown where one matters (ERR-5); later all work (LIFE-2)."""
    with open_queue(f"{relayed_url}&operation_timeout=1.5") as queue:
        assert isinstance(queue, SQLQueue)
        operations = _Operations(queue)
        _fill_pool(queue)
        relay.cut()
        results = operations.run()
        relay.mend()
        assert {name for name, (error, _) in results.items() if error is None} == set()
        assert {name for name, (error, _) in results.items() if error and error.outcome_unknown} - {
            "create_tables"
        } == operations.CHANGES
        assert max(took for _, took in results.values()) < 6
        assert {"did not answer within" in str(error) for error, _ in results.values()} == {True}
        results = operations.run()

    assert {name: error for name, (error, _) in results.items() if error is not None} == {}


def test_a_server_that_takes_no_connection_is_given_up_in_time(
    relayed_url: str, relay: Relay
) -> None:
    """With nothing unknown, because nothing was sent; later all work."""
    with open_queue(f"{relayed_url}&operation_timeout=1.5") as queue:
        assert isinstance(queue, SQLQueue)
        operations = _Operations(queue)
        queue._dialect._engine.pool.dispose()
        relay.cut()
        results = operations.run()
        assert {name for name, (error, _) in results.items() if error is None} == set()
        assert [name for name, (error, _) in results.items() if error.outcome_unknown] == []
        assert max(took for _, took in results.values()) < 6
        relay.mend()
        results = operations.run()

    assert {name: error for name, (error, _) in results.items() if error is not None} == {}


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


def test_connections_that_the_server_ended_are_replaced(queue: SQLQueue, application: str) -> None:
    """All of them, between a pop and its ack: no call fails, be they ever so many."""
    with _watching() as watching:
        for call in (queue.ack, queue.retry, queue.dead_letter, queue.release):
            queue.push(Message("work"))
            _fill_pool(queue)
            [delivery] = queue.pop("work")
            watching.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = %s",
                [application],
            )
            _until(lambda: not _connections(application))
            call(delivery)
            assert queue.stats("work").in_flight == 0
            for each in queue.pop("work", 10, wait=NOTHING):
                queue.ack(each)


@contextmanager
def _locked(queue: SQLQueue, table: str, application: str, call: Callable[[], object]):
    """A call that waits in the server for the lock of its row: the errors, and its thread."""
    errors: list[QueueError | None] = []

    def run() -> None:
        try:
            call()
        except QueueError as error:
            errors.append(error)
        else:
            errors.append(None)

    waits = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    )
    thread = threading.Thread(target=run)
    with _watching() as watching, psycopg.connect(server("postgres").url("postgresql")) as holder:
        holder.execute(f"SELECT 1 FROM {table} FOR UPDATE")
        thread.start()
        _until(lambda: watching.execute(waits, [application]).fetchone())
        row = watching.execute(waits, [application]).fetchone()
        assert row is not None
        yield errors, thread, row[0], holder


_SETTLEMENTS = ("ack", "retry", "dead_letter", "release", "extend_visibility")


def _settlement(queue: SQLQueue, name: str, delivery: Message) -> Callable[[], object]:
    if name == "extend_visibility":
        return lambda: queue.extend_visibility(timedelta(minutes=1), delivery)
    return lambda: getattr(queue, name)(delivery)


@pytest.mark.parametrize("name", _SETTLEMENTS)
def test_a_settlement_whose_connection_ends_before_it_took_effect_is_repeated(
    queue: SQLQueue, table: str, application: str, name: str
) -> None:
    """The token makes that safe: it succeeds, once."""
    queue.push(Message("work"))
    [delivery] = queue.pop("work")
    settle = _settlement(queue, name, delivery)
    with (
        _locked(queue, table, application, settle) as (errors, thread, pid, holder),
        _watching() as watching,
    ):
        watching.execute("SELECT pg_terminate_backend(%s)", [pid])
        _until(
            lambda: (
                not watching.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]
                ).fetchone()
            )
        )
        holder.rollback()
        thread.join(_LIMIT)
    assert errors == [None]
    stats = queue.stats("work")
    there = (stats.ready, stats.in_flight, stats.dead)
    assert (
        there
        == {
            "ack": (0, 0, 0),
            "retry": (1, 0, 0),
            "dead_letter": (0, 0, 1),
            "release": (1, 0, 0),
            "extend_visibility": (0, 1, 0),
        }[name]
    )


@pytest.mark.parametrize("name", [each for each in _SETTLEMENTS if each != "extend_visibility"])
def test_a_settlement_whose_answer_is_lost_is_never_called_stale(
    relayed_url: str, relay: Relay, engine: Engine, table: str, application: str, name: str
) -> None:
    """It took effect, which nobody can know: BackendError with unknown outcome, no NotFound."""
    with open_queue(relayed_url) as queue:
        assert isinstance(queue, SQLQueue)
        queue.push(Message("work"))
        [delivery] = queue.pop("work")
        settle = _settlement(queue, name, delivery)
        with _locked(queue, table, application, settle) as (errors, thread, _pid, holder):
            relay.cut()
            holder.rollback()
            with engine.connect() as connection:
                owned = text(f"SELECT 1 FROM {table} WHERE token IS NOT NULL")
                _until(lambda: not connection.scalar(owned) or connection.rollback())
            relay.mend()
            relay.drop()
            thread.join(_LIMIT)
        [error] = errors
        assert isinstance(error, BatchError)
        [failure] = error.failed
        assert isinstance(failure.error, BackendError)
        assert failure.error.outcome_unknown
        assert isinstance(failure.error.__cause__, psycopg.Error)


_PUSH = """
import json, sys, time
from hypercube_queue import AlreadyExists, BackendError, BatchError, Message, open_queue
url, name = sys.argv[1:]
confirmed, uncertain = [], set()
with open_queue(url) as queue:
    for number in range(120):
        left = [Message("work", id=f"{name}-{number}-{part}") for part in range(3)]
        while left:
            try:
                queue.push(*left)
            except BatchError as error:
                # Repeated under the same ids, so one that exists is the one from before.
                failed = {each.index: each.error for each in error.failed}
                for each in failed.values():
                    assert isinstance(each, (AlreadyExists, BackendError)), each
                uncertain.update(
                    left[index].id for index, each in failed.items()
                    if isinstance(each, BackendError) and each.outcome_unknown
                )
                done = [
                    each for index, each in enumerate(left)
                    if isinstance(failed.get(index, AlreadyExists()), AlreadyExists)
                ]
                left = [each for each in left if each not in done]
                time.sleep(0.05)
            else:
                done, left = left, []
            confirmed += [each.id for each in done]
        if number == 20:
            print("pushing", flush=True)
        time.sleep(0.01)
print(json.dumps([confirmed, sorted(uncertain)]))
"""
_WORK = """
import json, sys, time
from datetime import timedelta
from hypercube_queue import BackendError, BatchError, NotFound, open_queue
delivered, acked, unknown, troubles = [], [], [], 0
with open_queue(sys.argv[1]) as queue:
    quiet = time.monotonic()
    while time.monotonic() - quiet < 4:
        try:
            popped = queue.pop("work", 5, wait=timedelta(seconds=1))
        except BackendError:
            troubles += 1
            quiet = time.monotonic()
            time.sleep(0.05)
            continue
        if not popped:
            continue
        quiet = time.monotonic()
        delivered += [(each.id, each.attempt, quiet) for each in popped]
        failed = {}
        try:
            queue.ack(*popped)
        except BatchError as error:
            failed = {each.index: each.error for each in error.failed}
        for index, each in enumerate(popped):
            if index not in failed:
                acked.append((each.id, time.monotonic()))
            elif isinstance(failed[index], BackendError) and failed[index].outcome_unknown:
                unknown.append(each.id)
            else:
                # Its lease may have ended while the server was away.
                assert isinstance(failed[index], (BackendError, NotFound)), failed[index]
print(json.dumps([delivered, acked, unknown, troubles]))
"""


def test_a_server_that_is_killed_loses_and_repeats_nothing(table: str) -> None:
    """Two push, two work, and the server dies without warning in the midst (LIFE-2, SET-7)."""
    with exclusive("postgres") as place, ExitStack() as stack:
        url = place.url(
            "postgresql",
            table=table,
            create_tables="true",
            visibility_timeout=2,
            operation_timeout=10,
        )
        pushers = [stack.enter_context(started(_PUSH, url, name)) for name in "ab"]
        workers = [stack.enter_context(started(_WORK, url)) for _ in range(2)]
        assert [each.line() for each in pushers] == ["pushing"] * 2
        place.kill()
        time.sleep(2.0)  # longer than a pop waits, so that each of them looks meanwhile
        place.start()
        pushed = [json.loads(pusher.rest(_LIMIT)) for pusher in pushers]
        told = [json.loads(worker.rest(_LIMIT)) for worker in workers]
        with open_queue(url) as queue:
            assert isinstance(queue, SQLQueue)
            assert queue.queues() == []
    delivered = [tuple(each) for worker in told for each in worker[0]]
    acked = dict(each for worker in told for each in worker[1])
    unknown = {each for worker in told for each in worker[2]}

    assert sum(worker[3] for worker in told) > 0  # else nobody noticed
    expected = {
        f"{name}-{number}-{part}" for name in "ab" for number in range(120) for part in range(3)
    }
    assert Counter(each for pusher in pushed for each in pusher[0]) == Counter(expected)
    assert {id for id, _, _ in delivered} == expected
    assert acked.keys() | unknown == expected
    # One that was stored, and acknowledged before its push was repeated, comes again (PUSH-2).
    repeated = {each for pusher in pushed for each in pusher[1]}
    times = Counter(id for worker in told for id, _ in worker[1])
    assert {id for id, count in times.items() if count > 1} - repeated == set()
    late = {id for id, _, at in delivered if id in acked and at > acked[id]}
    assert late - repeated == set()


# Closing


def test_a_connection_that_comes_back_while_the_queue_closes_does_not_stay_open(
    queue: SQLQueue, application: str
) -> None:
    """Neither at the server nor for the garbage collector to find."""
    event.listen(queue._dialect._engine, "checkin", lambda *_: queue.close(), once=True)
    queue.push(Message("work", b""))
    _until(lambda: _connections(application) == 0)


def test_a_connection_that_comes_about_after_the_queue_closed_does_not_stay_open(
    url: str, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call has long given up."""
    closed = threading.Event()
    counts: list[int] = []

    with open_queue(f"{url}&operation_timeout=0.2") as queue:
        assert isinstance(queue, SQLQueue)
        dialect = queue._dialect._engine.dialect
        connect = dialect.connect

        def connect_late(*arguments: Any, **options: Any) -> Any:
            closed.wait(_LIMIT)
            connection = connect(*arguments, **options)
            counts.append(_connections(application))
            return connection

        monkeypatch.setattr(dialect, "connect", connect_late)
        assert _error(lambda: queue.pop("work", wait=NOTHING)) is not None
    closed.set()
    _until(lambda: counts and _connections(application) == 0)
    assert counts[0] == 1


def _connections(application: str) -> int:
    with _watching() as watching:
        [count] = watching.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [application]
        ).fetchone() or [0]
    return int(count)


# Connections of the caller's


@contextmanager
def _borrowed(**options: Any) -> Iterator[Engine]:
    engine = create_engine(
        server("postgres").url("postgresql+psycopg"), pool_size=1, max_overflow=0, **options
    )
    try:
        yield engine
    finally:
        engine.dispose()


def _settings(engine: Engine) -> dict[str, object]:
    """How the only connection of the pool behaves."""
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        return {
            "pid": raw.info.backend_pid,
            "autocommit": raw.autocommit,
            "isolation_level": raw.isolation_level,
            "row_factory": raw.row_factory,
            "cursor_factory": raw.cursor_factory,
            "prepare_threshold": raw.prepare_threshold,
            "transaction": connection.scalar(text("SHOW transaction_isolation")),
            "timeout": connection.scalar(text("SHOW idle_in_transaction_session_timeout")),
        }


@pytest.mark.parametrize(
    "options", [{}, {"isolation_level": "SERIALIZABLE"}, {"isolation_level": "AUTOCOMMIT"}], ids=str
)
def test_a_borrowed_connection_comes_back_as_it_was(table: str, options: dict[str, Any]) -> None:
    """Also from a call that failed: whoever has it next begins transactions as ever."""
    with _borrowed(**options) as engine:
        event.listen(engine, "connect", lambda raw, _: setattr(raw, "row_factory", dict_row))
        before = _settings(engine)
        missing = SQLQueue(engine, table=f"{table}_missing")
        for call in (missing.queues, lambda: missing.pop("work", wait=NOTHING)):
            with pytest.raises(BackendError, match="does not exist"):
                call()
            assert _settings(engine) == before
        queue = SQLQueue(engine, table=table, create_tables=True)
        queue.push(*(Message("work") for _ in range(1_200)))
        popped = queue.pop("work", 1_200)
        queue.retry(popped[0])
        queue.ack(*popped[1:])
        with pytest.raises(BatchError):
            queue.ack(popped[0])
        assert queue.stats("work").ready == 1
        with engine.begin() as connection:
            connection.execute(text(f"DROP TABLE {table}"))
        with pytest.raises(BackendError, match="does not exist"):
            queue.pop("work", wait=NOTHING)
        assert _settings(engine) == before


def test_a_failed_call_does_not_make_the_application_commit(engine: Engine, table: str) -> None:
    """What this guards against: an application's transaction that is none any more."""
    with _borrowed() as only:
        with pytest.raises(BackendError):
            SQLQueue(only, table=table).pop("work", wait=NOTHING)
        with only.connect() as connection:
            connection.execute(text(f"CREATE TABLE {table} (x int)"))
            connection.rollback()
    assert not inspect(engine).has_table(table)


def test_clients_that_bind_parameters_themselves_work(table: str) -> None:
    """As some have to behind poolers of connections: no prepared statements, no binary."""
    arguments = {"cursor_factory": psycopg.ClientCursor, "prepare_threshold": None}
    with _borrowed(connect_args=arguments) as engine:
        queue = SQLQueue(engine, table=table, create_tables=True)
        sent = [bytes(range(256)), b"", b"%s '\\"]
        queue.push(*(Message("work", each, extra=each) for each in sent))
        popped = queue.pop("work", 10)
        assert [(each.payload, each.extra) for each in popped] == [(each, each) for each in sent]
        queue.retry(*popped)
        queue.dead_letter(*queue.pop("work", 10))
        assert queue.redrive("work", 10) == 3
        queue.ack(*queue.pop("work", 10))
        assert queue.queues() == []


def test_one_connection_serves_waiting_pops_and_all_else(table: str) -> None:
    """A pop that waits holds none; beside it others push, and the application works."""
    with _borrowed() as engine:
        queue = SQLQueue(engine, table=table, create_tables=True)
        came: list[bytes] = []

        def work() -> None:
            while popped := queue.pop("work", wait=timedelta(seconds=1.5)):
                came.extend(each.payload for each in popped)
                queue.ack(*popped)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        held = []
        for _ in range(20):
            time.sleep(0.02)
            held.append(engine.pool.checkedout())
        assert 0 in held
        for number in range(40):
            queue.push(Message("work", b"%d" % number))
            with engine.begin() as connection:
                queue.push_within(connection, Message("work", b"%d" % (100 + number)))
        for thread in threads:
            thread.join(_LIMIT)
        queue.close()
        assert engine.pool.checkedout() == 0
    assert sorted(came) == sorted(b"%d" % (n + plus) for n in range(40) for plus in (0, 100))


def test_a_pool_that_the_application_has_emptied_ends_calls_in_time(table: str) -> None:
    """By the queue's time limit, not the pool's; nothing was sent, and later all work."""
    with _borrowed() as engine:
        queue = SQLQueue(
            engine, table=table, create_tables=True, operation_timeout=timedelta(seconds=1)
        )
        queue.create_tables()
        with engine.connect():
            for call in (lambda: queue.push(Message("work")), lambda: queue.stats("work")):
                begun = time.monotonic()
                error = _error(call)
                assert time.monotonic() - begun < 5
                assert error is not None
                assert "pool" in str(error)
                assert not error.outcome_unknown
        queue.push(Message("work", b"0"))
        assert [each.payload for each in queue.pop("work")] == [b"0"]
        _until(lambda: engine.pool.checkedout() == 0)


def test_isolation_levels_that_users_default_to_do_no_harm(queue: SQLQueue, url: str) -> None:
    """Serialization failures are the driver's to repeat; each message comes once."""
    options = quote("-c default_transaction_isolation=serializable")
    taken: list[bytes] = []
    with open_queue(f"{url}&options={options}") as strict:
        assert isinstance(strict, SQLQueue)

        def work() -> None:
            while popped := strict.pop("work", 3, wait=timedelta(seconds=1)):
                taken.extend(each.payload for each in popped)
                strict.ack(*popped)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(60):
            strict.push(Message("work", b"%d" % number))
        for thread in threads:
            thread.join(_LIMIT)
    assert Counter(taken) == Counter(b"%d" % number for number in range(60))


# Refusals


@pytest.fixture
def role() -> Iterator[str]:
    """A role that has one connection at most and may do everything in a schema of its name."""
    name = f"r{secrets.token_hex(8)}"
    with _watching() as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pass-w0rd' CONNECTION LIMIT 1")
        connection.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
        yield name
        connection.execute(f"DROP SCHEMA {name} CASCADE")
        connection.execute(f"DROP ROLE {name}")


def _as_role(role: str, password: str) -> str:
    made = make_url(server("postgres").url("postgresql", schema=role, create_tables="true"))
    return made.set(username=role, password=password).render_as_string(hide_password=False)


def test_a_server_without_a_free_connection_is_readable(role: str) -> None:
    """In the server's own words, with nothing unknown; with a connection to spare it works."""
    url = _as_role(role, "pass-w0rd")
    with open_queue(url) as queue:
        with psycopg.connect(url.partition("?")[0]):
            error = _error(lambda: queue.push(Message("work")))
            assert error is not None
            assert "too many connections" in str(error)
            assert not error.outcome_unknown
        _until(lambda: _error(lambda: queue.push(Message("work"))) is None)


def test_a_wrong_password_is_told_without_it(role: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is it in any cause, nor in the log of what listens (ERR-6)."""
    caplog.set_level("INFO", "hypercube_queue_sql")
    for password in ("wr0ng", "wr0ng@:/?"):
        with open_queue(_as_role(role, password)) as queue:
            assert isinstance(queue, SQLQueue)
            queue._dialect.listen()
            error = _error(lambda: queue.push(Message("work", b"s3cr3t")))
            assert error is not None
            assert "password authentication failed" in str(error)
            assert role in str(error)
            _until(lambda: "not listening" in caplog.text)
            told = "".join(traceback.format_exception(error)) + caplog.text + repr(queue)
            assert not re.search("wr0ng|s3cr3t|" + quote(password, safe=""), told)
            caplog.clear()


def test_a_statement_timeout_of_the_user_s_is_told(url: str, table: str, queue: SQLQueue) -> None:
    """It comes before the driver's own time limit, undoes the call, and is said to be one."""
    options = quote("-c statement_timeout=300")
    with (
        open_queue(f"{url}&options={options}") as impatient,
        psycopg.connect(server("postgres").url("postgresql")) as holder,
    ):
        impatient.push(Message("work", b"0"))
        holder.execute(f"LOCK TABLE {table}")
        begun = time.monotonic()
        for call in (lambda: impatient.push(Message("work")), lambda: impatient.pop("work")):
            error = _error(call)
            assert error is not None
            assert "statement_timeout" in str(error)
            assert not error.outcome_unknown
        assert time.monotonic() - begun < 10
        holder.rollback()
        assert [each.payload for each in impatient.pop("work", 10)] == [b"0"]


def test_a_lock_is_waited_for_until_the_time_is_over(url: str, table: str, queue: SQLQueue) -> None:
    """Then the call is cut off, nothing of it happens later, and the next one works."""
    with open_queue(f"{url}&operation_timeout=1.5") as impatient:
        impatient.push(Message("other"))
        with psycopg.connect(server("postgres").url("postgresql")) as holder:
            holder.execute(f"LOCK TABLE {table}")
            begun = time.monotonic()
            error = _error(lambda: impatient.push(Message("work")))
            assert 1.4 < time.monotonic() - begun < 6
            assert error is not None
            assert error.outcome_unknown
        impatient.push(Message("work"))


def test_a_server_that_takes_no_changes_is_readable(
    url: str, table: str, engine: Engine, queue: SQLQueue
) -> None:
    """A replica, or transactions that are read-only by default: reads work, nothing else does."""
    options = quote("-c default_transaction_read_only=on")
    with open_queue(f"{url}&options={options}") as reading:
        assert isinstance(reading, SQLQueue)
        assert reading.queues() == []
        for call in (
            lambda: reading.push(Message("work")),
            lambda: reading.push(*[Message("work")] * 1_001),
            lambda: reading.pop("work", wait=NOTHING),
            lambda: reading.redrive("work", 1),
        ):
            with pytest.raises(QueueError) as caught:
                call()
            assert "read-only" in str(caught.value)
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {table}, {table}_layout"))
    with (
        open_queue(f"{url}&options={options}") as reading,
        pytest.raises(BackendError, match="read-only"),
    ):
        reading.pop("work", wait=NOTHING)
    assert not inspect(engine).has_table(table)


def test_a_server_that_became_read_only_is_left(table: str) -> None:
    """By every connection, the listening one too: new ones lead to the server that took over."""
    with exclusive("postgres") as old, old.relay() as relay:
        new = server("postgres")
        options = {"table": table, "create_tables": "true"}
        with open_queue(new.url("postgresql", **options)) as there:
            assert isinstance(there, SQLQueue)
            there.create_tables()
            url = _relayed(old.url("postgresql", **options), old, relay)
            with open_queue(url) as queue:
                assert isinstance(queue, SQLQueue)
                queue.create_tables()
                queue._dialect.listen()
                _until(lambda: queue._dialect.hears)
                _fill_pool(queue)
                with psycopg.connect(old.url("postgresql"), autocommit=True) as administrator:
                    administrator.execute("ALTER SYSTEM SET default_transaction_read_only = on")
                    administrator.execute("SELECT pg_reload_conf()")
                    # Each session reads it anew before its next statement.
                    _until(lambda: _is_read_only(old))
                relay.lead_to(new.host, new.port)
                came: list[bytes] = []

                def pop() -> None:
                    popped = queue.pop("waiting", wait=timedelta(seconds=60))
                    came.extend(each.payload for each in popped)

                waiting = threading.Thread(target=pop)
                waiting.start()
                queue.push(Message("work", b"0"))
                assert [each.payload for each in there.pop("work")] == [b"0"]
                there.push(Message("waiting", b"1"))
                waiting.join(_LIMIT)
                assert came == [b"1"]
                assert queue.queues() == there.queues()
                _until(lambda: _listening_on(new, queue._dialect._channel))
        with psycopg.connect(old.url("postgresql"), autocommit=True) as administrator:
            administrator.execute("ALTER SYSTEM RESET default_transaction_read_only")
            administrator.execute("SELECT pg_reload_conf()")


def _is_read_only(place: Server) -> bool:
    with psycopg.connect(place.url("postgresql")) as connection:
        row = connection.execute("SHOW default_transaction_read_only").fetchone()
        return row == ("on",)


def _listening_on(place: Server, channel: str) -> bool:
    """Whether a session's last statement there was to listen on the channel."""
    with psycopg.connect(place.url("postgresql")) as connection:
        statement = "SELECT 1 FROM pg_stat_activity WHERE query = %s"
        return bool(connection.execute(statement, [f"LISTEN {channel}"]).fetchone())


def _relayed(url: str, place: Server, relay: Relay) -> str:
    return url.replace(f"@{place.host}:{place.port}/", f"@{relay.host}:{relay.port}/")


# Several hosts


def test_hosts_are_named_as_libpq_has_them(table: str) -> None:
    """Before the database or as options; each is tried until one is as the URL wants it."""
    place = server("postgres")
    real = f"{place.host}:{place.port}"
    with socket.create_server(("127.0.0.1", 0)) as unused:
        dead = unused.getsockname()[1]
    query = f"?table={table}&create_tables=true&target_session_attrs=read-write"
    hosts = f"&host=127.0.0.1,{place.host}&port={dead},{place.port}"
    user = f"{place.username}:{quote(place.password, safe='')}"
    for url in (
        f"postgresql://{user}@127.0.0.1:{dead},{real}/{place.database}{query}",
        f"postgresql://{user}@/{place.database}{query}{hosts}",
    ):
        with open_queue(url) as queue:
            queue.push(Message("work", b"0"))
            queue.ack(*queue.pop("work"))


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://u@a:1,b:2/db", "a,b", "1,2"),
        ("postgresql://u@a,b:2/db", "a,b", "5432,2"),
        ("postgresql://u@[::1]:1,b/db", "::1,b", "1,5432"),
        ("postgresql://u@/db?host=a,b&port=1,2", "a,b", "1,2"),
        ("postgresql://u@/db?host=/var/run/postgresql", "/var/run/postgresql", None),
        ("postgresql://u@a:1/db", "a", 1),
    ],
)
def test_hosts_reach_the_library(url: str, host: str, port: object) -> None:
    """In its own form; nobody is contacted."""
    with open_queue(url) as queue:
        assert isinstance(queue, SQLQueue)
        engine = queue._dialect._engine
        _, arguments = engine.dialect.create_connect_args(engine.url)
        assert (arguments["host"], arguments.get("port")) == (host, port)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://u@a:1,b:x/db", "port"),
        ("postgresql://u@a:1/db?host=b", "write one of both"),
        ("postgresql://u@a:1,b:2/db?port=3", "write one of both"),
    ],
)
def test_hosts_that_make_no_sense_are_refused(url: str, told: str) -> None:
    """InvalidArgument that says why."""
    with pytest.raises(InvalidArgument, match=told):
        open_queue(url)


def test_a_listener_notices_soon_that_its_server_is_silent(relayed_url: str, relay: Relay) -> None:
    """Though nothing is asked of the server meanwhile; when it answers again, it listens again."""
    with open_queue(relayed_url) as queue:
        assert isinstance(queue, SQLQueue)
        queue.queues()
        queue._dialect.listen()
        _until(lambda: queue._dialect.hears)
        relay.cut()
        _until(lambda: not queue._dialect.hears)
        relay.mend()
        _until(lambda: queue._dialect.hears, 60)
