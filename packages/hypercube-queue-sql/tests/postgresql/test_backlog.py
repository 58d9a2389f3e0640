"""Claims from a long backlog begin where the last one found something, and miss nothing."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from hypercube_queue import Message
from hypercube_queue_sql import SQLQueue

pytestmark = pytest.mark.server("postgres")

NOTHING = timedelta(0)


def _pop(queue: SQLQueue, count: int = 1) -> list[Message]:
    return queue.pop("work", count, wait=NOTHING)


def test_what_came_back_into_an_earlier_place_is_found_when_nothing_else_is(
    queue: SQLQueue,
) -> None:
    """A pop that does not find enough looks at everything, in one call."""
    for number in range(4):
        queue.push(Message("work", b"%d" % number))
    [first] = _pop(queue)
    [_second] = _pop(queue)
    queue.release(first)

    assert [each.payload for each in _pop(queue, 3)] == [b"0", b"2", b"3"]


def test_what_came_back_into_an_earlier_place_is_found_before_a_backlog_ends(
    queue: SQLQueue,
) -> None:
    """A second later at most, however long the backlog is."""
    queue.push(Message("work", b"early"))
    queue.push(*(Message("work", b"late") for _ in range(2_000)))
    [early] = _pop(queue)
    _pop(queue)
    queue.release(early)
    end = time.monotonic() + 20
    popped = 0
    while time.monotonic() < end:
        [delivery] = _pop(queue)
        popped += 1
        if delivery.payload == b"early":
            break
        time.sleep(0.01)

    assert delivery.payload == b"early"
    assert popped < 2_000


def test_a_backlog_leaves_no_traces_that_later_pops_pass_over(queue: SQLQueue) -> None:
    """The second claim begins where the first did, not where the queue once began."""
    queue.push(*(Message("work") for _ in range(10)))
    starts = []
    claim = queue._dialect._claim

    def noted(values, end):
        starts.append(values["start"])
        return claim(values, end)

    queue._dialect._claim = noted
    for _ in range(3):
        queue.ack(*_pop(queue, 2))
    beginning, *later = starts

    assert beginning == -(1 << 63)
    assert len(later) == 2
    assert min(later) > 0
