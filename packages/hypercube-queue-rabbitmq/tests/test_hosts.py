"""Which of several hosts is connected to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pika import ConnectionParameters
from pika.exceptions import AMQPConnectionError

from hypercube_queue_rabbitmq._connection import Connection


class _Hosts(Connection):
    """A connection to three hosts that are not there."""

    def __init__(self) -> None:
        super().__init__([ConnectionParameters(each) for each in "abc"], lambda: None)
        self.down: set[str] = set()
        self.tried: list[str] = []

    async def _connect_to(self, place: Any) -> None:
        self.tried.append(place.host)
        if place.host in self.down:
            raise AMQPConnectionError("refused")

    def connect(self) -> str:
        """Connect once; the hosts that were tried, in their order."""
        self.tried.clear()
        asyncio.run(self.open())
        return "".join(self.tried)


def test_the_first_host_is_chosen_at_random() -> None:
    """So that many clients spread over the nodes."""
    assert {_Hosts().connect() for _ in range(200)} == {"a", "b", "c"}


def test_a_connection_that_ended_is_followed_by_one_to_the_next_host() -> None:
    """Whatever it ended by; a node that was cut off accepts connections for as long as it is."""
    hosts = _Hosts()
    tried = "".join(hosts.connect() for _ in range(4))
    assert tried in "abcabca"
    assert len(tried) == 4


def test_hosts_that_refuse_are_passed_over_once() -> None:
    """The next attempt begins behind the one that answered."""
    hosts = _Hosts()
    first = hosts.connect()
    second, third = ("abcab"["abc".index(first) + step] for step in (1, 2))
    hosts.down = {second}
    assert hosts.connect() == second + third
    assert hosts.connect() == first


def test_the_error_is_that_of_the_last_host_when_none_answers() -> None:
    """Each was tried, and is tried again by the next call."""
    hosts = _Hosts()
    hosts.down = {"a", "b", "c"}
    for _ in range(2):
        with pytest.raises(AMQPConnectionError):
            hosts.connect()
        assert sorted(hosts.tried) == ["a", "b", "c"]
