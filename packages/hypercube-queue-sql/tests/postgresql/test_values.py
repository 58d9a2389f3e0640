"""What can be stored, what is too much, and what the server's errors mean."""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text
from tools.backends import server

from hypercube_queue import (
    BackendError,
    BatchError,
    CapacityExceeded,
    Message,
    MessageTooLarge,
    open_queue,
)
from hypercube_queue.driver import new_id
from hypercube_queue_sql import SQLQueue
from hypercube_queue_sql._errors import ConnectionLost, Kind, contract_error
from hypercube_queue_sql._postgresql_client import PsycopgClient

pytestmark = pytest.mark.server("postgres")

NOTHING = timedelta(0)
_MIB = 1024 * 1024


def _failures(call) -> list[tuple[int, Exception]]:
    with pytest.raises(BatchError) as caught:
        call()
    return [(each.index, each.error) for each in caught.value.failed]


def test_names_of_every_length_and_kind_are_kept_apart(queue: SQLQueue) -> None:
    """Byte for byte, up to 255 of them; none is folded, padded or normalised (OWN-3)."""
    names = [
        "a",
        "A",
        "a ",
        " a",
        "\u00e9",
        "e\u0301",
        "\u0130",
        "ß",
        "ss",
        "\U0001f600" * 63 + "abc",
        "x" * 255,
        "x" * 254,
        "%s %(id)s ' \" \\ \\x61 :a $1 {} -- ;",
    ]
    queue.push(*(Message(name, name.encode(), name, name, id=name) for name in names))
    queue.push(*(Message("one", id=name) for name in names))

    assert queue.queues() == sorted([*names, "one"])
    for name in names:
        [each] = queue.pop(name, 10)
        assert (each.queue_name, each.id, each.job_name, each.namespace) == (name,) * 4
        queue.ack(each)
    popped = queue.pop("one", 100)
    assert [each.id for each in popped] == names
    queue.dead_letter(*popped)
    assert queue.redrive_ids("one", "a", "a ", "nothing") == 2
    assert queue.forget("one", *names) == len(names) - 2


def test_a_payload_of_64_megabytes_makes_the_round_trip(url: str) -> None:
    """Through push, pop and the dead letters, unchanged."""
    payload = os.urandom(_MIB) * 64
    digest = hashlib.sha256(payload).hexdigest()
    with open_queue(f"{url}&operation_timeout=120") as queue:
        assert isinstance(queue, SQLQueue)
        queue.push(Message("work", payload, extra=b"\0extra"))
        del payload
        [each] = queue.pop("work")
        assert hashlib.sha256(each.payload).hexdigest() == digest
        queue.dead_letter(each)
        del each
        [letter] = queue.dead_letters("work", 1)
        assert letter.message is not None
        assert hashlib.sha256(letter.message.payload).hexdigest() == digest
        assert letter.message.extra == b"\0extra"
        assert queue.forget("work", letter.message.id) == 1


def test_many_large_payloads_in_a_call_are_one_transaction(
    queue: SQLQueue, engine: Engine, table: str
) -> None:
    """They take several statements, all of which count or none (ERR-1, PUSH-4)."""
    large = os.urandom(_MIB) * 6
    taken = new_id()
    queue.push(Message("work", b"first", id=taken))
    messages = [Message("work", large) for _ in range(6)]
    messages[4].id = taken
    [(index, error)] = _failures(lambda: queue.push(*messages))
    assert (index, type(error).__name__) == (4, "AlreadyExists")
    with engine.connect() as connection:
        # Rows know which transaction made them.
        made = connection.execute(
            text(f"SELECT xmin::text, count(*) FROM {table} GROUP BY xmin::text")
        )
        assert sorted(count for _, count in made) == [1, 5]
    popped = queue.pop("work", 10) + queue.pop("work", 10)
    assert [len(each.payload) for each in popped] == [5] + [len(large)] * 5
    queue.retry(*popped)
    popped = queue.pop("work", 10) + queue.pop("work", 10)
    assert {hash(each.payload) for each in popped} == {hash(b"first"), hash(large)}
    queue.ack(*popped)


def test_what_is_larger_than_promised_is_refused_before_it_is_sent(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, with its index, the others go; the server would take it, or die of it (PUSH-7)."""
    with open_queue(url) as queue:
        assert isinstance(queue, SQLQueue)
        assert queue.guarantees.max_message_bytes == 256 * _MIB
        # The same bytes twice, so that it costs no more memory than half of it.
        half = bytes(128 * _MIB)
        largest = Message("work", half, extra=half + b"x")
        [(index, error)] = _failures(lambda: queue.push(Message("work", b"0"), largest))
        assert (index, type(error)) == (1, MessageTooLarge)
        assert str(256 * _MIB) in str(error)
        assert [each.payload for each in queue.pop("work", 10)] == [b"0"]
        with psycopg.connect(server("postgres").url("postgresql")) as connection:
            [(index, error)] = _failures(
                lambda: queue.push_within(connection, Message("work", bytes(256 * _MIB + 1)))
            )
            assert (index, type(error)) == (0, MessageTooLarge)


# Errors


class _Coded(psycopg.Error):
    """An error with a code, as the server sends it."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("40001", Kind.AGAIN),
        ("40P01", Kind.AGAIN),
        ("55P03", Kind.AGAIN),
        ("40002", Kind.OTHER),
        ("40003", Kind.OTHER),
        ("42P01", Kind.NO_TABLE),
        ("3F000", Kind.NO_TABLE),
        ("42501", Kind.REFUSED),
        ("42601", Kind.OTHER),
        ("53000", Kind.FULL),
        ("53100", Kind.FULL),
        ("53200", Kind.FULL),
        ("53300", Kind.OTHER),
        ("54000", Kind.TOO_LARGE),
        ("57P01", Kind.GONE),
        ("57P02", Kind.GONE),
        ("57P03", Kind.GONE),
        ("57P05", Kind.GONE),
        ("57014", Kind.OTHER),
        ("25P03", Kind.GONE),
        ("25P02", Kind.OTHER),
        ("25006", Kind.WRONG_SERVER),
        ("26000", Kind.UNPREPARED),
        ("42P05", Kind.UNPREPARED),
        ("08000", Kind.GONE),
        ("08006", Kind.GONE),
        ("08P01", Kind.GONE),
        ("XX000", Kind.OTHER),
        ("23505", Kind.OTHER),
    ],
)
def test_each_code_of_the_server_s_means_one_thing(sqlstate: str, kind: Kind) -> None:
    """Whichever library brings it: psycopg calls it sqlstate, psycopg2 pgcode."""

    class Other(Exception):
        pgcode = sqlstate

    client = PsycopgClient(owned=True)
    assert client.fault(_Coded(sqlstate, "text")).kind is kind
    assert client.fault(Other("text")).kind is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.OperationalError("the connection is lost"), Kind.GONE),
        (psycopg.InterfaceError("the connection is closed"), Kind.GONE),
        (psycopg.ProgrammingError("cannot adapt"), Kind.OTHER),
        (psycopg.DataError("out of range"), Kind.OTHER),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_without_a_code_is_the_library_s(error: Exception, kind: Kind) -> None:
    """Of those that are about the connection, it is taken to be gone."""
    assert PsycopgClient(owned=True).fault(error).kind is kind


@pytest.mark.parametrize(
    ("sqlstate", "sent", "expected", "unknown"),
    [
        ("53100", True, CapacityExceeded, None),
        ("54000", True, MessageTooLarge, None),
        ("57P01", True, ConnectionLost, True),
        ("57P01", False, BackendError, False),
        ("42501", True, BackendError, False),
        ("40P01", True, BackendError, False),
    ],
)
def test_what_the_contract_makes_of_a_code(
    sqlstate: str, sent: bool, expected: type, unknown: bool | None
) -> None:
    """ERR-3: the class says what to do, and only a lost connection leaves something unknown."""
    fault = PsycopgClient(owned=True).fault(_Coded(sqlstate, "words of the server"))
    error: Any = contract_error(fault, "postgresql at host", sent=sent)
    assert type(error) is expected
    assert str(error).startswith("postgresql at host: words of the server")
    if unknown is not None:
        assert error.outcome_unknown is unknown


def test_the_details_of_an_error_are_left_out() -> None:
    """They quote the values of the row, and so the payload (ERR-6)."""
    error = _Coded("23514", "violates a check\nDETAIL:  Failing row contains (s3cr3t).")
    assert "s3cr3t" not in PsycopgClient(owned=True).fault(error).text


def test_a_constraint_of_the_application_s_is_told_without_the_row(
    queue: SQLQueue, engine: Engine, table: str
) -> None:
    """BackendError whose text shows nothing of the message; the same by push_within."""
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK (length(extra) < 3)"))
    refused = Message("work", b"s3cr3t", extra=b"s3cr3t")
    [(_, error)] = _failures(lambda: queue.push(refused))
    assert isinstance(error, BackendError)
    assert not error.outcome_unknown
    assert 'violates check constraint "c"' in str(error)
    assert "s3cr3t" not in str(error)
    assert b"s3cr3t".hex() not in str(error)
    with psycopg.connect(server("postgres").url("postgresql")) as connection:
        [(_, error)] = _failures(lambda: queue.push_within(connection, refused))
        assert b"s3cr3t".hex() not in str(error)
        connection.rollback()


def test_a_server_that_is_full_is_capacity_exceeded(
    queue: SQLQueue, engine: Engine, table: str
) -> None:
    """Outcome known, for push and within a transaction; the rest works on (ERR-3)."""
    full = (
        f"CREATE FUNCTION {table}_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    )
    queue.push(Message("work", b"0"))
    with engine.begin() as connection:
        connection.exec_driver_sql(full)
        connection.exec_driver_sql(
            f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION {table}_full()"
        )
    [(_, error)] = _failures(lambda: queue.push(Message("work")))
    assert type(error) is CapacityExceeded
    with psycopg.connect(server("postgres").url("postgresql")) as connection:
        [(_, error)] = _failures(lambda: queue.push_within(connection, Message("work")))
        assert type(error) is CapacityExceeded
        connection.rollback()
    [each] = queue.pop("work", 10)
    queue.ack(each)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP FUNCTION {table}_full() CASCADE")
