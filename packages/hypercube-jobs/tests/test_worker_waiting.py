"""Whose turn it is when both sorts of handlers wait for the same slots."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercube_jobs.worker._waiting import PATIENCE, Waiting


@dataclass(eq=False)
class Delivery:
    """All of a delivery that a line needs."""

    is_async: bool
    popped_at: float = 0.0
    size: int = 10


def waiting(*some: Delivery) -> Waiting:
    lines = Waiting(PATIENCE)
    lines.extend(list(some))
    return lines


def taken(lines: Waiting) -> Iterator[Delivery]:
    while len(lines):
        yield lines.take_first()


SORTS = st.lists(st.booleans())


@given(SORTS)
def test_the_first_to_come_is_the_first_to_go(sorts: list[bool]) -> None:
    """Over both lines, whichever way they are taken."""
    some = [Delivery(sort) for sort in sorts]
    assert list(taken(waiting(*some))) == some
    assert waiting(*some).clear() == some


@given(SORTS, st.floats(0, 1))
def test_of_some_sort_it_is_always_the_turn(sorts: list[bool], now: float) -> None:
    """Else slots would stay free although deliveries wait."""
    lines = waiting(*map(Delivery, sorts))
    while len(lines):
        turns = [sort for sort in (True, False) if lines.may_begin(now, is_async=sort)]
        assert turns
        lines.begin(is_async=turns[-1])
    assert (lines.bytes, len(lines)) == (0, 0)


def test_a_sort_goes_on_only_while_the_other_has_not_waited_for_long() -> None:
    """It saves switches of threads, and nobody is passed by for more than a moment."""
    lines = waiting(Delivery(is_async=False), Delivery(is_async=True))
    assert lines.may_begin(0.01, is_async=True)
    assert not lines.may_begin(0.03, is_async=True)
    assert lines.may_begin(0.03, is_async=False)


def test_a_delivery_that_waits_can_be_taken_back() -> None:
    """And one that does not wait is not found."""
    first, second = Delivery(is_async=True, size=3), Delivery(is_async=True, size=4)
    lines = waiting(first, second)
    assert (lines.remove(second), lines.remove(second)) == (True, False)
    assert (lines.bytes, lines.count_of(is_async=True), lines.count_of(is_async=False)) == (3, 1, 0)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_neither_sort_keeps_the_other_from_its_turn(box: Any, concurrency: int) -> None:
    """However many jobs of the one there are."""
    ended: list[str] = []
    box.jobs.declare("sync", box.Note)
    box.jobs.declare("async", box.Note)

    @box.jobs.handler("sync")
    def handle(job: box.Note) -> None:
        time.sleep(0.001)
        ended.append("sync")

    @box.jobs.handler("async")
    async def handle_async(job: box.Note) -> None:
        ended.append("async")

    for number in range(300):
        box.jobs.dispatch_kind("async" if number % 100 == 50 else "sync", box.Note("x"))
    box.drain(concurrency=concurrency)

    places = [place for place, sort in enumerate(ended) if sort == "async"]
    assert (len(ended), len(places)) == (300, 3)
    assert places[0] < 200, "the first one is not left to the end"
