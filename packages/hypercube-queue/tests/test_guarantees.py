"""What a driver promises, as data."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta

import pytest

from hypercube_queue import MAX_DURATION, Guarantees


def test_the_defaults_are_the_whole_promise() -> None:
    """A driver writes down only where its backend differs, and whether it is durable."""
    guarantees = Guarantees(durable=True)
    values = {field.name: getattr(guarantees, field.name) for field in fields(guarantees)}
    lateness = values.pop("delay_lateness")

    assert values == {
        "durable": True,
        "shared": True,
        "failover": "lossless",
        "retention": None,
        "leases": True,
        "max_hold": None,
        "exclusive_delivery": True,
        "stale_settlement": "strict",
        "ack_final": True,
        "ack_confirmed": True,
        "exact_attempts": True,
        "unique_ids": "backend",
        "ordering": "best_effort",
        "queue_name_pattern": None,
        "ordered_redrive": True,
        "full_batches": True,
        "bounded_pops": True,
        "empty_is_certain": True,
        "max_delay": MAX_DURATION,
        "max_visibility": MAX_DURATION,
        "visibility_resolution": timedelta(microseconds=1),
        "max_message_bytes": None,
    }
    assert lateness(timedelta(hours=5)) == timedelta(seconds=1)


def test_nobody_can_change_a_promise() -> None:
    """Frozen, with no room for anything else."""
    with pytest.raises(FrozenInstanceError):
        Guarantees(durable=True).durable = False


def test_a_promise_is_given_by_name() -> None:
    """Twenty unnamed values could not be read."""
    with pytest.raises(TypeError):
        Guarantees(True)


def test_durability_has_no_default() -> None:
    """Every driver must say it."""
    with pytest.raises(TypeError, match="durable"):
        Guarantees()


@pytest.mark.parametrize(
    ("name", "accepted"), [("ab-1", True), ("ab_1", False), ("ab\n", False), ("xab", False)]
)
def test_a_pattern_must_match_the_whole_name(name: str, accepted: bool) -> None:
    """A part is not enough, and a line break at the end is not overlooked."""
    narrow = Guarantees(durable=True, queue_name_pattern="[a-b0-9-]+")

    assert narrow.accepts_queue_name(name) is accepted
    assert Guarantees(durable=True).accepts_queue_name(name) is True
