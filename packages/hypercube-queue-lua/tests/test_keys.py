"""Where things are stored, as operators and access rules see it."""

from __future__ import annotations

import re

import pytest

from hypercube_queue_lua import slot_of
from hypercube_queue_lua._keys import queue_keys, registry_key


@pytest.mark.parametrize("name", ["q", "a queue", "{}", "}{", "{tag}", ":", "é", "x" * 255])
def test_all_keys_of_a_queue_are_in_one_slot(name: str) -> None:
    """Whatever the name holds, braces included."""
    keys = queue_keys("app", name)
    slots = {slot_of(key) for key in (*keys.all, keys.wake, keys.farewell + b"any")}
    assert len(slots) == 1
    assert all(re.fullmatch(rb"app:\{[0-9a-f]{32}\}:[a-z]+", key) for key in keys.all)


def test_queues_are_spread_over_slots() -> None:
    """A thousand queues are in nearly a thousand slots."""
    slots = {slot_of(queue_keys("app", f"queue {number}").wake) for number in range(1000)}
    assert len(slots) > 900


def test_the_layout_stays_what_servers_hold() -> None:
    """A change here loses every message that is stored: it takes a new layout."""
    assert queue_keys("hypercube", "billing").all == tuple(
        b"hypercube:{82885a0c29db7bad98201c40b8006d8c}:" + name
        for name in (
            b"meta",
            b"bodies",
            b"state",
            b"ready",
            b"returned",
            b"delayed",
            b"leased",
            b"dead",
            b"wake",
        )
    )
    assert registry_key("hypercube") == b"hypercube:queues"


@pytest.mark.parametrize(
    ("key", "slot"), [(b"foo", 12182), (b"123456789", 12739), (b"a{foo}b", 12182)]
)
def test_slots_are_those_of_a_cluster(key: bytes, slot: int) -> None:
    """As the servers' documentation computes them."""
    assert slot_of(key) == slot
