"""The policy: what an attempt's end means for the message."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercube_jobs import Exponential, Policy
from hypercube_jobs._record import Record
from hypercube_jobs.worker._decision import (
    Ack,
    DeadLetter,
    Outcome,
    Retry,
    Standing,
    decide,
    is_exhausted,
    standing,
)

SECOND = timedelta(seconds=1)
POLICY = Policy(retries=3, backoff=Exponential(SECOND))
DONE, FAILED = Outcome.DONE, Outcome.FAILED
PERMANENT, INTERRUPTED = Outcome.PERMANENT, Outcome.INTERRUPTED


def record(**fields: object) -> Record:
    return Record.read(json.dumps({"v": 1, **fields}).encode())


@pytest.mark.parametrize(
    ("outcome", "failures", "fields", "decision"),
    [
        (DONE, 0, {}, Ack()),
        (DONE, 9, {}, Ack()),
        (FAILED, 0, {}, Retry(SECOND)),
        (FAILED, 1, {}, Retry(2 * SECOND)),
        (FAILED, 2, {}, Retry(4 * SECOND)),
        (FAILED, 3, {}, DeadLetter()),
        (FAILED, 99, {}, DeadLetter()),
        (FAILED, 0, {"retries": 0}, DeadLetter()),
        (FAILED, 3, {"retries": 9}, Retry(8 * SECOND)),
        (FAILED, 0, {"backoff": {"constant": 5_000_000}}, Retry(5 * SECOND)),
        (FAILED, 0, {"backoff": "nonsense", "retries": "many"}, Retry(SECOND)),
        (FAILED, 0, {"backoff": {"constant": 3_600_000_000}}, Retry(timedelta(hours=1))),
        (PERMANENT, 0, {}, DeadLetter()),
        (INTERRUPTED, 0, {}, Retry(timedelta(0), free=True)),
        (INTERRUPTED, 3, {"interrupted": 2}, Retry(timedelta(0), free=True)),
        (INTERRUPTED, 0, {"interrupted": 3}, Retry(SECOND)),
        (INTERRUPTED, 1, {"interrupted": 7}, Retry(2 * SECOND)),
        (INTERRUPTED, 3, {"interrupted": 3}, DeadLetter()),
    ],
)
def test_what_becomes_of_a_job(
    outcome: Outcome, failures: int, fields: dict[str, object], decision: object
) -> None:
    """Failures before this one, what the record says, and what is done then."""
    before = Standing(number=failures + 1, lost=0, used=failures)

    assert decide(outcome, before, record(**fields), POLICY) == decision


@pytest.mark.parametrize(
    ("deliveries", "fields", "expected"),
    [
        # Number, lost, used.
        (1, {}, (1, 0, 0)),
        (2, {"failures": 1}, (2, 0, 1)),
        (4, {"failures": 3}, (4, 0, 3)),
        (3, {"free": 2}, (1, 0, 0)),
        (6, {"free": 3, "failures": 2}, (3, 0, 2)),
        (2, {}, (2, 1, 0)),
        (3, {}, (3, 2, 1)),
        (6, {}, (6, 5, 4)),
        (5, {"failures": 2}, (5, 2, 3)),
        (5, {"failures": 2, "free": 1}, (4, 1, 2)),
        (1, {"free": 7}, (1, 0, 0)),
        (1, {"failures": 7}, (1, 0, 7)),
    ],
)
def test_where_a_job_stands(
    deliveries: int, fields: dict[str, int], expected: tuple[int, int, int]
) -> None:
    """ATT-1 and ATT-3: free deliveries are not counted, the first loss costs nothing."""
    stands = standing(deliveries, record(**fields), exact=True)

    assert (stands.number, stands.lost, stands.used) == expected


@pytest.mark.parametrize("deliveries", [1, 2, 50])
def test_without_an_exact_count_the_record_is_the_basis(deliveries: int) -> None:
    """ATT-4: losses go unseen, since the broker's number is not to be trusted."""
    stands = standing(deliveries, record(failures=2, free=1), exact=False)

    assert stands == Standing(number=3, lost=0, used=2)


@pytest.mark.parametrize(
    ("deliveries", "fields", "exhausted"),
    [
        (5, {}, False),
        (6, {}, True),
        (2, {"retries": 0}, False),
        (3, {"retries": 0}, True),
        (9, {"failures": 8, "retries": 3}, False),
        (8, {"failures": 3, "retries": 3}, True),
    ],
)
def test_lone_runs_use_up_the_retries(
    deliveries: int, fields: dict[str, int], exhausted: bool
) -> None:
    """ATT-3: with three retries a job that kills its process runs five times, four of them alone.

    Recorded failures alone never exhaust: whoever recorded the last one decided about it.
    """
    its = record(**fields)

    assert is_exhausted(standing(deliveries, its, exact=True), its, POLICY) is exhausted


@given(
    retries=st.integers(0, 20),
    crashes=st.lists(st.booleans(), max_size=60),
)
def test_every_job_comes_to_an_end(retries: int, crashes: list[bool]) -> None:
    """Whatever mix of failures and crashes: at most one run more than retries allow."""
    its = record(retries=retries)
    runs = failures = 0
    for deliveries, crash in enumerate([*crashes, *[True] * 60], 1):
        its = record(retries=retries, failures=failures)
        stands = standing(deliveries, its, exact=True)
        if is_exhausted(stands, its, POLICY):
            break
        runs += 1
        if not crash:
            if decide(FAILED, stands, its, POLICY) == DeadLetter():
                break
            failures += 1

    assert retries + 1 <= runs <= retries + 2


@pytest.mark.parametrize(
    "backoff",
    [lambda n: 1 / 0, lambda n: "soon", lambda n: timedelta(seconds=-1), lambda: timedelta(0)],
)
def test_a_broken_backoff_does_not_keep_a_job_from_its_retry(
    backoff: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The default is used, and the log says why."""
    policy = Policy(backoff=backoff)

    decision = decide(FAILED, Standing(1, 0, 0), record(), policy)
    assert 9 * SECOND <= decision.delay <= 10 * SECOND
    assert "the default is used" in caplog.text


def test_a_backoff_gets_the_number_of_the_failure() -> None:
    """From one."""
    policy = Policy(retries=9, backoff=lambda n: n * SECOND)

    delays = [decide(FAILED, Standing(n, 0, n - 1), record(), policy).delay for n in (1, 2, 3)]
    assert delays == [SECOND, 2 * SECOND, 3 * SECOND]
