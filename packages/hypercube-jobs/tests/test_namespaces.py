"""Kinds of jobs under namespaces, such as those of plugins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from hypercube_jobs import Constant, DuplicateKind, Jobs, Namespace, UnknownKind, UnknownNamespace
from hypercube_queue import InvalidArgument, Message
from hypercube_queue_memory import MemoryQueue


@dataclass
class Letter:
    """A job."""

    to: str


@dataclass
class Parcel:
    """Another job."""

    to: str


@pytest.fixture
def jobs() -> Jobs:
    return Jobs(MemoryQueue())


def test_equal_kinds_of_two_namespaces_do_not_clash(box) -> None:
    """Each has its own type and handler, and a worker finds the one that is meant."""
    jobs, ran = box.jobs, []

    @jobs.handler("send")
    def send(job: Letter) -> None:
        ran.append(("", job))

    @jobs.under("mail").handler("send")
    def send_mail(job: Letter) -> None:
        ran.append(("mail", job))

    @jobs.under("post").handler("send")
    async def send_parcel(job: Parcel) -> None:
        ran.append(("post", job))

    jobs.dispatch(Letter("a"))
    jobs.under("mail").dispatch(Letter("b"))
    jobs.under("post").dispatch_kind("send", {"to": "c"})
    box.drain()

    assert ran == [("", Letter("a")), ("mail", Letter("b")), ("post", Parcel("c"))]


def test_a_namespace_is_one_object_for_one_name(jobs: Jobs) -> None:
    """Whoever asks for it adds to the same kinds."""
    mail = jobs.under("mail")
    mail.declare("send", Letter)

    assert isinstance(mail, Namespace)
    assert mail.name == "mail"
    assert jobs.under("mail") is mail
    with pytest.raises(DuplicateKind, match="'send' is declared already"):
        jobs.under("mail").declare("send", Parcel)


@pytest.mark.parametrize("name", ["", "a\nb", 7])
def test_a_namespace_has_a_name(jobs: Jobs, name: object) -> None:
    """It becomes the message's namespace; the empty one is that of `jobs` itself."""
    with pytest.raises(InvalidArgument, match=r"^namespace "):
        jobs.under(name)


def test_the_message_carries_the_namespace(jobs: Jobs) -> None:
    """With the options of the kind, as anywhere."""
    jobs.under("mail").declare("send", Letter, queue="letters")
    jobs.under("mail").dispatch(Letter("a"))

    (message,) = jobs.queue.pop("letters", wait=timedelta(0))
    assert (message.namespace, message.job_name) == ("mail", "send")


def test_kinds_of_all_namespaces_are_listed(jobs: Jobs) -> None:
    """By the whole; a namespace lists its own."""
    jobs.under("mail").declare("send", Letter)
    jobs.declare("archive", Parcel)

    assert [(kind.namespace, kind.name) for kind in jobs.kinds()] == [
        ("", "archive"),
        ("mail", "send"),
    ]
    assert [kind.name for kind in jobs.under("mail").kinds()] == ["send"]


def test_a_job_is_dispatched_where_it_is_declared(jobs: Jobs) -> None:
    """Types of a namespace are unknown outside it, and the error names the namespace."""
    jobs.under("mail").declare("send", Letter)

    with pytest.raises(UnknownKind, match="no kind is declared for Letter: declare it with"):
        jobs.dispatch(Letter("a"))
    with pytest.raises(UnknownKind, match="no kind is declared for Parcel under 'mail'"):
        jobs.under("mail").dispatch(Parcel("a"))
    with pytest.raises(UnknownKind, match="'x' is declared under 'mail'; declared are: send"):
        jobs.under("mail").dispatch_kind("x", {})


def test_the_kind_of_a_message_is_found_by_its_namespace(jobs: Jobs) -> None:
    """An unknown namespace is another error than an unknown kind in a known one."""
    jobs.under("mail").declare("send", Letter)

    assert jobs.kind_of(Message("q", job_name="send", namespace="mail")).type is Letter
    with pytest.raises(UnknownKind, match="no kind 'send' is declared here"):
        jobs.kind_of(Message("q", job_name="send"))
    with pytest.raises(UnknownNamespace, match="no namespace 'post' is declared here"):
        jobs.kind_of(Message("q", job_name="send", namespace="post"))


def test_a_job_of_an_unknown_namespace_is_dead_at_once(box) -> None:
    """A whole plugin is missing, which no retry mends; the reason says so."""
    box.queue.push(Message("default", b"{}", "send", "mail", id="one"))
    box.drain()

    (failed,) = box.jobs.failed()
    assert (failed.namespace, failed.kind, failed.attempt) == ("mail", "send", 1)
    assert "UnknownNamespace: no namespace 'mail' is declared here" in failed.reason
    (event,) = box.recorder.of("failed")
    assert (event.namespace, event.final) == ("mail", True)


def test_an_unknown_kind_of_a_known_namespace_is_tried_again(box) -> None:
    """The deploy that brings it may be under way."""
    box.jobs.under("mail")
    box.queue.push(Message("default", b"{}", "send", "mail", id="one"))
    box.drain()

    assert box.counts() == (0, 1, 0, 0)
    (event,) = box.recorder.of("failed")
    assert (event.kind, event.namespace, event.final) == ("send", "mail", False)


def test_a_handler_learns_its_namespace(box) -> None:
    """From the attempt; the log names it before the kind."""
    from hypercube_jobs import current_attempt

    seen = []

    @box.jobs.under("mail").handler("send", retries=1, backoff=Constant(timedelta(0)))
    def send(job: Letter) -> None:
        seen.append(current_attempt().namespace)

    box.jobs.under("mail").dispatch(Letter("a"))
    box.drain()

    assert seen == ["mail"]
