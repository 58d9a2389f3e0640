"""Schedulers, by a clock that the tests turn: whatever time it is, each due time runs once."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercube_jobs import Cron, Every, Jobs, Retry, Scheduler, UnknownKind, Worker
from hypercube_queue import BackendError, InvalidArgument, QueueClosed
from hypercube_queue_memory import MemoryQueue, MemoryStore

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@dataclass
class Tick:
    """The job of these tests."""

    due: str = ""


class Time:
    """A clock that stands until it is turned."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Backend(MemoryQueue):
    """One backend with a clock of its own, that many processes use."""

    def __init__(self, time: Time) -> None:
        self.time = time
        super().__init__(MemoryStore(clock=lambda: (time() - START).total_seconds() + 1e6))
        self.broken = False

    def push(self, *messages: Any) -> None:
        if self.broken:
            raise BackendError("it is away")
        super().push(*messages)

    def run_all(self) -> list[str]:
        """Run and ack what is visible: the payloads, which say for when it is."""
        messages = self.pop("default", 1_000, wait=timedelta(0))
        self.ack(*messages)
        return [message.payload.decode()[8:-2] for message in messages]


def scheduler(
    backend: Backend, *, skew: timedelta = timedelta(0), every: timedelta = MINUTE, **options: Any
) -> Scheduler:
    """One of another process, whose clock goes wrong by `skew`."""
    jobs = Jobs(backend, clock=lambda: backend.time() + skew)
    jobs.declare("tick", Tick)
    jobs.schedule("tick", Every(every), lambda due: Tick(due.isoformat()))
    return Scheduler(jobs, **options)


@pytest.fixture
def backend() -> Backend:
    return Backend(Time())


def pass_time(backend: Backend, total: timedelta, *schedulers: Scheduler) -> list[str]:
    """Let time pass, a second at a time; schedulers look every five, and jobs run at once."""
    ran = []
    for number in range(total // SECOND):
        backend.time.now += SECOND
        for offset, each in enumerate(schedulers):
            if (number + offset) % 5 == 0:
                each.look()
        ran += backend.run_all()
    return ran


def minutes(count: int, first: int = 1) -> list[str]:
    return [(START + MINUTE * number).isoformat() for number in range(first, first + count)]


def test_a_due_time_is_dispatched_half_a_minute_to_a_minute_before(backend: Backend) -> None:
    """Under an id that says what it is, invisible until then."""
    backend.time.now = START - timedelta(seconds=61)
    one = scheduler(backend)
    one.look()
    assert backend.queues() == []
    backend.time.now = START - timedelta(seconds=60)
    one.look()
    assert backend.stats("default").delayed == 1
    backend.time.now = START - timedelta(microseconds=1)
    assert backend.pop("default", wait=timedelta(0)) == []
    backend.time.now = START
    (message,) = backend.pop("default", wait=timedelta(0))
    assert (message.id, message.job_name) == ("cron:tick:2026-11-30T12:00:00Z", "tick")


def test_a_due_time_that_is_near_is_left_to_others(backend: Backend) -> None:
    """It may have run already, and its id may be free again."""
    backend.time.now = START - timedelta(seconds=30)
    one = scheduler(backend)
    assert pass_time(backend, 2 * MINUTE, one) == minutes(1)


def test_two_schedulers_run_each_due_time_once(backend: Backend) -> None:
    """Five seconds apart, with jobs done in between."""
    first = scheduler(backend)
    first.look()
    pass_time(backend, 5 * SECOND)
    second = scheduler(backend)
    assert pass_time(backend, timedelta(minutes=10), first, second) == minutes(10)


@settings(deadline=None, max_examples=25)
@given(
    st.floats(-14.9, 14.9),
    st.floats(-14.9, 14.9),
    st.integers(0, 200),
    st.integers(5, 180),
)
def test_clocks_may_differ_by_less_than_half_a_minute(
    one: float, other: float, started: int, every: int
) -> None:
    """Whenever the second one starts, and however often a job is due."""
    backend = Backend(Time())
    interval = timedelta(seconds=every)
    first = scheduler(backend, skew=timedelta(seconds=one), every=interval)
    ran = pass_time(backend, started * SECOND, first)
    second = scheduler(backend, skew=timedelta(seconds=other), every=interval)
    ran += pass_time(backend, timedelta(minutes=3), first, second)
    assert max(Counter(ran).values(), default=1) == 1
    moments = sorted(datetime.fromisoformat(each) for each in ran)
    assert moments == [moments[0] + interval * number for number in range(len(moments))]


def test_clocks_that_differ_by_more_run_a_job_twice(backend: Backend) -> None:
    """That is what the limit is for; and a check that could not fail would show nothing."""
    fast = scheduler(backend, skew=timedelta(seconds=50))
    slow = scheduler(backend, skew=timedelta(seconds=-20))
    ran = pass_time(backend, timedelta(minutes=5), fast, slow)
    assert max(Counter(ran).values()) == 2


def test_a_restart_loses_nothing(backend: Backend) -> None:
    """What the first one has dispatched waits, and the second one goes on in time."""
    ran = pass_time(backend, timedelta(minutes=3), scheduler(backend))
    ran += pass_time(backend, timedelta(seconds=25))
    ran += pass_time(backend, timedelta(minutes=3), scheduler(backend))
    assert ran == minutes(6)


def test_what_comes_while_a_scheduler_stands_still_is_missed(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not made up for: a report of last night helps nobody at noon."""
    one = scheduler(backend)
    ran = pass_time(backend, timedelta(minutes=2), one)
    ran += pass_time(backend, timedelta(minutes=5))
    ran += pass_time(backend, timedelta(minutes=2), one)
    assert ran == minutes(2) + minutes(2, first=8)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith(
        "periodic job tick has missed 5 due times from 2026-11-30 12:03:00+00:00 on"
    )


def test_what_comes_between_two_schedulers_is_missed_and_a_start_says_so(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows what the first one did, so the second one says where it begins."""
    caplog.set_level(logging.INFO)
    ran = pass_time(backend, timedelta(minutes=2), scheduler(backend))
    ran += pass_time(backend, timedelta(minutes=5))
    caplog.clear()
    ran += pass_time(backend, timedelta(minutes=2), scheduler(backend))
    assert ran == minutes(2) + minutes(2, first=8)
    assert caplog.messages[0] == (
        "dispatching what is due after 2026-11-30 12:07:31+00:00; what was due before is left to "
        "the schedulers that ran then, and missed if none did"
    )


def test_an_outage_is_waited_out(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    """Half a minute of it costs nothing; it is logged once."""
    caplog.set_level(logging.INFO)
    one = scheduler(backend)
    ran = pass_time(backend, MINUTE, one)
    backend.broken = True
    ran += pass_time(backend, timedelta(seconds=20), one)
    backend.broken = False
    ran += pass_time(backend, timedelta(minutes=2), one)
    assert ran == minutes(3)
    outage = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.getMessage().startswith("dispatching periodic jobs")
    ]
    assert outage == [
        ("WARNING", "dispatching periodic jobs failed: it is away; retrying in 5 s"),
        ("INFO", "dispatching periodic jobs works again, after 0 s"),
    ]


def test_what_comes_in_a_long_outage_is_missed_and_said(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for all of it."""
    one = scheduler(backend, every=SECOND)
    pass_time(backend, MINUTE, one)
    backend.broken = True
    pass_time(backend, timedelta(hours=1))
    one.look()
    backend.broken = False
    assert "periodic job tick has missed at least 970 due times" in caplog.text


def test_a_clock_that_is_put_back_runs_nothing_twice(backend: Backend) -> None:
    """The scheduler knows what it has seen to."""
    one = scheduler(backend)
    skew = timedelta(0)
    one._jobs._clock = lambda: backend.time() + skew
    ran = pass_time(backend, timedelta(minutes=3), one)
    skew = timedelta(seconds=-100)
    ran += pass_time(backend, timedelta(minutes=4), one)
    assert max(Counter(ran).values()) == 1


def test_where_ids_are_not_unique_there_is_one_scheduler(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """Who says so gets it, and a restart still runs nothing twice."""

    class Forgetful(Backend):
        guarantees = replace(MemoryQueue().guarantees, unique_ids="none")

        def push(self, *messages: Any) -> None:
            for message in messages:
                message.id = f"{message.id}:{len(self.time.pushed)}"
                self.time.pushed.append(message.id)
            super().push(*messages)

    time = Time()
    time.pushed = []
    forgetful = Forgetful(time)
    with pytest.raises(InvalidArgument, match="single_scheduler=True"):
        scheduler(forgetful)
    ran = pass_time(forgetful, timedelta(minutes=3), scheduler(forgetful, single_scheduler=True))
    ran += pass_time(forgetful, timedelta(minutes=3), scheduler(forgetful, single_scheduler=True))
    assert max(Counter(ran).values()) == 1
    assert len(ran) >= 4
    assert "ids are not unique" not in caplog.text


# Declaring


def declared() -> Jobs:
    jobs = Jobs(MemoryQueue())
    jobs.declare("tick", Tick, queue="ticks")
    return jobs


def test_a_periodic_job_takes_the_options_of_a_dispatch(backend: Backend) -> None:
    """And is stored like any other."""
    jobs = Jobs(backend, clock=backend.time)
    jobs.declare("tick", Tick)
    jobs.declare("tock", Tick)
    jobs.schedule("x", Every(MINUTE), Tick("x"), kind="tock", queue="slow", retries=0)
    Scheduler(jobs).look()
    backend.time.now += MINUTE
    (message,) = backend.pop("slow", wait=timedelta(0))
    assert (message.job_name, message.payload) == ("tock", b'{"due":"x"}')
    assert b'"retries":0' in message.extra


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": "n" * 230}, "has 263 bytes"),
        ({"when": timedelta(1)}, "a job is due by Cron(...) or Every(...), not by timedelta"),
        ({"job": "tick"}, "a str does not say which kind it is"),
        ({"id": "mine"}, "id is no option of a periodic job"),
        ({"delay": SECOND}, "delay is no option of a periodic job"),
        ({"retries": -1}, "retries is -1"),
        ({"name": "taken"}, "a periodic job is named 'taken' already"),
    ],
)
def test_each_bad_periodic_job_is_refused(change: dict[str, Any], text: str) -> None:
    """At the declaration, and not when it is due."""
    jobs = declared()
    jobs.schedule("taken", Every(MINUTE), Tick())
    with pytest.raises((InvalidArgument, UnknownKind)) as caught:
        jobs.schedule(**{"name": "x", "when": Every(MINUTE), "job": Tick(), **change})
    assert text in str(caught.value)
    assert [each.name for each in jobs.periodic()] == ["taken"]


def test_a_job_that_cannot_be_made_is_logged_and_the_others_go_on(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each due time."""
    jobs = Jobs(backend, clock=backend.time)
    jobs.declare("tick", Tick)
    jobs.schedule("broken", Every(MINUTE), lambda due: 1 / 0)
    jobs.schedule("tick", Every(MINUTE), lambda due: Tick(due.isoformat()))
    assert pass_time(backend, timedelta(minutes=2), Scheduler(jobs)) == minutes(2)
    assert caplog.text.count("the periodic job broken cannot be made for") == 2


def test_there_must_be_something_to_schedule() -> None:
    """A scheduler without jobs is a module that was not imported."""
    with pytest.raises(InvalidArgument, match="there is no periodic job"):
        Scheduler(declared())
    with pytest.raises(InvalidArgument, match="a scheduler is for a Jobs object, not MemoryQueue"):
        Scheduler(MemoryQueue())


def test_a_scheduler_runs_until_it_is_stopped() -> None:
    """From any thread; a closed queue ends it too."""
    jobs = declared()
    jobs.schedule("tick", Cron("* * * * *"), Tick())
    running = Scheduler(jobs)
    thread = threading.Thread(target=running.run)
    thread.start()
    running.stop()
    thread.join(30)
    assert not thread.is_alive()

    jobs.queue.close()
    jobs.schedule("tock", Every(SECOND), Tick())
    with pytest.raises(QueueClosed):
        Scheduler(jobs).run()


def test_a_periodic_job_is_retried_like_any_other(backend: Backend) -> None:
    """Its id stays taken meanwhile, so it is not dispatched again."""
    jobs = Jobs(backend, clock=backend.time)
    numbers = []

    @jobs.handler("tick")
    def tick(job: Tick) -> None:
        numbers.append(job.due)
        if len(numbers) == 1:
            raise Retry(delay=timedelta(0))

    jobs.schedule("tick", Every(MINUTE), lambda due: Tick(due.isoformat()))
    Scheduler(jobs).look()
    backend.time.now += MINUTE
    Worker(jobs, stop_when_empty=True).run()
    assert numbers == minutes(1) * 2
