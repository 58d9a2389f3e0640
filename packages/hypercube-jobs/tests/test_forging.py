"""What a job brings along cannot pass for a line of a log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

from hypercube_jobs import Constant, InlineQueue, Jobs
from hypercube_jobs._failure import failure_of, from_wire, to_wire
from hypercube_queue import Message
from hypercube_queue_memory import MemoryQueue

NOW = datetime(2026, 7, 1, tzinfo=UTC)
FORGED = "no\n2026-07-01 12:00:00 INFO hypercube_jobs.worker.jobs job pay 1: done"


@dataclass
class Note:
    """The job of these tests."""

    text: str = ""


def raised(error: Exception, cause: Exception) -> Exception:
    try:
        raise error from cause
    except type(error) as caught:
        return caught


def test_a_text_of_several_lines_cannot_pass_for_lines_of_the_traceback() -> None:
    """All but the first are indented; so are those of causes and of parts of a group."""
    cause = ExceptionGroup(FORGED, [ValueError(FORGED)])
    failure = failure_of(raised(KeyError(FORGED), cause), attempt=1, at=NOW)

    assert failure.traceback.count("2026-07-01 12:00:00") >= 2
    assert not [line for line in failure.traceback.split("\n") if line.startswith("2026")]


def test_the_type_in_a_record_is_one_line() -> None:
    """Anybody who may push can write a record."""
    wire = to_wire(failure_of(ValueError("no"), attempt=1, at=NOW), 0) | {"type": FORGED}
    failure = from_wire(wire)

    assert failure is not None
    assert "\n" not in failure.type


def test_no_job_can_forge_a_line_of_the_workers_log(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by the text of an error nor by its own names, which a backend may let pass."""
    queue = box.queue

    @box.jobs.handler("fail", retries=1, backoff=Constant(timedelta(0)))
    def fail(job: Note) -> None:
        raise ValueError(FORGED)

    class Lax(MemoryQueue):
        def pop(
            self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
        ) -> list[Message]:
            messages = super().pop(queue_name, max_messages, wait=wait)
            for message in messages:
                message.id = FORGED
                message.namespace = FORGED if message.job_name == "other" else ""
            return messages

    box.on(Lax(queue._store))
    box.jobs.handler("fail", retries=1, backoff=Constant(timedelta(0)))(fail)
    box.jobs.dispatch(Note())
    box.queue.push(Message("default", b"{}", "other"))
    with caplog.at_level(logging.DEBUG):
        box.drain()

    lines = [line for text in caplog.messages for line in text.split("\n")]
    assert [line for line in lines if "12:00:00" in line]
    assert not [line for line in lines if line.startswith("2026")]


def test_a_dispatch_that_fails_after_its_commit_forges_no_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its error is logged, since nobody can catch it."""
    jobs = Jobs(InlineQueue())

    @jobs.handler("fail")
    def fail(job: Note) -> None:
        raise ValueError(FORGED)

    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        jobs.dispatch_within(connection, Note())
    engine.dispose()

    [text] = caplog.messages
    assert "12:00:00" in text
    assert not [line for line in text.split("\n") if line.startswith("2026")]


def test_the_reason_of_a_failed_job_is_one_line(box: Any) -> None:
    """Whatever its text has in the place of a newline."""

    @box.jobs.handler("fail", retries=0)
    def fail(job: Note) -> None:
        raise ValueError("no\u2028order\nat all")

    box.jobs.dispatch(Note())
    box.drain()

    assert [job.reason for job in box.jobs.failed()] == ["ValueError: no\\u2028order"]
