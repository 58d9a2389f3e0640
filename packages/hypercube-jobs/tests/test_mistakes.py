"""What is written by mistake, or as in another library, is answered with what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from hypercube_jobs import InvalidPayload, Jobs, UnknownKind
from hypercube_jobs._policy import DISPATCH_OPTIONS, KIND_OPTIONS
from hypercube_queue import InvalidArgument
from hypercube_queue_memory import MemoryQueue


@dataclass
class Note:
    """A job."""

    text: str = ""


class Model(BaseModel):
    """Another job, whose class is of a class of its own."""


@pytest.fixture
def jobs() -> Jobs:
    made = Jobs(MemoryQueue())
    made.declare("note", Note)
    made.declare("model", Model)
    return made


def handle(job: Note) -> None:
    """A handler."""


@pytest.mark.parametrize("type_", [Note, Model, int])
def test_a_class_is_no_job(jobs: Jobs, type_: type) -> None:
    """One of its objects is."""
    name = type_.__name__
    text = f"the job is the class {name} itself; dispatch an object of it, {name}(...)"
    with pytest.raises(InvalidArgument, match=re.escape(text)):
        jobs.dispatch(type_)
    with pytest.raises(InvalidPayload, match=f"kind 'note': .* got the class {name} itself"):
        jobs.dispatch_kind("note", type_)


def test_a_handler_is_no_job(jobs: Jobs) -> None:
    """Nor is any other function."""
    with pytest.raises(InvalidArgument, match=r"the job is the function .*test_mistakes\.handle"):
        jobs.dispatch(handle)


@pytest.mark.parametrize("job", ["note", {"text": "a"}])
def test_a_kind_or_its_fields_are_no_job(jobs: Jobs, job: object) -> None:
    """There is a method for both together."""
    with pytest.raises(UnknownKind, match=r"use dispatch_kind\(kind, payload\)"):
        jobs.dispatch(job)


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"countdown": 5}, "did you mean delay=timedelta(seconds=...)?"),
        ({"eta": "soon"}, "did you mean delay=eta - datetime.now(UTC)?"),
        ({"max_retries": 5}, "did you mean retries=...?"),
        ({"task_id": "a"}, "did you mean id=...?"),
        ({"time_limit": 5}, "did you mean timeout=timedelta(seconds=...)?"),
        ({"priority": 5}, "did you mean queue=..., with a queue of its own"),
        ({"expires": 5}, "did you mean a field of the job that its handler looks at?"),
        ({"dealy": 5}, "did you mean delay=...?"),
        ({"retires": 5}, "did you mean retries=...?"),
        ({"xyz": 5}, "there are backoff, delay, id, queue, retries, timeout"),
    ],
)
def test_an_option_of_another_library_is_refused_with_ours(
    jobs: Jobs, options: dict[str, Any], meant: str
) -> None:
    """Wherever a job is dispatched; nothing is stored."""
    name = next(iter(options))
    text = re.escape(f"{name} is no option of a dispatch: {meant}")
    dispatches: list[Callable[[], object]] = [
        lambda: jobs.dispatch(Note(), **options),
        lambda: jobs.dispatch_kind("note", {}, **options),
        lambda: jobs.dispatch_within(object(), Note(), **options),
        lambda: jobs.message(Note(), **options),
    ]
    for dispatch in dispatches:
        with pytest.raises(TypeError, match=text):
            dispatch()
    assert jobs.pending() == 0


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"max_retries": 5}, "did you mean retries=...?"),
        ({"default_retry_delay": 5}, "did you mean backoff=Constant(timedelta(seconds=...))?"),
        ({"name": "x"}, "did you mean the kind?"),
        ({"delay": 5}, "there are backoff, limits, queue, retries, timeout"),
    ],
)
def test_an_option_that_a_kind_does_not_have_is_refused(
    jobs: Jobs, options: dict[str, Any], meant: str
) -> None:
    """At once, where it stands."""
    text = re.escape(f"is no option of a kind: {meant}")
    with pytest.raises(TypeError, match=text):
        jobs.declare("other", Note, **options)
    for kind in ("other", "note"):
        with pytest.raises(TypeError, match=text):
            jobs.handler(kind, **options)


def test_the_options_are_those_of_the_typed_signatures() -> None:
    """So a new one cannot be forgotten."""
    shared = frozenset({"queue", "retries", "backoff", "timeout"})
    assert shared | {"limits"} == KIND_OPTIONS
    assert shared | {"delay", "id"} == DISPATCH_OPTIONS
