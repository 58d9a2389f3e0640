"""Errors that say whether a job is retried, wherever in an error they are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Constant, PermanentError, Retry
from hypercube_jobs._instruction import instruction_of

HOUR = timedelta(hours=1)
SOON = timedelta(minutes=1)


@dataclass
class Note:
    """The job of these tests."""

    text: str = ""


class Gone(PermanentError, KeyError):
    """A subclass of an application."""


class Evil(Exception):
    """It cannot be looked at."""

    @property
    def __cause__(self) -> BaseException:
        raise RuntimeError("not me")


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def handled(error: BaseException, context: BaseException) -> BaseException:
    error.__context__ = context
    return error


def cycle() -> BaseException:
    first, second = ValueError(), ValueError()
    return caused(first, caused(second, first))


def deep(error: Exception) -> Exception:
    for _ in range(5):
        error = ExceptionGroup("nested", [error])
    return error


P = PermanentError
DEAD, LATER = "dead", "later"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermanentError("no"), DEAD),
        (Gone("no"), DEAD),
        (caused(ValueError(), P("no")), DEAD),
        (caused(ValueError(), caused(KeyError(), Gone("no"))), DEAD),
        (handled(ValueError(), P("no")), None),
        (ExceptionGroup("all", [P("no"), Gone("no")]), DEAD),
        (ExceptionGroup("all", [P("no"), caused(ValueError(), P("no"))]), DEAD),
        (deep(P("no")), DEAD),
        (ExceptionGroup("some", [P("no"), ValueError()]), None),
        (ExceptionGroup("some", [P("no"), deep(ValueError())]), None),
        (BaseExceptionGroup("some", [P("no"), asyncio.CancelledError()]), None),
        (caused(ValueError(), ExceptionGroup("all", [P("no")])), DEAD),
        (caused(ExceptionGroup("some", [ValueError()]), P("no")), DEAD),
        (Retry(delay=HOUR), HOUR),
        (caused(ValueError(), Retry(delay=HOUR)), HOUR),
        (ExceptionGroup("all", [Retry(delay=SOON), Retry(delay=HOUR)]), HOUR),
        (ExceptionGroup("some", [Retry(delay=SOON), ValueError()]), None),
        (ExceptionGroup("mixed", [Retry(delay=SOON), P("no")]), None),
        (caused(Retry(delay=HOUR), P("no")), HOUR),
        (caused(P("no"), Retry(delay=HOUR)), DEAD),
        (ValueError(), None),
        (cycle(), None),
        (Evil(), None),
    ],
)
def test_the_outermost_word_counts_and_a_group_by_all_its_parts(
    error: BaseException, expected: object
) -> None:
    """As README has it."""
    found = instruction_of(error)

    if expected is DEAD:
        assert isinstance(found, PermanentError)
    else:
        assert expected == (found.delay if isinstance(found, Retry) else found)


def test_a_task_group_of_permanent_errors_is_permanent(box: Any) -> None:
    """What an asynchronous handler with tasks of its own raises."""

    async def fail() -> None:
        raise PermanentError("no")

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    box.jobs.dispatch(Note())
    box.drain()

    assert box.counts() == (0, 0, 0, 1)


def test_a_permanent_cause_is_permanent(box: Any) -> None:
    """Of a synchronous handler too; the error that was raised is recorded."""

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        raise LookupError("no order") from PermanentError("no")

    box.jobs.dispatch(Note())
    box.drain()

    assert [job.reason for job in box.jobs.failed()] == ["LookupError: no order"]


def test_a_cause_names_the_delay(box: Any) -> None:
    """Instead of the backoff."""

    @box.jobs.handler("note", retries=1, backoff=Constant(HOUR))
    def handle(job: Note) -> None:
        raise OSError("closed") from Retry(delay=timedelta(0))

    box.jobs.dispatch(Note())
    box.drain()

    assert box.counts() == (0, 0, 0, 1)


def test_an_attempt_over_its_time_out_is_an_ordinary_failure(box: Any) -> None:
    """Whatever the handler raises when it is cancelled."""

    @box.jobs.handler("note", backoff=Constant(HOUR), timeout=timedelta(seconds=0.05))
    async def handle(job: Note) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if job.text == "dead":
                raise PermanentError("no") from None
            raise Retry(delay=timedelta(0)) from None

    box.jobs.dispatch(Note("dead"))
    box.jobs.dispatch(Note("again"))
    box.drain()

    assert box.counts() == (0, 2, 0, 0)
