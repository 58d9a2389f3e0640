"""What queues are called at AWS."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercube_queue import InvalidArgument
from hypercube_queue_sqs._names import (
    Names,
    checked_prefix,
    checked_suffix,
    escaped,
    queue_name_pattern,
    unescaped,
)

NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1) | st.text(
    "_-ab0é.", min_size=1, max_size=12
)


@given(NAMES)
def test_a_name_outside_the_alphabet_is_mapped_and_found_again(name: str) -> None:
    """So no two names meet."""
    assert re.fullmatch("[A-Za-z0-9_-]+", escaped(name))
    assert unescaped(escaped(name)) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("send_invoices-2", "send_invoices-2"),
        ("orders.eu", "orders_-2e-_eu"),
        ("größe", "gr_-c3b6c39f-_e"),
        ("_-2e-_", "_-5f-_-2e-_"),
        ("-_-", "-_-5f-_-"),
    ],
)
def test_ordinary_names_stay_as_they_are(name: str, expected: str) -> None:
    """Only what AWS does not take is escaped."""
    assert escaped(name) == expected


@given(NAMES, st.sampled_from(["", "shop-", "x" * 24]), st.sampled_from(["-dead", "_dlq"]))
def test_every_name_fits(name: str, prefix: str, suffix: str) -> None:
    """AWS takes 80 characters; a longer name ends with a digest."""
    names = Names(prefix, suffix)
    assert re.fullmatch("[A-Za-z0-9_-]{1,80}", names.dead(name))
    assert names.dead(name) == names.work(name) + suffix
    assert names.work(name).startswith(prefix)


def test_long_names_stay_apart() -> None:
    """By their digests, and from every name that is written like one."""
    names = Names("", "-dead")
    long = [f"{'x' * 100}{n}" for n in range(3)]
    mapped = {names.work(each) for each in long}
    assert len(mapped) == 3
    assert not mapped & {names.work(each) for each in mapped}


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("orders", True),
        ("dead", True),
        ("orders-dead-2", True),
        ("orders-dead", False),
        ("orders.fifo", False),
        ("a\u2028b-dead", False),
    ],
)
def test_names_of_dead_letters_and_of_fifo_queues_are_refused(name: str, accepted: bool) -> None:
    """A queue cannot be taken for the dead letters of another."""
    assert bool(re.fullmatch(queue_name_pattern("-dead"), name)) is accepted


@pytest.mark.parametrize("bad", [None, "a b", "ä", "x" * 25, "a.b"])
def test_a_bad_prefix_is_refused(bad: object) -> None:
    """It takes AWS's alphabet and leaves room."""
    with pytest.raises(InvalidArgument, match="prefix"):
        checked_prefix(bad)


@pytest.mark.parametrize("bad", [None, "", "-", "dead", "-dead_", "-" + "x" * 18, "-dé"])
def test_a_bad_suffix_is_refused(bad: object) -> None:
    """It must not look like the end of another name."""
    with pytest.raises(InvalidArgument, match="dead_letter_suffix"):
        checked_suffix(bad)
