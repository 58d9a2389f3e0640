"""Code of the application's around dispatches and attempts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from hypercube_jobs import (
    Attempt,
    Constant,
    Dispatch,
    InlineQueue,
    Jobs,
    Middleware,
    Observer,
    current_attempt,
)
from hypercube_queue import Message
from hypercube_queue_memory import MemoryQueue
from hypercube_queue_sql import SQLQueue

VARIABLE: ContextVar[str] = ContextVar("variable", default="")


@dataclass
class Note:
    """A job."""

    text: str


class Telling(Middleware):
    """Writes down what it wraps."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told

    @contextmanager
    def dispatching(self, dispatch: Dispatch) -> Iterator[None]:
        self.told.append(f"{self.name} dispatches {dispatch.kind}")
        yield
        self.told.append(f"{self.name} dispatched {dispatch.kind}")

    @contextmanager
    def processing(self, attempt: Attempt) -> Iterator[None]:
        self.told.append(f"{self.name} begins {attempt.number}")
        try:
            yield
        except BaseException as error:
            self.told.append(f"{self.name} sees {type(error).__name__}")
            raise
        self.told.append(f"{self.name} ends {attempt.number}")


def test_the_first_is_outermost(box: Any) -> None:
    """Around dispatches, attempts of functions and of coroutines alike."""
    told: list[str] = []
    box.jobs.set_observers(Telling("a", told), Observer(), Telling("b", told))

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        told.append(job.text)

    @box.jobs.handler("async")
    async def note_async(job: Note) -> None:
        await asyncio.sleep(0)
        told.append(job.text)

    for kind in ("note", "async"):
        box.jobs.dispatch_kind(kind, {"text": kind})
        box.drain()
        assert told == [
            f"a dispatches {kind}",
            f"b dispatches {kind}",
            f"b dispatched {kind}",
            f"a dispatched {kind}",
            "a begins 1",
            "b begins 1",
            kind,
            "b ends 1",
            "a ends 1",
        ]
        told.clear()


def test_all_ways_of_dispatching_are_wrapped(tmp_path: Path) -> None:
    """Asynchronous ones, those of namespaces, and those within transactions."""
    told: list[str] = []
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
    queue = SQLQueue(engine, create_tables=True)
    queue.stats("default")
    for jobs in (
        Jobs(queue, observers=[Telling("a", told)]),
        Jobs(MemoryQueue(), observers=[Telling("a", told)]),
        Jobs(InlineQueue(), observers=[Telling("a", told)]),
    ):
        for space in (jobs, jobs.under("other")):
            space.declare("note", Note)
            space.handler("note")(lambda job: None)
            space.dispatch(Note("x"))
            space.dispatch_kind("note", {"text": "x"})
            asyncio.run(space.dispatch_async(Note("x")))
            asyncio.run(space.dispatch_kind_async("note", {"text": "x"}))
            with engine.begin() as connection:
                space.dispatch_within(connection, Note("x"))
            with engine.begin() as connection:
                space.dispatch_kind_within(connection, "note", {"text": "x"})
            assert told.count("a dispatched note") == 6
            told.clear()
    queue.close()
    engine.dispose()


def test_the_dispatch_says_what_is_stored(box: Any) -> None:
    """All but the payload, which may hold what nobody should log."""
    seen = []

    class Looking(Middleware):
        @contextmanager
        def dispatching(self, dispatch: Dispatch) -> Iterator[None]:
            seen.append(dispatch)
            yield

    box.jobs.add_observer(Looking())
    box.jobs.under("mail").declare("note", Note, retries=7)
    result = box.jobs.under("mail").dispatch(Note("x"), queue="letters", delay=timedelta(seconds=9))

    assert seen == [
        Dispatch(
            id=result.id,
            kind="note",
            namespace="mail",
            queue="letters",
            delay=timedelta(seconds=9),
            max_retries=7,
            trace={},
        )
    ]


def test_what_a_dispatch_raises_reaches_the_caller(box: Any) -> None:
    """Before its yield nothing is stored then."""

    class Refusing(Middleware):
        @contextmanager
        def dispatching(self, dispatch: Dispatch) -> Iterator[None]:
            raise PermissionError("not today")
            yield

    box.jobs.add_observer(Refusing())
    box.jobs.declare("note", Note)
    with pytest.raises(PermissionError, match="not today"):
        box.jobs.dispatch(Note("x"))

    assert box.jobs.pending() == 0
    assert box.recorder.events == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_it_raises_around_an_attempt_fails_it(box: Any, when: str) -> None:
    """As if the handler had raised it, so the job is tried again."""

    class Raising(Middleware):
        @contextmanager
        def processing(self, attempt: Attempt) -> Iterator[None]:
            if when == "before":
                raise ConnectionError("no session")
            yield
            raise ConnectionError("no session")

    ran: list[Note] = []
    box.jobs.add_observer(Raising())
    box.jobs.declare("note", Note, backoff=Constant(timedelta(hours=1)))
    box.jobs.handler("note")(ran.append)
    box.jobs.dispatch(Note("x"))
    box.drain()

    (event,) = box.recorder.of("failed")
    assert (str(event.error), event.final) == ("no session", False)
    assert len(ran) == (when == "after")
    assert box.counts() == (0, 1, 0, 0)


def test_what_it_swallows_has_succeeded(box: Any) -> None:
    """That is how to ignore an error on purpose."""
    from contextlib import suppress

    class Forgiving(Middleware):
        def processing(self, attempt: Attempt) -> Any:
            return suppress(FileNotFoundError)

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        raise FileNotFoundError(job.text)

    box.jobs.add_observer(Forgiving())
    box.jobs.dispatch(Note("x"))
    box.drain()

    assert box.recorder.steps() == ["dispatched", "processed"]


def test_it_sees_how_an_attempt_ends(box: Any) -> None:
    """Errors of the handler, payloads that cannot be read, kinds that nobody knows, time-outs."""
    told: list[str] = []
    box.jobs.add_observer(Telling("a", told))

    @box.jobs.handler("note", retries=0)
    def note(job: Note) -> None:
        raise ValueError(job.text)

    @box.jobs.handler("slow", retries=0, timeout=timedelta(milliseconds=20))
    async def slow(job: Note) -> None:
        await asyncio.sleep(60)

    box.jobs.dispatch_kind("note", Note("x"))
    box.drain()
    box.queue.push(Message("default", b"{}", "note"))
    box.drain()
    box.queue.push(Message("default", b"{}", "nobody"))
    box.drain()
    box.jobs.dispatch_kind("slow", Note("x"))
    box.drain()

    assert [each for each in told if "sees" in each] == [
        "a sees ValueError",
        "a sees InvalidPayload",
        "a sees UnknownKind",
        "a sees CancelledError",
    ]
    # The unreadable one, and those without retries, are dead; the unknown one is tried again.
    assert box.counts() == (0, 1, 0, 3)


def test_context_variables_are_seen_by_the_handler(box: Any) -> None:
    """And gone when it has ended, whichever thread comes next."""
    seen = []

    class Setting(Middleware):
        @contextmanager
        def processing(self, attempt: Attempt) -> Iterator[None]:
            seen.append(VARIABLE.get())
            VARIABLE.set(attempt.id)
            yield

    @box.jobs.handler("sync")
    def sync(job: Note) -> None:
        seen.append(VARIABLE.get())

    @box.jobs.handler("async")
    async def asynchronous(job: Note) -> None:
        await asyncio.sleep(0)
        seen.append(VARIABLE.get())

    box.jobs.add_observer(Setting())
    for kind in ("sync", "async", "sync"):
        box.jobs.dispatch_kind(kind, Note("x"), id=kind)
        box.drain()

    assert seen == ["", "sync", "", "async", "", "sync"]


def test_a_middleware_hears_of_events_as_well(box: Any) -> None:
    """It is an observer."""
    told: list[str] = []

    class Both(Telling):
        def processed(self, event: object) -> None:
            self.told.append("processed")

    box.jobs.add_observer(Both("a", told))
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: None)
    box.jobs.dispatch(Note("x"))
    box.drain()

    assert told[-2:] == ["a ends 1", "processed"]
    assert [type(each) for each in box.jobs.middleware] == [Both]
    box.jobs.set_observers()
    assert (box.jobs.observers, box.jobs.middleware) == ((), ())


def test_what_is_written_into_the_trace_travels(box: Any) -> None:
    """To the attempt, to its retries, and to what the handler dispatches."""
    seen = []

    class Tracing(Middleware):
        @contextmanager
        def dispatching(self, dispatch: Dispatch) -> Iterator[None]:
            dispatch.trace.setdefault("origin", dispatch.id)
            yield

    @box.jobs.handler("note", retries=1, backoff=Constant(timedelta(0)))
    def note(job: Note) -> None:
        seen.append((job.text, current_attempt().number, dict(current_attempt().trace)))
        if job.text == "first" and len(seen) == 1:
            raise ValueError
        if job.text == "first":
            box.jobs.dispatch(Note("second"))

    box.jobs.add_observer(Tracing())
    box.jobs.dispatch(Note("first"), id="one")
    box.drain()

    assert seen == [
        ("first", 1, {"origin": "one"}),
        ("first", 2, {"origin": "one"}),
        ("second", 1, {"origin": "one"}),
    ]


def test_without_middleware_a_trace_is_passed_on(box: Any) -> None:
    """A worker that traces nothing does not break the trace of others."""

    @box.jobs.handler("note")
    def note(job: Note) -> None:
        if job.text == "first":
            box.jobs.dispatch(Note("second"), queue="other")

    message = box.jobs.message(Note("first"))
    message.extra = json.dumps({"v": 1, "trace": {"traceparent": "00-1-2-01", "bad": 7}}).encode()
    box.queue.push(message)
    box.drain()

    (second,) = box.queue.pop("other")
    assert json.loads(second.extra)["trace"] == {"traceparent": "00-1-2-01"}
    assert json.loads(box.jobs.message(Note("x")).extra).get("trace") is None
