"""What makes a driver object a context manager."""

from __future__ import annotations

import pytest

from hypercube_queue.driver import Closing


class Recorded(Closing):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_block_has_the_object_itself_and_closes_it_at_its_end() -> None:
    """Not before."""
    made = Recorded()
    with made as given:
        assert given is made
        assert made.closed == 0
    assert made.closed == 1


def test_an_error_closes_the_object_too_and_passes_through() -> None:
    """Nothing is swallowed."""
    made = Recorded()
    with pytest.raises(LookupError, match="mine"), made:
        raise LookupError("mine")
    assert made.closed == 1
