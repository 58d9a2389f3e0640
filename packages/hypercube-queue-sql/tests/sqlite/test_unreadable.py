"""Rows that are no messages: SQLite keeps any type in any column, and others write there, too."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hypercube_queue import DeadLetter, InvalidArgument, Message
from hypercube_queue_sql import DEFAULT_TABLE, SQLQueue

NOTHING = timedelta(0)
FAULTS = [
    ("job_name", b"\xff\xfe", "job_name is not UTF-8 at byte 0"),
    ("namespace", b"ok\xc3", "namespace is not UTF-8 at byte 2"),
    ("id", b"\x80", "id is not UTF-8 at byte 0"),
    ("job_name", b"kind\nERROR forged", "job_name 'kind\\nERROR forged' has the character U+000A"),
    ("namespace", b"\x1b[2J", "namespace '\\x1b[2J' has the character U+001B"),
    ("id", b"", "id is empty"),
    ("id", b"x" * 256, "id 'xxx"),
    ("job_name", "a text", "job_name holds no bytes but a str"),
    ("id", "a text", "id holds no bytes but a str"),
    ("payload", "a text", "payload holds no bytes but a str"),
    ("payload", 17, "payload holds no bytes but a int"),
    ("extra", "{}", "extra holds no bytes but a str"),
    ("attempt", -3, "attempt is -2, outside 0 to 9223372036854775807"),
    ("attempt", 1.5, "attempt is no integer but a float"),
    ("visibility_us", -1, "visibility_us is -1, outside 1 to 315360000000000"),
    ("visibility_us", 0, "visibility_us is 0, outside 1 to 315360000000000"),
    ("visibility_us", 1 << 62, "visibility_us is 4611686018427387904, outside"),
    ("visibility_us", "soon", "visibility_us is no integer but a str"),
    ("visibility_us", 2.5, "visibility_us is no integer but a float"),
]


def _spoil(file: Path, column: str, value: object, where: str = "1") -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"UPDATE {DEFAULT_TABLE} SET {column} = ? WHERE {where}", (value,))


@pytest.mark.parametrize(("column", "value", "reason"), FAULTS)
def test_a_row_that_cannot_be_read_is_set_aside(
    queue: SQLQueue, file: Path, column: str, value: object, reason: str
) -> None:
    """It is dead with the reason, its payload is shown as it is, and nothing waits behind it."""
    queue.push(Message("work", b"spoilt", id="0"), Message("work", b"good", id="1"))
    _spoil(file, column, value, "seq = 1")
    before = datetime.now(UTC) - timedelta(seconds=1)

    assert [each.payload for each in queue.pop("work", 2, wait=NOTHING)] == [b"good"]
    [letter] = queue.dead_letters("work", 10)
    shown = value if column == "payload" else b"spoilt"
    raw = shown if isinstance(shown, bytes) else str(shown).encode()
    assert (letter.message, letter.raw) == (None, raw)
    assert letter.reason.startswith(reason)
    assert before <= letter.died_at <= datetime.now(UTC) + timedelta(seconds=1)
    assert queue.stats("work").dead == 1
    assert queue.pop("work", wait=NOTHING) == []


def test_it_is_reported_once_and_without_its_content(
    queue: SQLQueue, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning names the row, the queue and the column."""
    queue.push(Message("work", b"s3cr3t", extra=b"s3cr3t"))
    _spoil(file, "job_name", b"s3cr3t\xff")
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            assert queue.pop("work", wait=NOTHING) == []

    [record] = caplog.records
    assert (record.name, record.levelname) == ("hypercube_queue_sql", "WARNING")
    assert "row 1 of queue 'work'" in record.getMessage()
    assert "job_name is not UTF-8" in record.getMessage()
    assert "s3cr3t" not in caplog.text


def test_a_redrive_passes_over_what_cannot_be_read(queue: SQLQueue, file: Path) -> None:
    """By count and by id; the readable ones behind it move (RED-6)."""
    queue.push(Message("work", b"spoilt", id="0"), Message("work", b"good", id="1"))
    _spoil(file, "extra", "text", "seq = 1")
    queue.dead_letter(*queue.pop("work", 2))

    assert queue.redrive("work", 10) == 1
    assert queue.redrive_ids("work", "0", "1") == 0
    assert [each.payload for each in queue.pop("work", 2)] == [b"good"]


def test_what_cannot_be_read_can_be_forgotten(queue: SQLQueue, file: Path) -> None:
    """By its id, where that is one; the id is free again."""
    queue.push(Message("work", b"spoilt", id="0"))
    _spoil(file, "extra", "text")
    queue.pop("work", wait=NOTHING)

    assert queue.forget("work", "0", "unknown") == 1
    queue.push(Message("work", b"new", id="0"))
    assert [each.payload for each in queue.pop("work")] == [b"new"]


def test_a_batch_is_filled_beyond_what_cannot_be_read(queue: SQLQueue, file: Path) -> None:
    """Many of them in front take nothing from the pop (POP-1)."""
    queue.push(*(Message("work", b"%d" % number) for number in range(100)))
    _spoil(file, "payload", "text", "seq <= 60")

    assert [each.payload for each in queue.pop("work", 30)] == [b"%d" % n for n in range(60, 90)]
    assert queue.stats("work").dead == 60


def test_a_row_whose_time_is_a_text_is_set_aside(queue: SQLQueue, file: Path) -> None:
    """No moment would ever make it visible."""
    queue.push(Message("work", b"dated", delay=timedelta(hours=1)))
    _spoil(file, "visible_at", "2024-01-01 00:00:00")

    assert queue.pop("work", wait=NOTHING) == []
    [letter] = queue.dead_letters("work", 10)
    assert (letter.message, letter.raw) == (None, b"dated")
    assert letter.reason == "visible_at is no integer but a str"


def test_a_dead_message_that_was_spoilt_is_still_shown(queue: SQLQueue, file: Path) -> None:
    """Without a message, with the reason, and it is in nobody's way."""
    queue.push(Message("work", b"0"), Message("work", b"1"))
    queue.dead_letter(*queue.pop("work", 2))
    _spoil(file, "job_name", "text", "seq = 1")
    letters = queue.dead_letters("work", 10)

    assert [letter.message and letter.message.payload for letter in letters] == [b"1", None]
    assert letters[1].raw == b"0"
    assert letters[1].reason == "job_name holds no bytes but a str"


def test_queue_names_that_nobody_can_ask_for_are_not_listed(queue: SQLQueue, file: Path) -> None:
    """The others are."""
    queue.push(Message("work", b"0"), Message("other", b"1"), Message("third", b"2"))
    _spoil(file, "queue_name", b"\xff", "seq = 2")
    _spoil(file, "queue_name", "a text", "seq = 3")
    queue.push(Message("fourth", b"3"))
    _spoil(file, "queue_name", b"a\nline", "seq = 4")

    assert queue.queues() == ["work"]


@pytest.mark.parametrize(
    "cursor", ["", "1", "1.2.3", "-1.2", "a.b", "1." + "9" * 19, "\u0661.\u0662", 1.5, b"1.2"]
)
def test_a_foreign_cursor_is_refused(queue: SQLQueue, cursor: object) -> None:
    """InvalidArgument, whatever it is."""
    with pytest.raises(InvalidArgument, match="before is"):
        queue.dead_letters("work", 1, cursor)


def test_letters_of_one_moment_are_paged_in_order(queue: SQLQueue) -> None:
    """One call kills them all at the same microsecond; pages neither skip nor repeat (DLS-2)."""
    queue.push(*(Message("work", b"%d" % number) for number in range(7)))
    queue.dead_letter(*queue.pop("work", 7))
    seen: list[DeadLetter] = []
    while page := queue.dead_letters("work", 2, seen[-1].cursor if seen else None):
        seen += page

    assert len({letter.died_at for letter in seen}) == 1
    assert [letter.message.payload for letter in seen] == [b"%d" % n for n in reversed(range(7))]
