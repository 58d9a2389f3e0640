"""Delays that are longer than the longest of the backend: they pass in steps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hypercube_jobs import (
    Constant,
    Dispatch,
    Every,
    JobEvent,
    Jobs,
    Middleware,
    Retry,
    Scheduler,
    Worker,
    current_attempt,
    process,
)
from hypercube_jobs._record import Record
from hypercube_queue import InvalidArgument, Message, open_queue
from hypercube_queue_memory import MemoryQueue, MemoryStore

LONGEST = timedelta(minutes=15)
SIX_HOURS = timedelta(hours=6)
SECOND = timedelta(seconds=1)
NOTHING = timedelta(0)


@dataclass
class Note:
    """The job of these tests."""

    text: str = ""


class Shelf(MemoryQueue):
    """A backend whose delays end after a quarter of an hour, and whose time the test moves."""

    longest = LONGEST

    def __init__(self) -> None:
        self.passed = NOTHING
        super().__init__(MemoryStore(clock=lambda: self.passed / SECOND))

    @property
    def guarantees(self) -> Any:
        return replace(super().guarantees, max_delay=self.longest)

    def push(self, *messages: Message) -> None:
        self._check(messages)
        super().push(*messages)

    def retry(self, *messages: Message) -> None:
        self._check(messages)
        super().retry(*messages)

    def _check(self, messages: tuple[Message, ...]) -> None:
        assert all(message.delay <= self.longest for message in messages)


class Application(Middleware):
    """Jobs on a shelf, and what is heard of them."""

    def __init__(self, queue: Shelf | None = None) -> None:
        self.queue = queue or Shelf()
        #: How far the clock of this host is ahead of the backend's.
        self.ahead = NOTHING
        self.jobs = Jobs(self.queue, observers=[self], clock=self.now)
        self.heard: list[str] = []
        self.delays: list[timedelta] = []
        #: When the handler was called, and the number of the attempt.
        self.runs: list[tuple[timedelta, int]] = []
        self.jobs.declare("note", Note, retries=1)
        self.jobs.handler("note")(self.handle)

    def now(self) -> datetime:
        return datetime(2026, 7, 1, tzinfo=UTC) + self.queue.passed + self.ahead

    def handle(self, job: Note) -> None:
        attempt = current_attempt()
        assert attempt is not None
        self.runs.append((self.queue.passed, attempt.number))
        if job.text == "come back" and attempt.number == 1:
            raise Retry("later", delay=SIX_HOURS)
        if job.text == "fail":
            raise ValueError("no")

    def work(self, after: timedelta = NOTHING) -> None:
        self.queue.passed += after
        Worker(self.jobs, stop_when_empty=True).run()

    def work_until_idle(self, pause: timedelta = LONGEST) -> None:
        while self.jobs.pending():
            self.work(pause)

    @contextmanager
    def dispatching(self, dispatch: Dispatch) -> Iterator[None]:
        self.delays.append(dispatch.delay)
        yield

    def dispatched(self, event: JobEvent) -> None:
        self.heard.append("dispatched")

    def processed(self, event: JobEvent) -> None:
        self.heard.append(f"processed {event.attempt}")

    def failed(self, event: JobEvent) -> None:
        self.heard.append(f"failed {event.attempt}")

    def interrupted(self, event: JobEvent) -> None:
        self.heard.append("interrupted")

    def lost(self, event: JobEvent) -> None:
        self.heard.append("lost")


def test_a_dispatch_with_a_long_delay_is_not_early_and_costs_nothing() -> None:
    """The backend delivers it 24 times; that is one attempt, and nobody hears of the steps."""
    app = Application()
    app.jobs.dispatch(Note(), delay=SIX_HOURS)
    app.work_until_idle()

    assert app.runs == [(SIX_HOURS, 1)]
    assert app.heard == ["dispatched", "processed 1"]
    assert app.delays == [SIX_HOURS]


def test_a_delay_that_no_step_divides_ends_when_it_should() -> None:
    """The last step is what is left."""
    app = Application()
    app.jobs.dispatch(Note(), delay=LONGEST + SECOND)
    app.work(LONGEST)
    app.work(SECOND - timedelta(microseconds=1))
    assert app.runs == []

    app.work(timedelta(microseconds=1))
    assert app.runs == [(LONGEST + SECOND, 1)]


def test_a_retry_names_a_long_delay() -> None:
    """The second attempt has the number two, however often it was delivered."""
    app = Application()
    app.jobs.dispatch(Note("come back"))
    app.work()
    app.work_until_idle()

    assert app.runs == [(NOTHING, 1), (SIX_HOURS, 2)]
    assert app.heard == ["dispatched", "failed 1", "processed 2"]


def test_a_backoff_is_not_cut_and_a_dead_job_keeps_nothing_of_it() -> None:
    """Retried by hand it runs at once."""
    app = Application()
    app.jobs.dispatch(Note("fail"), backoff=Constant(SIX_HOURS))
    app.work()
    app.work_until_idle()

    assert app.runs == [(NOTHING, 1), (SIX_HOURS, 2)]
    assert app.heard == ["dispatched", "failed 1", "failed 2"]
    assert app.jobs.retry_all() == 1
    app.work()
    assert app.runs[2:] == [(SIX_HOURS, 1)]


def test_a_long_delay_is_followed_by_a_short_one() -> None:
    """What was left of the long one is forgotten once the job has run."""
    app = Application()
    app.jobs.dispatch(Note("fail"), delay=SIX_HOURS, backoff=Constant(SECOND), retries=2)
    app.queue.passed += 2 * SIX_HOURS
    app.work()
    app.work_until_idle(SECOND)

    begins = 2 * SIX_HOURS
    assert app.runs == [(begins, 1), (begins + SECOND, 2), (begins + 2 * SECOND, 3)]


def test_a_job_whose_steps_came_late_is_not_delayed_once_for_each() -> None:
    """Its due time is past, so the first delivery after that runs."""
    app = Application()
    app.jobs.dispatch(Note(), delay=SIX_HOURS)
    app.work(5 * LONGEST / 2)
    app.work(SIX_HOURS)

    assert app.runs == [(5 * LONGEST / 2 + SIX_HOURS, 1)]


@given(
    delay=st.timedeltas(LONGEST + SECOND, timedelta(hours=3)),
    waits=st.lists(st.timedeltas(NOTHING, timedelta(hours=1)), min_size=20, max_size=20),
    clocks=st.lists(st.integers(-15, 15), min_size=20, max_size=20),
)
@example(delay=LONGEST + SECOND, waits=[NOTHING] * 20, clocks=[-15, 15] * 10)
def test_no_lateness_and_no_clock_makes_a_job_early(
    delay: timedelta, waits: list[timedelta], clocks: list[int]
) -> None:
    """Clocks of hosts differ by up to half a minute; nothing else is taken on trust.

    And it is late by the wait of its last delivery and a minute at most.
    """
    record = Record({"v": 1})
    start = datetime(2026, 7, 1, tzinfo=UTC)
    now = start
    step = record.start_delay(delay, LONGEST, now + clocks[0] * SECOND)
    for wait, ahead in zip(waits, clocks[1:] + clocks[:1], strict=True):
        assert step <= LONGEST
        visible = now + step
        now = visible + wait
        step = record.next_step(LONGEST, lambda at=now + ahead * SECOND: at)
        if not step:
            break

    assert not step
    assert now >= start + delay
    assert visible <= start + delay + timedelta(minutes=1) + max(waits)


@pytest.mark.parametrize("fields", [{"left": -1}, {"left": "x"}, {"left": 1e3}, {"left": True}, {}])
def test_a_record_that_makes_no_sense_delays_nothing(fields: dict[str, object]) -> None:
    """As with all its fields."""
    record = Record.read(json.dumps({"v": 1, **fields}).encode())

    assert record.next_step(LONGEST, lambda: datetime.now(UTC)) == NOTHING


def test_the_essentials_of_a_record_have_the_delay() -> None:
    """A job must not come early because its record was too long."""
    record = Record({"v": 1})
    record.start_delay(SIX_HOURS, LONGEST, datetime(2026, 7, 1, tzinfo=UTC))

    assert Record.read(record.essentials()).delay_left == SIX_HOURS - LONGEST


def test_a_backend_without_delays_refuses_them() -> None:
    """Steps of nothing would never end; a backoff is at once."""

    class Hurried(Shelf):
        longest = NOTHING

    app = Application(Hurried())
    with pytest.raises(InvalidArgument, match="this backend takes at most 0:00:00"):
        app.jobs.dispatch(Note(), delay=SECOND)
    app.jobs.dispatch(Note("fail"))
    app.work()

    assert app.heard == ["dispatched", "failed 1", "failed 2"]


def test_messages_that_are_pushed_by_hand_wait_as_well() -> None:
    """`jobs.message` has the first step and the record of the others."""
    app = Application()
    message = app.jobs.message(Note(), delay=SIX_HOURS)
    app.queue.push(message)
    app.work_until_idle()

    assert message.delay == LONGEST
    assert app.runs == [(SIX_HOURS, 1)]


def test_a_loop_that_processes_deliveries_itself_takes_the_steps() -> None:
    """`process` runs nothing that is not due."""
    app = Application()
    app.jobs.dispatch(Note(), delay=2 * LONGEST)
    for _ in range(2):
        app.queue.passed += LONGEST
        for message in app.queue.pop("default", wait=NOTHING):
            process(app.jobs, message)

    assert app.runs == [(2 * LONGEST, 1)]
    assert app.heard == ["dispatched", "processed 1"]


def test_periodic_jobs_wait_in_steps_too() -> None:
    """They are dispatched half a minute ahead, whatever the backend's longest delay is."""

    class Short(Shelf):
        longest = timedelta(seconds=7)

    app = Application(Short())
    app.jobs.schedule("tick", Every(timedelta(minutes=1)), Note())
    Scheduler(app.jobs).look()
    for _ in range(61):
        app.work(SECOND)

    assert app.runs == [(timedelta(minutes=1), 1)]


def test_a_worker_that_dies_during_a_step_has_lost_nothing() -> None:
    """The step is taken again, and the job still has all its retries."""
    app = Application()
    app.jobs.dispatch(Note("fail"), delay=2 * LONGEST, backoff=Constant(NOTHING))
    app.queue.passed += LONGEST
    assert app.queue.pop("default", wait=NOTHING)
    app.work(timedelta(seconds=30))
    app.work_until_idle()

    assert len(app.runs) == 2
    assert app.runs[0][0] == 2 * LONGEST + timedelta(seconds=30)


def test_on_every_backend_steps_add_up(url_of_each: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real clocks: not early, and one attempt."""
    begun: list[tuple[float, int]] = []
    with open_queue(url_of_each) as queue:
        short = replace(queue.guarantees, max_delay=SECOND)
        monkeypatch.setattr(type(queue), "guarantees", property(lambda _self: short))
        jobs = Jobs(queue)

        @jobs.handler("note")
        def handle(job: Note) -> None:
            attempt = current_attempt()
            assert attempt is not None
            begun.append((time.monotonic(), attempt.number))
            worker.stop()

        worker = Worker(jobs)
        before = time.monotonic()
        jobs.dispatch(Note(), delay=3.5 * SECOND)
        worker.run()

    [(moment, number)] = begun
    assert number == 1
    assert moment - before >= 3.5
