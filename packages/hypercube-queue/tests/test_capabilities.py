"""Asking a queue what it can do."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta

import pytest

import hypercube_queue
from hypercube_queue import (
    CAPABILITIES,
    AsyncQueue,
    AsyncRedriver,
    DeadLetter,
    Message,
    Queue,
    QueueStats,
    Redriver,
    StatsProvider,
    TransactionalPusher,
    VisibilityExtender,
    capability,
    open_queue,
)


class _Counts:
    def queues(self) -> list[str]:
        return []

    def stats(self, queue_name: str) -> QueueStats:
        return QueueStats(queue_name, 0, 0, 0, 0)


def test_a_queue_that_has_a_capability_is_given_back() -> None:
    """The very object, so that its methods can be called."""
    queue = _Counts()

    assert capability(queue, StatsProvider) is queue
    assert capability(queue, Redriver) is None


def test_half_a_capability_is_none() -> None:
    """All methods or nothing."""

    class Half:
        def queues(self) -> list[str]:
            return []

    assert capability(Half(), StatsProvider) is None


def test_a_property_belongs_to_a_capability_like_a_method() -> None:
    """Half of it is none, and asking does not read it."""

    class Half:
        def extend_visibility(self, extension: timedelta, *messages: Message) -> None: ...

    class Whole(Half):
        @property
        def visibility_timeout(self) -> timedelta:
            raise AssertionError("read")

    whole = Whole()

    assert capability(Half(), VisibilityExtender) is None
    assert capability(whole, VisibilityExtender) is whole


def test_an_attribute_of_the_name_is_no_capability() -> None:
    """It must be something to call."""

    class Misleading:
        redrive = 5

    assert capability(Misleading(), Redriver) is None


def test_a_synchronous_and_an_asynchronous_queue_are_not_mistaken_for_each_other() -> None:
    """A bare isinstance compares names only, and would."""

    async def ask() -> None:
        sync = open_queue("memory://")
        async with AsyncQueue(sync) as queue:
            assert isinstance(queue, Redriver)
            assert capability(queue, Redriver) is None
            assert capability(queue, AsyncRedriver) is queue
            assert capability(sync, AsyncRedriver) is None
            assert capability(sync, Redriver) is sync
            assert capability(queue, TransactionalPusher) is None

    asyncio.run(ask())


@pytest.mark.parametrize("protocol", CAPABILITIES)
def test_every_capability_has_an_asynchronous_twin(protocol: type) -> None:
    """Of the same name with Async before it, and the same methods with the same parameters."""
    twin = getattr(hypercube_queue, f"Async{protocol.__name__}")
    methods = {
        name: method
        for name, method in vars(protocol).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }

    assert methods
    for name, method in methods.items():
        other = getattr(twin, name)
        assert inspect.iscoroutinefunction(other)
        assert not inspect.iscoroutinefunction(method)
        assert inspect.signature(other) == inspect.signature(method)


def test_a_driver_is_a_queue_by_its_methods_alone() -> None:
    """No base class is needed."""
    with open_queue("memory://") as queue:
        assert isinstance(queue, Queue)
    assert not isinstance(_Counts(), Queue)


def test_a_dead_letter_does_not_show_its_bytes() -> None:
    """They may be a payload (ERR-6)."""
    letter = DeadLetter(None, b"secret", "unreadable", datetime.now(UTC), "1")

    assert "secret" not in repr(letter)
    assert letter.raw == b"secret"
