"""Texts of others, in logs, on terminals and as names."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hypercube_jobs import Cron, Jobs, PermanentError
from hypercube_jobs._command import _logging
from hypercube_jobs._text import is_printable, lines_of, one_line
from hypercube_queue import InvalidArgument
from hypercube_queue_memory import MemoryQueue

#: Ends of lines that are none, changes of direction, no width, and controls.
UNSEEN = [
    "\u2028",
    "\u2029",
    "\u0085",
    "\x0b",
    "\x0c",
    "\r",
    "\x1b",
    "\x7f",
    "\u202e",
    "\u2066",
    "\u200f",
    "\u200b",
    "\u200d",
    "\ufeff",
    "\u00ad",
    "\u3164",
    "\u2800",
    "\ue000",
]


@pytest.mark.parametrize("char", UNSEEN)
def test_what_cannot_be_seen_is_escaped(char: str) -> None:
    """On one line, as Python would write it."""
    shown = one_line(f"a{char}b")
    assert shown == f"a{char.encode('unicode_escape').decode()}b"
    assert shown.isprintable()
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "send_invoice", "Rechnung für Ägypten", "日本語\u3000名", "a\u00a0€", "🎉"]
)
def test_what_can_be_seen_stays(text: str) -> None:
    """In any script, with its spaces."""
    assert one_line(text) == text
    assert lines_of(text) == [text]


def test_newlines_alone_separate_lines() -> None:
    """Where several are wanted; a tab is spaces."""
    assert one_line("a\nb\tc") == "a\\nb\\tc"
    assert lines_of("a\u2028b\n\tc\r\n") == ["a\\u2028b", "    c\\r", ""]


@pytest.mark.parametrize("char", [char for char in UNSEEN if ord(char) > 0x9F])
def test_names_that_cannot_be_read_are_refused_at_declaration(char: str) -> None:
    """A kind that looks like another one misleads whoever looks after jobs."""
    jobs = Jobs(MemoryQueue())
    assert not is_printable(char)
    for declare in (
        lambda: jobs.declare(f"pay{char}", dict),
        lambda: jobs.declare("pay", dict, aliases=[f"p{char}ay"]),
        lambda: jobs.under(f"shop{char}"),
        lambda: jobs.schedule(f"daily{char}", Cron("@daily"), {}, kind="pay"),
    ):
        with pytest.raises(InvalidArgument, match=f"character U\\+{ord(char):04X} at position"):
            declare()


FORGED = "2026-12-01 10:00:00,000 INFO job pay o1, queue default, attempt 1, 0.001 s: done"


def test_a_record_of_the_worker_is_one_line_and_what_is_indented_below_it(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is in the error, the id and the name of the queue."""
    caplog.set_level(logging.INFO, "hypercube_jobs.worker.jobs")
    box.jobs.declare("note", box.Note)

    @box.jobs.handler("note")
    def note(job: Any) -> None:
        raise PermanentError(f"no\u2028{job.text}\n{FORGED}")

    box.jobs.dispatch_kind("note", box.Note(FORGED), id="o\u2028 1", queue="q\u202e")
    box.drain(queues=["q\u202e"])
    (text,) = caplog.messages
    first, *below = text.splitlines()
    assert first.startswith("job note o\\u2028 1, queue q\\u202e, attempt 1, ")
    assert "s: dead: hypercube_jobs.PermanentError: no\\u2028" in first
    assert FORGED in text
    assert all(line.startswith("    ") for line in below)


def test_the_log_of_the_command_begins_a_line_for_each_record_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors that are logged have texts of others in them, and so have their tracebacks."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    _logging.log_to_stderr(_logging.LogLevel.info)
    error = OSError(f"away\n{FORGED}\x1b[2J")
    logging.getLogger("other").warning("fetching jobs failed: %s", error)
    logging.getLogger("other").error("it failed", exc_info=error)
    for handler in root.handlers:
        handler.flush()
    lines = capsys.readouterr().err.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert [head.partition(" ")[2].partition(" ")[2] for head in heads] == [
        "WARNING fetching jobs failed: away",
        "ERROR it failed",
    ]
    assert lines.count(f"    {FORGED}\\x1b[2J") == 2
    assert "\x1b" not in "".join(lines)
