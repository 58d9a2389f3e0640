"""The steps of the delay ladder."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from hypercube_queue.driver import to_microseconds
from hypercube_queue_rabbitmq._ladder import MAX_DELAY, STEPS, step_for

_DELAYS = st.integers(1, to_microseconds(MAX_DELAY)) | st.sampled_from(
    [step * 1000 + off for step in STEPS[:-1] for off in (-1001, -1000, -999, -1, 0, 1)]
)


@given(_DELAYS)
def test_a_step_is_never_shorter_than_the_delay_and_never_much_longer(delay_us: int) -> None:
    """By the broker's clock of milliseconds not shorter; 20 ms or 5 % longer at the most."""
    waits_us = step_for(delay_us) * 1000

    assert waits_us - 1000 >= delay_us
    assert waits_us - delay_us <= max(20_000, delay_us * 0.05)


def test_the_steps_are_few() -> None:
    """That is all that a vhost can get, whatever its delays."""
    assert len(STEPS) < 400
    assert sorted(set(STEPS)) == list(STEPS)


def test_the_broker_takes_every_step() -> None:
    """A time to live has less than 2**32 milliseconds; weeks are possible."""
    assert STEPS[-1] < 2**32
    assert timedelta(weeks=6) < MAX_DELAY


def test_the_steps_of_1_0_never_change() -> None:
    """Two releases with two ladders would fill a vhost with the steps of both."""
    assert STEPS[:4] == (20, 39, 58, 77)
    assert STEPS[20:24] == (400, 419, 438, 457)
    assert (STEPS[100], STEPS[200]) == (17_482, 2_292_465)
    assert (len(STEPS), STEPS[-1]) == (356, 4_233_600_001)
