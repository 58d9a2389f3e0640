"""Delays before retries."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hypercube_jobs import Constant, Exponential
from hypercube_jobs._backoff import from_wire, to_wire

SECOND = timedelta(seconds=1)


def test_constant_is_the_same_after_every_failure() -> None:
    """Zero retries at once."""
    assert [Constant(SECOND)(n) for n in (1, 2, 50)] == [SECOND] * 3
    assert Constant(timedelta(0))(1) == timedelta(0)


def test_exponential_doubles_up_to_one_hour() -> None:
    """The first delay is the base; the cap can be set."""
    backoff = Exponential(SECOND)

    assert [backoff(n).total_seconds() for n in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert backoff(13) == timedelta(hours=1)
    assert backoff(10**9) == timedelta(hours=1)
    assert Exponential(SECOND, cap=3 * SECOND)(3) == 3 * SECOND
    assert Exponential(timedelta(hours=2))(1) == timedelta(hours=1)


@pytest.mark.parametrize("make", [Constant, Exponential])
def test_jitter_shortens_by_up_to_its_part(make: type[Constant]) -> None:
    """It never lengthens, so a cap holds, and two delays are hardly ever equal."""
    delays = {make(SECOND, jitter=0.25)(1) for _ in range(200)}

    assert len(delays) > 100
    assert 0.75 * SECOND <= min(delays) < 0.8 * SECOND
    assert 0.95 * SECOND < max(delays) <= SECOND


@pytest.mark.parametrize(
    "backoff",
    [
        Constant(timedelta(0)),
        Constant(timedelta(microseconds=1), jitter=1),
        Exponential(SECOND),
        Exponential(SECOND, cap=timedelta(days=3), jitter=0.5),
    ],
)
def test_a_backoff_travels_exactly(backoff: Constant | Exponential) -> None:
    """What comes out of the record is what was dispatched."""
    assert from_wire(to_wire(backoff)) == backoff


@pytest.mark.parametrize(
    "wire",
    [
        None,
        3,
        [],
        {},
        {"constant": "1"},
        {"constant": -1},
        {"constant": None},
        {"constant": 10**30},
        {"constant": 1, "jitter": 2},
        {"constant": 1, "jitter": float("nan")},
        {"exponential": 1},
        {"exponential": 1, "cap": -1},
        {"exponential": [], "cap": 1},
    ],
)
def test_a_backoff_that_makes_no_sense_is_none(wire: object) -> None:
    """The handler's own is used then."""
    assert from_wire(wire) is None
