"""Durations at the wire, deadlines, and ids in the order of time."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hypercube_queue import MAX_DURATION
from hypercube_queue.driver import (
    Deadline,
    from_epoch_microseconds,
    from_microseconds,
    new_id,
    to_microseconds,
)


@given(st.timedeltas(timedelta(0), MAX_DURATION))
def test_a_duration_survives_the_wire_to_the_microsecond(duration: timedelta) -> None:
    """Integers, so that no float rounds it (OWN-3)."""
    assert from_microseconds(to_microseconds(duration)) == duration
    assert type(to_microseconds(duration)) is int


def test_a_moment_is_counted_from_1970_in_utc() -> None:
    """Exactly, where a float would have lost the last digits."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)

    assert from_epoch_microseconds(1_767_323_045_678_901) == moment
    assert from_epoch_microseconds(0).tzinfo is UTC


def test_a_deadline_passes_when_its_duration_is_over() -> None:
    """And what is left of it never is less than nothing."""
    now = 100.0
    deadline = Deadline(timedelta(seconds=2), lambda: now)
    assert (deadline.seconds_left(), deadline.passed) == (2.0, False)

    now = 101.5
    assert (deadline.seconds_left(), deadline.passed) == (0.5, False)

    now = 102.0
    assert (deadline.seconds_left(), deadline.passed) == (0.0, True)

    now = 200.0
    assert (deadline.seconds_left(), deadline.passed) == (0.0, True)


def test_a_deadline_of_nothing_has_passed() -> None:
    """A pop that does not wait looks once."""
    assert Deadline(timedelta(0)).passed


def test_an_id_is_a_uuid_of_version_7() -> None:
    """In its usual form, so that other tools read it."""
    message_id = new_id()
    parsed = uuid.UUID(message_id)

    assert str(parsed) == message_id
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122


def test_an_id_starts_with_the_millisecond_it_was_made_in() -> None:
    """So ids sort by time, which indexes like."""
    before = datetime.now(UTC)
    milliseconds = uuid.UUID(new_id()).int >> 80
    after = datetime.now(UTC)

    made = from_epoch_microseconds(milliseconds * 1_000)
    assert before - timedelta(milliseconds=1) < made <= after


def test_ids_do_not_collide() -> None:
    """A hundred thousand of a few milliseconds."""
    assert len({new_id() for _ in range(100_000)}) == 100_000
