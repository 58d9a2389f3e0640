"""The figures of failovers, and where they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.backends.traffic import Traffic, with_table

_ROOT = Path(__file__).resolve().parents[2]


def test_a_standstill_is_the_longest_time_without_a_push() -> None:
    """From what was done on, and not before it."""
    traffic = Traffic("", pushed={"0": 1.0, "1": 11.0, "2": 12.0, "3": 15.5, "4": 16.0})
    assert traffic.standstill(11.5) == 3.5
    assert traffic.standstill(12.5) == 3.0


def test_what_was_confirmed_and_not_received_is_lost() -> None:
    """What has an unknown outcome may be missing, and may be there."""
    traffic = Traffic(
        "", pushed={"0": 1.0, "1": 2.0}, doubtful={"2", "3"}, received={"0": 1, "3": 1}
    )
    assert traffic.lost == 1


@pytest.mark.parametrize("name", ["redis-failovers", "rabbitmq-failovers"])
def test_the_document_has_a_place_for_the_table(name: str) -> None:
    """Only what stands there is replaced."""
    text = (_ROOT / "docs/backends.md").read_text()
    other = with_table(text, "| other |", name)
    assert with_table(other, "| table |", name) == with_table(text, "| table |", name)
    with pytest.raises(ValueError, match="markers"):
        with_table("text", "| table |", name)
