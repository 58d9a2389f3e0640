"""What is kept of an error."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercube_jobs import PermanentError
from hypercube_jobs._failure import failure_of, frames_of_thread, from_wire, to_wire

NOW = datetime(2026, 7, 1, tzinfo=UTC)
HEADROOM = 16 * 1024


class Unprintable(Exception):
    """It cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not me")


class Evil(Exception):
    """It cannot be looked at."""

    @property
    def __cause__(self) -> BaseException:
        raise RuntimeError("not me either")


def throw(error: BaseException) -> NoReturn:
    raise error


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        throw(error)
    return caught.value


def size(error: BaseException) -> int:
    return len(json.dumps(to_wire(failure_of(error, attempt=1, at=NOW), 1)))


def test_the_type_is_named_as_people_import_it() -> None:
    """Private modules are left out of the name: their packages export what they define."""
    failure = failure_of(PermanentError("gone"), attempt=1, at=NOW)

    assert failure.type == "hypercube_jobs.PermanentError"


def test_a_failure_has_type_text_place_attempt_and_time() -> None:
    """Built-in types without their module, others with it."""
    failure = failure_of(raised(ValueError("no such order")), attempt=3, at=NOW)

    assert (failure.type, failure.text) == ("ValueError", "no such order")
    assert (failure.attempt, failure.at) == (3, NOW)
    assert "test_failure.py" in failure.traceback
    assert "raise error" in failure.traceback
    assert failure.traceback.endswith("ValueError: no such order\n")
    assert failure_of(json.JSONDecodeError("x", "y", 0), attempt=1, at=NOW).type == (
        "json.decoder.JSONDecodeError"
    )


def test_causes_and_contexts_are_told_in_order() -> None:
    """What led to what."""

    def fail() -> None:
        try:
            throw(OSError("disk"))
        except OSError:
            throw(ValueError("order"))

    with pytest.raises(ValueError, match="order") as caught:
        fail()
    trace = failure_of(caught.value, attempt=1, at=NOW).traceback

    assert trace.index("OSError: disk") < trace.index("which led to") < trace.index("ValueError")


def test_the_parts_of_a_group_are_told() -> None:
    """A TaskGroup hides its errors in one."""
    group = ExceptionGroup("two", [raised(ValueError("first")), raised(OSError("second"))])

    trace = failure_of(raised(group), attempt=1, at=NOW).traceback
    assert "part 1 of 2" in trace
    assert "ValueError: first" in trace
    assert "OSError: second" in trace


def test_a_deep_stack_keeps_both_ends() -> None:
    """Where it began and where it went wrong."""

    def deep(n: int) -> None:
        if n:
            other(n - 1)
        raise RecursionError("too deep")

    def other(n: int) -> None:
        deep(n)

    with pytest.raises(RecursionError) as caught:
        deep(100)
    trace = failure_of(caught.value, attempt=1, at=NOW).traceback

    assert "frames between these are left out" in trace
    assert len(trace) < HEADROOM / 2


@pytest.mark.parametrize(
    "error",
    [
        Unprintable(),
        Evil("x"),
        ValueError("\x00\ud800\x1b[31m"),
        ValueError("x" * 70_000),
        ValueError("\U0001f600" * 70_000),
        ValueError('"\\' * 70_000),
        ValueError("\x00" * 70_000),
        ExceptionGroup("g" * 70_000, [ValueError("é" * 70_000)] * 50),
        UnicodeEncodeError("utf-8", "\ud800" * 70_000, 0, 1, "bad"),
        type("T" * 70_000, (Exception,), {})("x"),
        type("N", (Exception,), {"__module__": "m\x00\ud800"})("x"),
        KeyboardInterrupt(),
        SystemExit(3),
    ],
    ids=lambda error: type(error).__name__[:20],
)
def test_no_error_is_too_much(error: BaseException) -> None:
    """It fits the headroom, has nothing that a store refuses, and comes back as it was."""
    failure = failure_of(raised(error), attempt=1, at=NOW)

    assert size(error) < HEADROOM - 2_000
    for text in (failure.type, failure.text, failure.traceback):
        text.encode()
        assert "\x00" not in text
        assert "\x1b" not in text
    assert from_wire(json.loads(json.dumps(to_wire(failure, 1_782_864_000_000_000)))) == failure


def test_a_cycle_of_causes_ends() -> None:
    """Errors can be made to cause each other."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert "ValueError: second" in failure_of(first, attempt=1, at=NOW).traceback


@given(text=st.text(st.characters(codec=None), max_size=300), times=st.integers(1, 400))
def test_any_text_fits(text: str, times: int) -> None:
    """Whatever it is made of."""
    assert size(ValueError(text * times)) < HEADROOM - 2_000


def test_where_a_thread_hangs_is_told() -> None:
    """For an attempt that is over its time-out and has raised nothing."""
    go = threading.Event()

    def hang_here() -> None:
        go.wait()

    thread = threading.Thread(target=hang_here)
    thread.start()
    try:
        while not (stack := frames_of_thread(thread.ident)):
            pass
        failure = failure_of(TimeoutError("late"), attempt=1, at=NOW, stack=stack)
    finally:
        go.set()
        thread.join()

    assert "Where it was then" in failure.traceback


@pytest.mark.parametrize(
    "wire",
    [
        None,
        "text",
        {},
        {"type": "a", "text": "b", "attempt": 1},
        {"type": "a", "text": "b", "attempt": 1, "at": 10**30},
        {"type": "a", "text": 3, "attempt": 1, "at": 1},
        {"type": "a", "text": "b", "attempt": "1", "at": 1},
        {"type": "a", "text": "b", "attempt": 1, "at": 1, "traceback": []},
    ],
)
def test_what_is_no_failure_is_none(wire: object) -> None:
    """A foreign record may hold anything under that name."""
    assert from_wire(wire) is None
