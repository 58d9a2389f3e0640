"""Declaring kinds, and binding handlers to them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import timedelta

import pytest
import typing_extensions
from pydantic import BaseModel

from hypercube_jobs import Constant, DuplicateKind, Exponential, Jobs, UnknownKind
from hypercube_queue import AsyncQueue, InvalidArgument
from hypercube_queue_memory import MemoryQueue


@dataclass
class Invoice:
    """A dataclass."""

    order_id: int


class Mail(BaseModel):
    """A model."""

    to: str


class Ping(typing_extensions.TypedDict):
    """A TypedDict."""

    host: str


class Unresolvable(BaseModel):
    """A model of a type that is nowhere."""

    other: NoSuchType  # noqa: F821


@pytest.fixture
def jobs() -> Jobs:
    return Jobs(MemoryQueue())


@pytest.mark.parametrize("type_", [Invoice, Mail, Ping])
def test_dataclasses_models_and_typed_dicts_are_jobs(jobs: Jobs, type_: type) -> None:
    """A kind is declared with any of the three."""
    jobs.declare("kind", type_)

    assert jobs.kind("kind").type is type_


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (int, "a job is a dataclass, a pydantic model or a TypedDict, not int"),
        (dict, "not dict"),
        (list[int], "not list"),
        (Invoice(1), "not an object of Invoice"),
        (None, "not None"),
        (Unresolvable, "Unresolvable cannot be a job"),
    ],
)
def test_other_types_are_refused_by_name(jobs: Jobs, type_: type, text: str) -> None:
    """The error names the type, and nothing is declared."""
    with pytest.raises(InvalidArgument, match=re.escape(text)):
        jobs.declare("kind", type_)

    assert jobs.kind("kind") is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": ""}, "queue_name is empty"),
        ({"queue": 3}, "queue_name is a str, not int"),
        ({"queue": "a\x00b"}, "U+0000"),
        ({"retries": -1}, "retries is -1; it is 0, for one attempt only, to 1,000,000"),
        ({"retries": 1.5}, "retries is an int, not float"),
        ({"retries": True}, "retries is an int, not bool"),
        ({"timeout": timedelta(0)}, "timeout is 0:00:00; it must be longer than zero"),
        ({"timeout": timedelta(days=4000)}, "timeout is 4000 days"),
        ({"timeout": 60}, "timeout is a timedelta, not int"),
        ({"backoff": timedelta(seconds=1)}, "backoff is Constant(...), Exponential(...) or a"),
        ({"aliases": "old"}, "aliases is a list of kinds, such as ['old'], not a str"),
        ({"aliases": [""]}, "alias is empty"),
    ],
)
@pytest.mark.parametrize("how", ["declare", "handler"])
def test_each_bad_option_is_named(
    jobs: Jobs, how: str, options: dict[str, object], text: str
) -> None:
    """With its value and the remedy; nothing is declared."""

    def handle(job: Invoice) -> None: ...

    def attempt() -> None:
        if how == "declare":
            jobs.declare("kind", Invoice, **options)
        else:
            jobs.handler("kind", **options)(handle)

    with pytest.raises(InvalidArgument, match=re.escape(text)):
        attempt()

    assert jobs.kind("kind") is None


@pytest.mark.parametrize("kind", ["", "a\nb", "x" * 256, "\ud800"])
def test_a_kind_is_a_name(jobs: Jobs, kind: str) -> None:
    """It becomes the message's job_name."""
    with pytest.raises(InvalidArgument, match=r"^kind "):
        jobs.declare(kind, Invoice)
    with pytest.raises(InvalidArgument, match=r"^kind "):
        jobs.handler(kind)


def test_an_unknown_option_is_refused(jobs: Jobs) -> None:
    """A misspelt option is no option."""
    with pytest.raises(TypeError, match="retires"):
        jobs.declare("kind", Invoice, retires=3)


@pytest.mark.parametrize(
    ("backoff", "text"),
    [
        (lambda: Constant(timedelta(seconds=-1)), "backoff: delay is -1 day"),
        (lambda: Constant(5), "backoff: delay is a timedelta, not int"),
        (lambda: Exponential(timedelta(seconds=-1)), "backoff: base is -1 day"),
        (lambda: Exponential(timedelta(1), cap=3), "backoff: cap is a timedelta, not int"),
        (lambda: Constant(timedelta(1), jitter=1.5), "jitter is 1.5; it is a number from 0 to 1"),
        (lambda: Constant(timedelta(1), jitter="1"), "jitter is '1'; it is a number from 0 to 1"),
    ],
)
def test_a_bad_backoff_is_refused(backoff: object, text: str) -> None:
    """The error says which part of it."""
    with pytest.raises(InvalidArgument, match=re.escape(text)):
        backoff()


def test_a_kind_is_declared_once(jobs: Jobs) -> None:
    """A second declaration, and an alias that is a kind already, are DuplicateKind."""
    jobs.declare("kind", Invoice, aliases=["former"])

    for name in ("kind", "former"):
        with pytest.raises(DuplicateKind, match=rf"'{name}' is declared already"):
            jobs.declare(name, Mail)
        with pytest.raises(DuplicateKind, match=rf"'{name}' is declared already"):
            jobs.declare("other", Mail, aliases=[name])
    assert jobs.kind("other") is None


def test_a_kind_has_one_handler(jobs: Jobs) -> None:
    """The error names the one that is there."""

    @jobs.handler("kind")
    def first(job: Invoice) -> None: ...

    with pytest.raises(DuplicateKind, match=r"has a handler already: .*first"):

        @jobs.handler("kind")
        def second(job: Invoice) -> None: ...


def test_a_declared_kind_takes_a_handler_without_options(jobs: Jobs) -> None:
    """What producers and workers must agree on stands in one place."""
    jobs.declare("kind", Invoice, retries=7)
    with pytest.raises(InvalidArgument, match=r"belong to jobs.declare\(\)"):
        jobs.handler("kind", retries=8)

    @jobs.handler("kind")
    def handle(job: object) -> None: ...

    assert jobs.kind("kind").policy.retries == 7
    assert jobs.kind("kind").handler is handle


def test_the_handler_stays_the_function_it_was(jobs: Jobs) -> None:
    """Tests call it directly."""

    def double(job: Invoice) -> int:
        return 2 * job.order_id

    assert jobs.handler("kind")(double) is double


def test_local_types_are_found(jobs: Jobs) -> None:
    """Also where annotations are not evaluated, as in this file."""

    @dataclass
    class Local:
        number: int

    @jobs.handler("kind")
    def handle(job: Local) -> None: ...

    assert jobs.kind("kind").type is Local


def test_asynchronous_handlers_are_recognised(jobs: Jobs) -> None:
    """Functions, partials and objects with a __call__."""

    class Handler:
        async def __call__(self, job: Invoice) -> None: ...

    async def function(job: Invoice, extra: int = 0) -> None: ...

    jobs.handler("a")(function)
    jobs.handler("b")(Handler())
    jobs.handler("c")(functools.partial(function, extra=1))

    assert [jobs.kind(name).is_async for name in "abc"] == [True, True, True]


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda: None, "cannot be called with one argument, the job"),
        (lambda job: None, "the parameter job of .* has no type"),
        (lambda job, other: None, "cannot be called with one argument, the job"),
        (lambda *, job: None, "cannot be called with one argument, the job"),
        ("text", "a handler is a function of the job, not str"),
    ],
)
def test_what_cannot_handle_jobs_is_refused(jobs: Jobs, handler: object, text: str) -> None:
    """When it is registered, not when the first job comes."""
    with pytest.raises(InvalidArgument, match=text):
        jobs.handler("kind")(handler)

    assert jobs.kind("kind") is None


def test_generators_are_refused(jobs: Jobs) -> None:
    """Their bodies would never run."""

    def generator(job: Invoice) -> object:
        yield job

    async def async_generator(job: Invoice) -> object:
        yield job

    for handler in (generator, async_generator):
        with pytest.raises(InvalidArgument, match="is a generator, whose body would never run"):
            jobs.handler("kind")(handler)


def test_an_annotation_that_cannot_be_resolved_says_what_to_do(jobs: Jobs) -> None:
    """Declare the kind first, and no annotation is needed."""

    def handle(job: "Nowhere") -> None: ...  # noqa: F821, UP037

    with pytest.raises(InvalidArgument, match=r"cannot be resolved .*jobs.declare\(kind, type\)"):
        jobs.handler("kind")(handle)
    jobs.declare("kind", Invoice)
    jobs.handler("kind")(handle)


def test_jobs_need_a_queue() -> None:
    """An URL is no queue, and the error says how to make one of it; nor is an AsyncQueue."""
    with pytest.raises(InvalidArgument, match=r"such as open_queue\(url\) gives, not str"):
        Jobs("memory://")
    with pytest.raises(InvalidArgument, match=r"such as open_queue\(url\) gives, not AsyncQueue"):
        Jobs(AsyncQueue(MemoryQueue()))


def test_an_observer_is_an_observer(jobs: Jobs) -> None:
    """A class in place of an object is the usual mistake."""
    with pytest.raises(InvalidArgument, match="an observer is an object of a subclass"):
        jobs.add_observer(object)


def test_jobs_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """HYPERCUBE_URL, or another variable; the error names the one that is missing."""
    monkeypatch.delenv("HYPERCUBE_URL", raising=False)
    with pytest.raises(InvalidArgument, match="HYPERCUBE_URL is not set"):
        Jobs.from_env()

    monkeypatch.setenv("OTHER", "memory://")
    assert isinstance(Jobs.from_env("OTHER").queue, MemoryQueue)


def test_types_of_several_kinds_are_told_apart_by_kind(jobs: Jobs) -> None:
    """By type alone it is not clear what is meant, nor for a dict or an undeclared type."""
    jobs.declare("a", Invoice)
    jobs.declare("b", Invoice)

    with pytest.raises(UnknownKind, match=r"several kinds \(a, b\): use dispatch_kind"):
        jobs.dispatch(Invoice(1))
    with pytest.raises(UnknownKind, match="a dict does not say which kind it is"):
        jobs.dispatch({"order_id": 1})
    with pytest.raises(UnknownKind, match=r"declare it with jobs.declare\(kind, Mail\)"):
        jobs.dispatch(Mail(to="x"))
    with pytest.raises(UnknownKind, match="no kind 'c' is declared; declared are: a, b"):
        jobs.dispatch_kind("c", {})


def test_all_kinds_can_be_listed(jobs: Jobs) -> None:
    """Each once, whatever its aliases, in the order they were declared."""
    jobs.declare("send", Invoice, aliases=["mail"])
    jobs.declare("archive", Mail)

    assert [kind.name for kind in jobs.kinds()] == ["send", "archive"]
