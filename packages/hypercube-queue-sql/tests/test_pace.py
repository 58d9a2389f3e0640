"""How often a waiting pop looks."""

from __future__ import annotations

import time

import pytest

from hypercube_queue_sql import _pace
from hypercube_queue_sql._pace import Pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the monotonic clock says."""
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_looks_become_rarer_while_nothing_comes(clock: list[float]) -> None:
    pace = Pace()
    pauses = []
    while clock[0] < 1_005:
        pauses.append(pace.seconds("work", 1, 0.5))
        clock[0] += pauses[-1]

    assert pauses == sorted(pauses)
    assert pauses[0] == 0.05
    assert pauses[-1] == 0.5
    assert len(pauses) < 25


def test_what_comes_waits_for_a_quarter_of_the_gap_before_it(clock: list[float]) -> None:
    pace = Pace()
    clock[0] += 100
    pace.came("work")
    for _ in range(10):
        clock[0] += 0.1
        assert pace.seconds("work", 1, 30) == pytest.approx(max(0.05, (clock[0] - 1_100) / 4))


def test_queues_have_a_pace_each(clock: list[float]) -> None:
    pace = Pace()
    clock[0] += 100
    pace.came("busy")

    assert pace.seconds("busy", 1, 0.5) == 0.05
    assert pace.seconds("idle", 1, 0.5) == 0.5


def test_pops_of_one_process_look_in_turns(clock: list[float]) -> None:
    pace = Pace()
    assert pace.seconds("work", 4, 0.5) == 0.2
    assert pace.seconds("work", 100, 0.5) == 0.5


def test_never_longer_than_the_longest(clock: list[float]) -> None:
    pace = Pace()
    assert pace.seconds("work", 1, 0.01) == 0.01
    clock[0] += 3_600
    assert pace.seconds("work", 1, 0.5) == 0.5


def test_names_without_end_take_no_memory_without_end(clock: list[float]) -> None:
    pace = Pace()
    clock[0] += 100
    for number in range(3 * _pace._MOST):
        pace.came(str(number))

    assert len(pace._came_at) <= _pace._MOST
    assert pace.seconds(str(number), 1, 0.5) == 0.05
