"""The inline queue: jobs run where they are dispatched."""

from __future__ import annotations

import asyncio
import os
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import (
    InlineDelay,
    InlineQueue,
    Jobs,
    PermanentError,
    TimeLimitExceeded,
    UnknownKind,
    Worker,
    current_attempt,
)
from hypercube_queue import (
    BatchError,
    InvalidArgument,
    Message,
    NotFound,
    Queue,
    QueueClosed,
    capability,
)

VARIABLE: ContextVar[str] = ContextVar("variable", default="")


@dataclass
class Note:
    """A job."""

    text: str


@pytest.fixture
def jobs() -> Jobs:
    return Jobs(InlineQueue())


def test_a_job_runs_at_its_dispatch(jobs: Jobs) -> None:
    """In the caller's thread, and as it would come out of a queue."""
    ran = []

    @jobs.handler("note")
    def note(job: Note) -> None:
        ran.append((job, threading.current_thread()))

    sent = Note("a")
    result = jobs.dispatch(sent)

    ((job, thread),) = ran
    assert job == sent
    assert job is not sent
    assert thread is threading.current_thread()
    assert (result.kind, result.queue, result.created) == ("note", "default", True)


def test_the_attempt_is_the_only_one(jobs: Jobs) -> None:
    """There are no retries, whatever the job was dispatched with."""
    seen = []

    @jobs.handler("note", retries=5)
    def note(job: Note) -> None:
        seen.append(current_attempt())

    result = jobs.dispatch(Note("a"), queue="billing", id="mine")

    (attempt,) = seen
    assert (attempt.id, attempt.kind, attempt.queue) == ("mine", "note", "billing")
    assert (attempt.number, attempt.max_retries, attempt.last) == (1, 0, True)
    assert result.id == "mine"
    assert current_attempt() is None


@pytest.mark.parametrize("error", [ValueError("no"), PermanentError("never")])
def test_the_handlers_error_reaches_the_caller_unchanged(jobs: Jobs, error: Exception) -> None:
    """There is nobody else to tell, and a batch of errors would hide it."""

    @jobs.handler("note")
    def note(job: Note) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        jobs.dispatch(Note("a"))

    assert raised.value is error


def test_a_delay_is_refused(jobs: Jobs) -> None:
    """To run it now would be to run it early."""
    ran = []
    jobs.declare("note", Note)
    jobs.handler("note")(ran.append)

    with pytest.raises(InlineDelay, match="an inline queue runs jobs at once"):
        jobs.dispatch(Note("a"), delay=timedelta(seconds=1))

    assert ran == []


def test_a_kind_without_a_handler_is_refused(jobs: Jobs) -> None:
    """A producer's declaration is not enough here."""
    jobs.declare("note", Note)

    with pytest.raises(UnknownKind, match="the kind 'note' has no handler here"):
        jobs.dispatch(Note("a"))


def test_an_asynchronous_handler_runs_to_its_end(jobs: Jobs) -> None:
    """From synchronous code on a loop of its own, also while another runs in this thread."""
    ran = []

    @jobs.handler("note")
    async def note(job: Note) -> None:
        await asyncio.sleep(0)
        ran.append((job.text, current_attempt().number))
        if job.text == "bad":
            raise ValueError(job.text)

    async def main() -> None:
        jobs.dispatch(Note("b"))
        with pytest.raises(ValueError, match="bad"):
            jobs.dispatch(Note("bad"))

    jobs.dispatch(Note("a"))
    asyncio.run(main())

    assert ran == [("a", 1), ("b", 1), ("bad", 1)]


def test_a_coroutine_dispatches_on_its_own_loop(jobs: Jobs) -> None:
    """What belongs to the loop can be used; synchronous handlers run in a thread."""
    ran = []

    @jobs.handler("note")
    async def note(job: Note) -> None:
        ran.append(asyncio.get_running_loop())

    @jobs.handler("ping")
    def ping(job: Note) -> None:
        ran.append(threading.current_thread())

    async def main() -> None:
        await jobs.dispatch_kind_async("note", Note("a"))
        assert ran[0] is asyncio.get_running_loop()
        await jobs.dispatch_kind_async("ping", Note("b"))
        assert ran[1] is not threading.current_thread()

    asyncio.run(main())
    assert len(ran) == 2


def test_the_time_out_of_an_asynchronous_handler_holds(jobs: Jobs) -> None:
    """It is cancelled, and the caller is told why; another TimeoutError comes as it is."""

    @jobs.handler("note", timeout=timedelta(milliseconds=20))
    async def note(job: Note) -> None:
        if job.text == "own":
            raise TimeoutError("mine")
        await asyncio.sleep(60)

    with pytest.raises(TimeLimitExceeded, match=r"longer than its time-out, 0:00:00\.02"):
        jobs.dispatch(Note("a"))
    with pytest.raises(TimeoutError, match="mine"):
        jobs.dispatch(Note("own"))


def test_a_handler_sees_a_copy_of_the_context(jobs: Jobs) -> None:
    """What it sets there does not leak into the caller's."""
    seen = []

    @jobs.handler("note")
    def note(job: Note) -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set("changed")

    token = VARIABLE.set("caller")
    jobs.dispatch(Note("a"))

    assert seen == ["caller"]
    assert VARIABLE.get() == "caller"
    VARIABLE.reset(token)


def test_jobs_that_dispatch_jobs_run_them_within(jobs: Jobs) -> None:
    """The attempt is the inner one's meanwhile."""
    seen = []

    @jobs.handler("note")
    def note(job: Note) -> None:
        if job.text == "outer":
            jobs.dispatch(Note("inner"))
        seen.append((job.text, current_attempt().id))

    jobs.dispatch(Note("outer"), id="outer")

    assert [text for text, _ in seen] == ["inner", "outer"]
    assert seen[1][1] == "outer"


def test_observers_hear_of_each_step(box: Any) -> None:
    """Attempt 0 when it is about to run, and a failure is final."""
    jobs = box.on(InlineQueue())

    @jobs.handler("note")
    def note(job: Note) -> None:
        if job.text == "bad":
            raise ValueError("no")

    jobs.dispatch(Note("good"), id="one")
    with pytest.raises(ValueError, match="no"):
        jobs.dispatch(Note("bad"), id="two")

    told = [
        (step, event.id, event.attempt, event.max_retries, event.final)
        for step, event in box.recorder.events
    ]
    assert told == [
        ("dispatched", "one", 0, 0, False),
        ("processed", "one", 1, 0, False),
        ("dispatched", "two", 0, 0, False),
        ("failed", "two", 1, 0, True),
    ]


def test_pushed_messages_run_each_by_itself(jobs: Jobs) -> None:
    """One that fails stops no other; one error comes plainly, several in a group."""
    ran = []

    @jobs.handler("note")
    def note(job: Note) -> None:
        ran.append(job.text)
        if job.text.startswith("bad"):
            raise ValueError(job.text)

    jobs.queue.push(jobs.message(Note("a")), jobs.message(Note("b")))
    with pytest.raises(ValueError, match="bad 1"):
        jobs.queue.push(jobs.message(Note("bad 1")), jobs.message(Note("c")))
    with pytest.raises(ExceptionGroup, match="several of 2 jobs failed"):
        jobs.queue.push(jobs.message(Note("bad 2")), jobs.message(Note("bad 3")))

    with pytest.raises(BatchError, match="push: 1 of 2 failed"):
        jobs.queue.push(Message(""), jobs.message(Note("d")))
    with pytest.raises(ExceptionGroup, match="several of 2 jobs failed"):
        jobs.queue.push(Message(""), jobs.message(Note("bad 4")))

    assert ran == ["a", "b", "bad 1", "c", "bad 2", "bad 3", "d", "bad 4"]


def test_for_a_worker_it_is_empty(jobs: Jobs) -> None:
    """It ends, and nothing that somebody made up can be settled."""
    Worker(jobs, stop_when_empty=True).run()

    assert capability(jobs.queue, Queue) is jobs.queue
    assert jobs.queue.pop("default", wait=timedelta(0)) == []
    for settle in (jobs.queue.ack, jobs.queue.retry, jobs.queue.dead_letter):
        settle()
        with pytest.raises(ExceptionGroup) as raised:
            settle(Message("default", id="x"))
        assert raised.group_contains(NotFound)


def test_a_closed_one_runs_nothing(jobs: Jobs) -> None:
    """As with any queue; a waiting pop is woken."""
    jobs.declare("note", Note)
    jobs.handler("note")(lambda job: None)
    errors = []

    def wait() -> None:
        try:
            jobs.queue.pop("default", wait=timedelta(minutes=5))
        except QueueClosed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    jobs.queue.close()
    thread.join(30)

    assert len(errors) == 1
    with pytest.raises(QueueClosed):
        jobs.dispatch(Note("a"))
    with pytest.raises(QueueClosed):
        jobs.queue.push()


def test_a_forked_child_runs_its_jobs(jobs: Jobs) -> None:
    """A web server that forks after the import is the usual case."""
    jobs.declare("note", Note)
    jobs.handler("note")(lambda job: os._exit(7))
    child = os.fork()
    if not child:
        try:
            jobs.dispatch(Note("a"))
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7


def test_an_inline_queue_is_for_one_jobs_object(jobs: Jobs) -> None:
    """It has to know whose handlers to call."""
    with pytest.raises(InvalidArgument, match="is for another Jobs object; make one for each"):
        Jobs(jobs.queue)
    with pytest.raises(InvalidArgument, match="is for no jobs yet"):
        InlineQueue().push(Message("default"))


def test_the_environment_may_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In development, with one variable."""
    monkeypatch.setenv("HYPERCUBE_URL", "inline://")

    assert isinstance(Jobs.from_env().queue, InlineQueue)
