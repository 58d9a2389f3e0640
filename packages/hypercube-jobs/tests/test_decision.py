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
    Isolation,
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


NONE, SUSPECTED = Isolation.NONE, Isolation.SUSPECTED
QUARANTINED, LOST = Isolation.QUARANTINED, Isolation.LOST


@pytest.mark.parametrize(
    ("deliveries", "fields", "expected"),
    [
        # Number, lost, used, isolation.
        (1, {}, (1, 0, 0, NONE)),
        (2, {"deliveries": 1, "failures": 1}, (2, 0, 1, NONE)),
        (4, {"deliveries": 3, "failures": 3}, (4, 0, 3, NONE)),
        (3, {"deliveries": 2, "free": 2}, (1, 0, 0, NONE)),
        (6, {"deliveries": 5, "free": 3, "failures": 2}, (3, 0, 2, NONE)),
        # However often it was held by a process that died: it had not been run alone.
        (2, {}, (2, 0, 0, SUSPECTED)),
        (9, {}, (9, 0, 0, SUSPECTED)),
        (5, {"deliveries": 3, "failures": 2}, (5, 0, 2, SUSPECTED)),
        (5, {"deliveries": 2, "failures": 1, "free": 1}, (4, 0, 1, SUSPECTED)),
        (3, {"deliveries": 2, "free": 1, "quarantined": True}, (2, 0, 0, QUARANTINED)),
        # One lone run, and what else died with it in its hands.
        (4, {"deliveries": 2, "free": 1, "quarantined": True}, (3, 1, 1, LOST)),
        (9, {"deliveries": 2, "free": 1, "quarantined": True}, (8, 1, 1, LOST)),
        (
            6,
            {"deliveries": 4, "free": 2, "quarantined": True, "lost": 1, "failures": 1},
            (4, 2, 3, LOST),
        ),
        # It failed by itself since.
        (6, {"deliveries": 5, "free": 2, "lost": 1, "failures": 1}, (4, 1, 2, NONE)),
        # Records that were moved to another backend, or made up.
        (1, {"free": 7}, (1, 0, 0, NONE)),
        (1, {"failures": 7}, (1, 0, 7, NONE)),
        (1, {"deliveries": 7, "quarantined": True}, (1, 0, 0, NONE)),
        (2, {"deliveries": 1 << 53}, (2, 0, 0, SUSPECTED)),
        (2, {"free": 1 << 53}, (1, 0, 0, SUSPECTED)),
        (4, {"deliveries": 3, "quarantined": "yes"}, (4, 0, 0, NONE)),
    ],
)
def test_where_a_job_stands(
    deliveries: int, fields: dict[str, int], expected: tuple[int, int, int, Isolation]
) -> None:
    """ATT-1 and ATT-3: free deliveries are not counted, and of losses only those of lone runs."""
    stands = standing(deliveries, record(**fields), exact=True)

    assert (stands.number, stands.lost, stands.used, stands.isolation) == expected


@pytest.mark.parametrize("deliveries", [4, 5, 50])
def test_without_an_exact_count_the_record_is_the_basis(deliveries: int) -> None:
    """ATT-4: the broker's number is good for a suspicion, and uses up nothing."""
    its = record(failures=2, free=1, deliveries=3)
    isolation = SUSPECTED if deliveries > 4 else NONE

    assert standing(deliveries, its, exact=False) == Standing(3, 0, 2, isolation)


@pytest.mark.parametrize(
    ("deliveries", "fields", "exhausted"),
    [
        (9, {"retries": 0}, False),
        (3, {"retries": 0, "deliveries": 2, "quarantined": True}, False),
        (4, {"retries": 0, "deliveries": 2, "quarantined": True}, True),
        (6, {"retries": 1, "deliveries": 4, "quarantined": True}, False),
        (6, {"retries": 1, "deliveries": 4, "quarantined": True, "lost": 1}, True),
        (9, {"retries": 3, "deliveries": 8, "failures": 8}, False),
        (9, {"retries": 3, "deliveries": 7, "failures": 3, "quarantined": True}, True),
    ],
)
def test_lone_runs_use_up_the_retries(
    deliveries: int, fields: dict[str, int], exhausted: bool
) -> None:
    """ATT-3. Recorded failures alone never exhaust: whoever recorded the last one decided."""
    its = record(**fields)

    for exact in (True, False):
        stands = standing(deliveries, its, exact=exact)
        assert is_exhausted(stands, its, POLICY) is exhausted


@given(
    retries=st.integers(0, 20),
    crashes=st.lists(st.booleans(), max_size=60),
    exact=st.booleans(),
)
def test_every_job_comes_to_an_end(retries: int, crashes: list[bool], exact: bool) -> None:
    """Failures and lone crashes use up its retries; each crash among others is before such one."""
    its = record(retries=retries)
    paid = among_others = deliveries = 0
    for crash in [*crashes, *[True] * 60]:
        deliveries += 1
        stands = standing(deliveries, its, exact=exact)
        if is_exhausted(stands, its, POLICY):
            break
        if stands.isolation.is_unrecorded:
            its.note_quarantine(stands.lost)
            its.note_deliveries(deliveries)
            deliveries += 1
            stands = standing(deliveries, its, exact=exact)
            assert stands.isolation is QUARANTINED
        if stands.isolation is QUARANTINED or not crash:
            paid += 1
        else:
            among_others += 1
        if not crash:
            if decide(FAILED, stands, its, POLICY) == DeadLetter():
                break
            its = record(retries=retries, failures=its.failures + 1, lost=its.lost)
            its.note_deliveries(deliveries)

    assert paid == retries + 1
    assert among_others <= paid


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
