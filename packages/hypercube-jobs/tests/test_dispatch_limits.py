"""What jobs may be dispatched with at most."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import (
    Constant,
    DispatchLimits,
    Exponential,
    Jobs,
    Worker,
    current_attempt,
    process,
)
from hypercube_jobs._attempt import running
from hypercube_jobs._policy import checked_policy
from hypercube_queue import InvalidArgument, Message
from hypercube_queue_memory import MemoryQueue

AT_ONCE = timedelta(0)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
#: The most that a record can ask for.
GREEDY = {
    "v": 1,
    "retries": 1_000_000,
    "timeout": 10**14,
    "backoff": {"constant": 10**14},
}


@dataclass
class Note:
    """The job of these tests."""

    text: str


def foreign(kind: str = "note", **fields: object) -> Message:
    """What somebody else has pushed, with a record of his own."""
    extra = json.dumps(GREEDY | fields).encode()
    return Message("default", b'{"text":"x"}', kind, extra=extra)


@pytest.mark.parametrize(
    ("options", "within"),
    [
        ({"retries": 1_001}, {"retries": 1_000}),
        ({"timeout": DAY + SECOND}, {"timeout": DAY}),
        ({"backoff": Constant(8 * DAY)}, {"backoff": Constant(7 * DAY)}),
        ({"backoff": Exponential(SECOND, cap=8 * DAY)}, {"backoff": Exponential(SECOND)}),
    ],
)
def test_a_dispatch_beyond_the_limits_is_refused(
    box: Any, options: dict[str, Any], within: dict[str, Any]
) -> None:
    """Before anything is stored; 1,000 retries, a day and seven days if its kind says nothing."""
    box.jobs.declare("note", Note)
    (name,) = options
    with pytest.raises(
        InvalidArgument, match=f"^{name} is .* limits=DispatchLimits\\({name}=...\\)"
    ):
        box.jobs.dispatch(Note("x"), **options)
    assert box.counts() == (0, 0, 0, 0)

    box.jobs.dispatch(Note("x"), **within)
    assert box.counts() == (1, 0, 0, 0)


def test_a_kind_may_have_limits_of_its_own(box: Any) -> None:
    """Wider or narrower ones."""
    wide = DispatchLimits(retries=5_000, timeout=2 * DAY, backoff=30 * DAY)
    box.jobs.declare("wide", Note, limits=wide)
    box.jobs.declare(
        "narrow", Note, limits=DispatchLimits(retries=1, timeout=SECOND, backoff=SECOND)
    )
    options = {"retries": 5_000, "timeout": 2 * DAY, "backoff": Constant(30 * DAY)}

    box.jobs.dispatch_kind("wide", Note("x"), **options)
    for name, value in options.items():
        with pytest.raises(InvalidArgument, match=f"{name} is"):
            box.jobs.dispatch_kind("narrow", Note("x"), **{name: value})


def test_what_a_kind_says_of_itself_is_within_its_limits() -> None:
    """Its options, where it has no limits; and where it has, the defaults keep to them."""
    guarantees = MemoryQueue().guarantees
    patient = checked_policy(guarantees, retries=9_999, timeout=9 * DAY, backoff=Constant(99 * DAY))
    assert (patient.max_retries(), patient.max_timeout()) == (9_999, 9 * DAY)
    assert patient.max_backoff() == 99 * DAY

    limits = DispatchLimits(retries=1, timeout=SECOND, backoff=SECOND)
    strict = checked_policy(guarantees, limits=limits)
    assert (strict.retries, strict.timeout) == (1, SECOND)
    assert strict.backoff(9) <= SECOND
    with pytest.raises(InvalidArgument, match="retries is 2, but the limit of this kind is 1"):
        checked_policy(guarantees, retries=2, limits=limits)


@pytest.mark.parametrize(
    "bad", [{"retries": -1}, {"retries": "many"}, {"timeout": AT_ONCE}, {"backoff": -SECOND}]
)
def test_limits_are_checked(bad: dict[str, Any]) -> None:
    """As the options are that they are for."""
    with pytest.raises(InvalidArgument):
        DispatchLimits(**bad)


def test_other_things_are_no_limits(box: Any) -> None:
    """Neither of a kind nor of a worker."""
    with pytest.raises(InvalidArgument, match="limits is a DispatchLimits object, not int"):
        box.jobs.declare("note", Note, limits=3)
    with pytest.raises(InvalidArgument, match="limits is a DispatchLimits object, not dict"):
        Worker(box.jobs, limits={})


@pytest.mark.parametrize(
    ("of_kind", "of_worker"),
    [
        (DispatchLimits(retries=2, timeout=2 * SECOND, backoff=SECOND), DispatchLimits()),
        (DispatchLimits(), DispatchLimits(retries=2, timeout=2 * SECOND, backoff=SECOND)),
        (
            DispatchLimits(retries=9, timeout=2 * SECOND, backoff=9 * SECOND),
            DispatchLimits(retries=2, timeout=9 * SECOND, backoff=SECOND),
        ),
    ],
)
def test_a_record_that_asks_for_more_gets_as_much_as_it_may(
    box: Any, monkeypatch: pytest.MonkeyPatch, of_kind: DispatchLimits, of_worker: DispatchLimits
) -> None:
    """Whoever may publish wrote it: the lesser limit of the two counts."""
    now = 0.0
    monkeypatch.setattr(box.queue._store, "_clock", lambda: now)
    seen = []

    @box.jobs.handler("note", limits=of_kind)
    def handle(job: Note) -> None:

        seen.append((current_attempt().max_retries, running.get().timeout))
        raise ValueError("no")

    box.queue.push(foreign())
    for _ in range(3):
        box.drain(limits=of_worker)
        now += 1.0

    assert seen == [(2, 2.0)] * 3
    assert box.counts() == (0, 0, 0, 1)


def test_without_limits_the_defaults_hold(box: Any) -> None:
    """Also for kinds that nobody declares here."""
    seen = []

    @box.jobs.handler("note")
    def handle(job: Note) -> None:

        seen.append((current_attempt().max_retries, running.get().timeout))
        raise ValueError("no")

    box.queue.push(foreign(), foreign("nobodys", retries=5, backoff=None))
    box.drain()

    assert seen == [(1_000, DAY.total_seconds())]
    assert box.counts() == (0, 2, 0, 0)
    assert {event.max_retries for event in box.recorder.of("failed")} == {1_000, 5}


def test_process_keeps_to_the_limits_of_kinds(box: Any) -> None:
    """As a worker does."""
    jobs: Jobs = box.jobs
    jobs.declare("note", Note, limits=DispatchLimits(retries=0))

    @jobs.handler("note")
    def handle(job: Note) -> None:
        raise ValueError("no")

    box.queue.push(foreign())
    process(jobs, *box.queue.pop("default"))

    assert box.counts() == (0, 0, 0, 1)
