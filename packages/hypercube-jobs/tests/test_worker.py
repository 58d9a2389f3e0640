"""Running jobs: what handlers get, and what becomes of their messages."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import logging
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import (
    Constant,
    InvalidPayload,
    Jobs,
    Observer,
    PermanentError,
    Retry,
    UnknownKind,
    Worker,
    current_attempt,
)
from hypercube_queue import BackendError, InvalidArgument, Message, QueueClosed
from hypercube_queue_memory import MemoryQueue

AT_ONCE = Constant(timedelta(0))
GONE = (0, 0, 0, 0)
DEAD = (0, 0, 0, 1)


@dataclass
class Note:
    """The job of these tests."""

    text: str


def both(box: Any, kind: str, run: Any, **options: Any) -> None:
    """A synchronous handler `kind` and an asynchronous one `kind_async` that call `run`."""
    box.jobs.declare(kind, Note, **options)
    box.jobs.declare(f"{kind}_async", Note, **options)

    @box.jobs.handler(kind)
    def handle(job: Note) -> None:
        run(job)

    @box.jobs.handler(f"{kind}_async")
    async def handle_async(job: Note) -> None:
        await asyncio.sleep(0)
        run(job)


BOTH = pytest.mark.parametrize("kind", ["note", "note_async"])


@BOTH
def test_a_job_runs_and_is_gone(box: Any, kind: str) -> None:
    """The handler gets what was dispatched."""
    seen: list[Note] = []
    both(box, "note", seen.append)
    box.jobs.dispatch_kind(kind, Note("hello"))

    box.drain()

    assert seen == [Note("hello")]
    assert box.counts() == GONE
    assert box.recorder.steps() == ["dispatched", "processed"]


@BOTH
def test_a_failed_job_is_retried_until_it_succeeds(box: Any, kind: str) -> None:
    """With the attempts counted, and the last failure in the record."""
    numbers: list[tuple[int, bool]] = []

    def fail_twice(_job: Note) -> None:
        attempt = current_attempt()
        numbers.append((attempt.number, attempt.last))
        if attempt.number < 3:
            raise ValueError(f"failure {attempt.number}")

    both(box, "note", fail_twice, backoff=AT_ONCE)
    box.jobs.dispatch_kind(kind, Note("x"), retries=2)

    box.drain()

    assert numbers == [(1, False), (2, False), (3, True)]
    assert box.counts() == GONE
    assert box.recorder.steps() == ["dispatched", "failed", "failed", "processed"]
    assert [event.final for event in box.recorder.of("failed")] == [False, False]
    assert str(box.recorder.of("failed")[0].error) == "failure 1"


@BOTH
def test_a_job_that_always_fails_ends_in_the_dead_letters(box: Any, kind: str) -> None:
    """After its retries, with the last failure; the number of attempts is retries plus one."""

    def fail(_job: Note) -> None:
        raise ValueError(f"failure {current_attempt().number}")

    both(box, "note", fail, backoff=AT_ONCE, retries=2)
    box.jobs.dispatch_kind(kind, Note("x"), id="one")

    box.drain()

    assert box.counts() == DEAD
    (failed,) = box.jobs.failed()
    assert (failed.id, failed.kind, failed.attempt) == ("one", kind, 3)
    assert failed.reason == "ValueError: failure 3"
    assert "test_worker.py" in failed.failure.traceback
    assert "hypercube_jobs" not in failed.failure.traceback
    assert [event.final for event in box.recorder.of("failed")] == [False, False, True]


def test_a_redriven_job_starts_at_one(box: Any) -> None:
    """ATT-2: with all of its retries, by retry and by retry_all."""
    numbers = []

    @box.jobs.handler("note", retries=1, backoff=AT_ONCE)
    def fail(job: Note) -> None:
        numbers.append(current_attempt().number)
        raise ValueError("no")

    box.jobs.dispatch(Note("x"), id="one")
    box.drain()
    assert box.jobs.retry("one", "two") == 1
    box.drain()
    assert box.jobs.retry_all() == 1
    box.drain()

    assert numbers == [1, 2] * 3
    assert box.jobs.forget("one") == 1
    assert box.counts() == GONE


def test_a_retry_waits_for_its_backoff(box: Any) -> None:
    """In the backend, not in the worker."""

    @box.jobs.handler("note", backoff=Constant(timedelta(hours=1)))
    def fail(job: Note) -> None:
        raise ValueError("no")

    box.jobs.dispatch(Note("x"))
    box.drain()

    assert box.counts() == (0, 1, 0, 0)


@BOTH
def test_a_permanent_error_is_not_retried(box: Any, kind: str) -> None:
    """Subclasses of the application's own are as good."""

    class Deleted(PermanentError, KeyError):
        pass

    def fail(_job: Note) -> None:
        raise Deleted("order 7")

    both(box, "note", fail, backoff=AT_ONCE)
    box.jobs.dispatch_kind(kind, Note("x"))
    box.drain()

    assert box.counts() == DEAD
    assert box.recorder.of("failed")[0].final
    assert "Deleted" in box.jobs.failed()[0].reason


@BOTH
def test_a_handler_may_name_the_delay_of_its_retry(box: Any, kind: str) -> None:
    """It wins over the backoff, and uses up a retry like any other failure."""
    numbers = []

    def come_back(_job: Note) -> None:
        numbers.append(current_attempt().number)
        raise Retry("the bank is closed", delay=timedelta(0)) from OSError("closed")

    both(box, "note", come_back, retries=2, backoff=Constant(timedelta(hours=1)))
    box.jobs.dispatch_kind(kind, Note("x"))
    box.drain()

    assert numbers == [1, 2, 3]
    assert box.counts() == DEAD
    assert box.jobs.failed()[0].reason == "hypercube_jobs.Retry: the bank is closed"
    assert "OSError: closed" in box.jobs.failed()[0].failure.traceback


def test_a_bad_delay_of_a_retry_is_an_ordinary_failure(box: Any) -> None:
    """Its text says what is wrong with it."""

    @box.jobs.handler("note", retries=0)
    def handle(job: Note) -> None:
        raise Retry(delay=timedelta(seconds=-1))

    box.jobs.dispatch(Note("x"))
    box.drain()

    assert "InvalidArgument: delay" in box.jobs.failed()[0].reason


def test_an_invalid_payload_is_permanent_and_never_shown(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but a new deploy can mend it, and the log is no place for it."""

    @box.jobs.handler("note")
    def handle(job: Note) -> None: ...

    box.queue.push(Message("default", b'{"text": 5, "x": "hunter2"}', "note", id="one"))
    box.queue.push(Message("default", b"hunter2", "note", id="two"))
    box.drain()

    error = "hypercube_jobs.InvalidPayload: job of kind 'note': "
    assert {job.reason for job in box.jobs.failed()} == {
        f"{error}text: Input should be a valid string",
        f"{error}payload: Invalid JSON: expected value at line 1 column 1",
    }
    assert "hunter2" not in caplog.text + repr(box.jobs.failed())


def test_an_unknown_kind_is_a_failed_attempt(box: Any) -> None:
    """A deploy that is under way may bring the handler; a declared kind without one is alike."""
    box.jobs.declare("note", Note)
    box.queue.push(Message("default", b"{}", "nobody", id="one"))
    box.jobs.dispatch(Note("x"), id="two")
    box.drain()

    assert box.counts() == (0, 2, 0, 0)
    assert {type(event.error) for event in box.recorder.of("failed")} == {UnknownKind}


def test_an_error_of_a_dispatch_within_a_handler_is_an_ordinary_failure(box: Any) -> None:
    """That the next job is invalid says nothing about this one."""

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        with pytest.raises(InvalidPayload) as caught:
            box.jobs.dispatch(Note(5))
        raise caught.value

    box.jobs.dispatch(Note("x"))
    box.drain()

    assert box.counts() == (0, 1, 0, 0)


def test_a_message_of_another_producer_gets_the_handlers_defaults(box: Any) -> None:
    """And keeps what it had in extra, also when it fails."""
    seen = []

    @box.jobs.handler("note", retries=1, backoff=AT_ONCE, timeout=timedelta(seconds=20))
    def handle(job: Note) -> None:
        seen.append(current_attempt())
        raise ValueError("no")

    box.queue.push(Message("default", b'{"text": "x"}', "note", extra=b"\x00\xffforeign"))
    box.drain()

    assert [(each.number, each.max_retries, each.last) for each in seen] == [
        (1, 1, False),
        (2, 1, True),
    ]
    (letter,) = box.queue.dead_letters("default", 10)
    assert json.loads(letter.message.extra)["former"] == "AP9mb3JlaWdu"


def test_a_job_under_a_former_name_is_understood(box: Any) -> None:
    """Aliases are for jobs that were stored before the kind was renamed."""
    seen = []

    @box.jobs.handler("note", aliases=["memo"])
    def handle(job: Note) -> None:
        seen.append(current_attempt().kind)

    box.queue.push(Message("default", b'{"text": "x"}', "memo"))
    box.drain()

    assert seen == ["memo"]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("\x00 \ud800 \U0001f600"),
        ValueError("x" * 70_000),
        ValueError("\U0001f600" * 70_000),
        SystemExit(1),
        KeyboardInterrupt(),
        StopIteration(),
        asyncio.CancelledError(),
        ExceptionGroup("g", [ValueError("x" * 70_000)] * 100),
    ],
    ids=lambda error: type(error).__name__,
)
@BOTH
def test_no_error_keeps_a_job_from_its_dead_letter(box: Any, kind: str, error: Any) -> None:
    """Whatever was raised; the worker goes on."""

    class Small(MemoryQueue):
        @property
        def guarantees(self) -> Any:
            from dataclasses import replace

            return replace(super().guarantees, max_message_bytes=1_000)

    box.on(Small())

    def fail(_job: Note) -> None:
        raise error

    both(box, "note", fail, retries=1, backoff=AT_ONCE)
    box.jobs.dispatch_kind(kind, Note("x" * 800))
    box.drain()

    assert box.counts() == DEAD
    (letter,) = box.queue.dead_letters("default", 1)
    assert len(letter.message.payload) + len(letter.message.extra) <= 1_000 + 16 * 1024
    assert box.jobs.failed()[0].failure is not None


def test_a_record_without_room_is_left_out_rather_than_the_transition(box: Any) -> None:
    """The last resort; the counters stay as long as there is room for them."""

    class Tiny(MemoryQueue):
        def dead_letter(self, *messages: Message) -> None:
            self._too_large(messages)
            super().dead_letter(*messages)

        def retry(self, *messages: Message) -> None:
            self._too_large(messages)
            super().retry(*messages)

        def _too_large(self, messages: Any) -> None:
            for message in messages:
                if len(message.extra) > 150:
                    raise InvalidArgument("too large for this backend")

    box.on(Tiny())

    @box.jobs.handler("note", retries=2, backoff=AT_ONCE)
    def fail(job: Note) -> None:
        raise ValueError("x" * 1_000)

    box.jobs.dispatch(Note("x"))
    box.drain()

    assert box.counts() == DEAD
    assert [event.attempt for event in box.recorder.of("failed")] == [1, 2, 3]


def test_each_attempt_has_a_context_of_its_own(box: Any) -> None:
    """It sees what the maker of the worker had set, and no other job's changes."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("outer")
    seen = []

    def look(job: Note) -> None:
        seen.append(variable.get())
        variable.set(job.text)

    both(box, "note", look)
    for kind in ("note", "note", "note_async", "note_async"):
        box.jobs.dispatch_kind(kind, Note("inner"))
    box.drain()

    assert seen == ["outer"] * 4
    assert variable.get() == "outer"


def test_outside_a_handler_there_is_no_attempt(box: Any) -> None:
    """A handler that a test calls directly must not think that it is the last attempt."""
    assert current_attempt() is None


def test_an_attempt_is_known_in_tasks_and_threads_that_asyncio_starts(box: Any) -> None:
    """They copy the context."""
    seen = []

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        async def inner() -> None:
            seen.append(current_attempt().id)

        await asyncio.create_task(inner())
        await asyncio.to_thread(lambda: seen.append(current_attempt().id))

    box.jobs.dispatch(Note("x"), id="one")
    box.drain()

    assert seen == ["one", "one"]


def test_attempt_tells_what_a_handler_may_need(box: Any) -> None:
    """Among it the id, which stays the same for every attempt."""
    seen = []

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        seen.append(current_attempt())

    box.jobs.dispatch(Note("x"), id="one", retries=4)
    box.drain()

    (attempt,) = seen
    assert (attempt.id, attempt.kind, attempt.queue) == ("one", "note", "default")
    assert (attempt.number, attempt.max_retries) == (1, 4)
    assert (attempt.last, attempt.lost) == (False, False)


def test_a_handler_that_forgot_its_async_is_a_failure(box: Any) -> None:
    """Its coroutine would never have run, and the job would have counted as done."""

    async def work() -> None: ...

    @box.jobs.handler("note")
    def handle(job: Note) -> object:
        return work()

    box.jobs.dispatch(Note("x"))
    box.drain()

    assert box.counts() == (0, 1, 0, 0)
    assert "declare it with `async def`" in str(box.recorder.of("failed")[0].error)


def test_objects_and_partials_can_be_handlers(box: Any) -> None:
    """Whatever can be called with the job."""
    seen = []

    class Handler:
        async def __call__(self, job: Note) -> None:
            seen.append(job.text)

    def handle(prefix: str, job: Note) -> None:
        seen.append(prefix + job.text)

    box.jobs.declare("a", Note)
    box.jobs.declare("b", Note)
    box.jobs.handler("a")(Handler())
    box.jobs.handler("b")(functools.partial(handle, "b"))
    box.jobs.dispatch_kind("a", Note("x"))
    box.jobs.dispatch_kind("b", Note("x"))
    box.drain()

    assert sorted(seen) == ["bx", "x"]


@pytest.mark.parametrize("concurrency", [1, 3, 10])
def test_no_more_jobs_run_at_once_than_may(box: Any, concurrency: int) -> None:
    """Synchronous and asynchronous ones together, and all the slots are used."""
    lock = threading.Lock()
    now = most = 0
    full = threading.Event()

    def enter() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            if now >= concurrency:
                full.set()

    def leave() -> None:
        nonlocal now
        with lock:
            now -= 1

    box.jobs.declare("sync", Note)
    box.jobs.declare("async", Note)

    @box.jobs.handler("sync")
    def handle(job: Note) -> None:
        enter()
        full.wait(5)
        leave()

    @box.jobs.handler("async")
    async def handle_async(job: Note) -> None:
        enter()
        while not full.is_set():
            await asyncio.sleep(0.001)
        leave()

    for number in range(60):
        box.jobs.dispatch_kind("sync" if number % 3 else "async", Note("x"))
    box.drain(concurrency=concurrency)

    assert most == concurrency
    assert box.counts() == GONE


def test_jobs_start_in_the_order_of_their_queue(box: Any) -> None:
    """Synchronous and asynchronous ones mixed, one at a time."""
    seen = []
    both(box, "note", lambda job: seen.append(int(job.text)))
    for number in range(300):
        box.jobs.dispatch_kind("note_async" if number % 7 < 3 else "note", Note(str(number)))
    box.drain()

    assert seen == list(range(300))


def test_max_jobs_is_how_many_run(box: Any) -> None:
    """No more is even popped."""
    seen = []
    both(box, "note", seen.append)
    for _ in range(100):
        box.jobs.dispatch_kind("note", Note("x"))
    box.start(max_jobs=7, concurrency=4).end()

    assert len(seen) == 7
    assert box.counts() == (93, 0, 0, 0)


def test_a_worker_without_work_waits_for_it(box: Any) -> None:
    """And takes what comes promptly, from any of its queues."""
    seen = threading.Semaphore(0)
    both(box, "note", lambda job: seen.release())
    running = box.start(queues=["a", "b"], sleep=timedelta(seconds=2))
    for queue in "abba":
        box.jobs.dispatch_kind("note", Note("x"), queue=queue)
        assert seen.acquire(timeout=5)
    running.stop()


def test_one_line_is_logged_for_each_attempt(box: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Id, kind, queue, attempt, duration, outcome; and never the payload."""
    caplog.set_level(logging.INFO, "hypercube_jobs")

    @box.jobs.handler("note", retries=1, backoff=AT_ONCE)
    def handle(job: Note) -> None:
        if job.text.startswith("bad"):
            raise ValueError("first line\nsecond line")

    box.jobs.dispatch(Note("good hunter2"), id="good")
    box.jobs.dispatch(Note("bad hunter2"), id="bad")
    box.drain()

    lines = sorted(
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.getMessage().startswith("job ")
    )
    assert [(level, line.partition(", 0.")[0]) for level, line in lines] == [
        ("ERROR", "job note bad, queue default, attempt 2"),
        ("INFO", "job note good, queue default, attempt 1"),
        ("WARNING", "job note bad, queue default, attempt 1"),
    ]
    dead, _, traceback = lines[0][1].partition("\n")
    assert dead.endswith("s: dead: ValueError: first line")
    assert 'raise ValueError("first line' in traceback
    assert lines[1][1].endswith("s: done")
    assert lines[2][1].endswith("s: failed, next attempt in 0:00:00: ValueError: first line")
    assert "hunter2" not in caplog.text


def test_an_observer_that_raises_is_logged_and_changes_nothing(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Those after it are told all the same."""

    class Broken(Observer):
        def processed(self, event: object) -> None:
            raise RuntimeError("no")

    box.jobs = Jobs(box.queue, observers=[Broken(), box.recorder])
    both(box, "note", lambda job: None)
    for _ in range(3):
        box.jobs.dispatch_kind("note", Note("x"))
    box.drain()

    assert box.counts() == GONE
    assert len(box.recorder.of("processed")) == 3
    assert caplog.text.count("the observer Broken raised") == 3


def test_a_worker_runs_once(box: Any) -> None:
    """Another run is another worker."""
    worker = Worker(box.jobs, stop_when_empty=True)
    worker.run()
    with pytest.raises(InvalidArgument, match="has run already"):
        worker.run()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queues": "default"}, r"queues is a list of names, such as \['default'\], not a str"),
        ({"queues": []}, "queues is empty"),
        ({"queues": ["a", "a"]}, "queues has 'a' twice"),
        ({"queues": [""]}, "queue_name is empty"),
        ({"queues": [3]}, "queue_name is a str, not int"),
        ({"concurrency": 0}, "concurrency is 0; it is at least 1"),
        ({"concurrency": 10_001}, "it is at most 10000"),
        ({"concurrency": "4"}, "concurrency is an int, not str"),
        ({"sleep": timedelta(0)}, "sleep is 0"),
        ({"sleep": 1}, "sleep is a timedelta, not int"),
        ({"max_jobs": 0}, "max_jobs is 0; it is at least 1"),
        ({"stop_when_empty": "yes"}, "stop_when_empty is 'yes', not a bool"),
        ({"stop_timeout": timedelta(seconds=-1)}, "stop_timeout is -1 day"),
        ({"settle_after": 5}, "settle_after is a timedelta, not int"),
        ({"settle_after": timedelta(days=4000)}, "settle_after is 4000 days"),
    ],
)
def test_each_bad_option_of_a_worker_is_named(box: Any, options: dict[str, Any], text: str) -> None:
    """With its value and the remedy, before anything is popped."""
    with pytest.raises(InvalidArgument, match=text):
        Worker(box.jobs, **options)


def test_a_worker_needs_jobs(box: Any) -> None:
    """A queue is not enough."""
    with pytest.raises(InvalidArgument, match="a worker is for a Jobs object, not MemoryQueue"):
        Worker(box.queue)


def test_a_closed_queue_ends_the_worker(box: Any) -> None:
    """It raises what the pop raised."""
    both(box, "note", lambda job: None)
    running = box.start()
    box.queue.close()
    with pytest.raises(QueueClosed):
        running.end()


def test_an_outage_is_waited_out_and_logged_once(
    box: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker goes on where it was when the backend is back."""
    caplog.set_level(logging.INFO, "hypercube_jobs")

    class Down(MemoryQueue):
        failures = 3

        def pop(self, *args: Any, **kwargs: Any) -> list[Message]:
            if self.failures:
                self.failures -= 1
                raise BackendError("the server is away")
            return super().pop(*args, **kwargs)

    box.on(Down())
    both(box, "note", lambda job: None)
    box.jobs.dispatch_kind("note", Note("x"))
    running = box.start(queues=["default", "other"])
    box.until(lambda: box.recorder.of("processed"))
    running.stop()
    running.end()

    assert caplog.text.count("fetching jobs failed: the server is away; retrying in") == 1
    assert caplog.text.count("fetching jobs works again, after") == 1


def test_stop_when_empty_ends_with_the_error_of_a_pop(box: Any) -> None:
    """Whoever drains a queue wants to know that it was not drained."""

    class Down(MemoryQueue):
        def pop(self, *args: Any, **kwargs: Any) -> list[Message]:
            raise BackendError("the server is away")

    box.on(Down())
    with pytest.raises(BackendError, match="the server is away"):
        box.drain()


def test_importing_the_worker_imports_no_driver() -> None:
    """Any driver will do, and none is needed."""
    import subprocess

    code = "import hypercube_jobs, sys; print(*(m for m in sys.modules if 'queue_' in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    drivers = [
        name for name in done.stdout.split() if name.startswith(("hypercube_queue_", "sqlalchemy"))
    ]
    assert drivers == []


def test_each_asynchronous_attempt_is_a_task_of_its_own(box: Any) -> None:
    """Libraries keep state by task; one that never waits is no exception."""
    tasks = []
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(60):
            if job.text == "wait":
                await asyncio.sleep(0.001)

    for number in range(200):
        box.jobs.dispatch(Note("wait" if number % 5 == 0 else "no"))
    box.drain()

    assert None not in tasks
    assert len(set(tasks)) == 200


def test_handlers_that_never_wait_leave_the_loop_to_others(box: Any) -> None:
    """A crowd of them does not keep one that waits from going on."""
    order: list[str] = []
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        if job.text == "waits":
            await asyncio.sleep(0.01)
        order.append(job.text)

    box.jobs.dispatch(Note("waits"))
    box.queue.push(*(box.jobs.message(Note("short")) for _ in range(20_000)))
    box.drain(concurrency=2)

    assert order.index("waits") < 10_000
