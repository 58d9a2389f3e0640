"""What both drivers take from a URL."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import QueueURL
from hypercube_queue_lua import Options, addresses


def test_options_come_from_the_url_and_default_to_those_of_all_drivers() -> None:
    """Durations are written in seconds."""
    given = "prefix=a:b/c&poll_timeout=0.5&visibility_timeout=60&operation_timeout=3"
    assert Options.from_url(QueueURL(f"redis://host/0?{given}")) == Options(
        prefix="a:b/c",
        poll_timeout=timedelta(seconds=0.5),
        visibility_timeout=timedelta(minutes=1),
        operation_timeout=timedelta(seconds=3),
    )
    assert Options.from_url(QueueURL("redis://host/0")) == Options()


@pytest.mark.parametrize(
    ("option", "bad"),
    [
        ("prefix", ""),
        ("prefix", "a{b}"),
        ("poll_timeout", timedelta(seconds=-1)),
        ("visibility_timeout", timedelta(0)),
        ("operation_timeout", timedelta(0)),
        ("operation_timeout", 3),
    ],
)
def test_a_bad_option_is_refused_by_name(option: str, bad: object) -> None:
    """When the options are made."""
    with pytest.raises(InvalidArgument, match=option):
        Options(**{option: bad})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", [("localhost", 6379)]),
        ("redis://one:1", [("one", 1)]),
        ("redis://one?also=two,three:3", [("one", 6379), ("two", 6379), ("three", 3)]),
        ("redis://[::1]:1?also=[::2]:2,[::3]", [("::1", 1), ("::2", 2), ("::3", 6379)]),
    ],
)
def test_further_addresses_are_in_an_option(url: str, expected: list[tuple[str, int]]) -> None:
    """Behind the one in the usual place."""
    assert addresses(QueueURL(url), 6379) == expected


@pytest.mark.parametrize("bad", ["one:port", "user:pw@host", "one:1:2:", "a/b"])
def test_what_is_no_address_is_refused(bad: str) -> None:
    """InvalidArgument that names the option."""
    with pytest.raises(InvalidArgument, match="also"):
        addresses(QueueURL(f"redis://one?also={bad}"), 6379)
