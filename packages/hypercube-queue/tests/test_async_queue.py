"""The same queue for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Self

import pytest

from hypercube_queue import (
    AsyncDeadLetterStore,
    AsyncQueue,
    AsyncRedriver,
    AsyncReleaser,
    AsyncStatsProvider,
    AsyncTransactionalPusher,
    AsyncVisibilityExtender,
    BatchError,
    Guarantees,
    InvalidArgument,
    Message,
    NotFound,
    QueueClosed,
    QueueError,
    QueueStats,
    capability,
)
from hypercube_queue_memory import MemoryQueue

_NOTHING = timedelta(0)
_LONG = timedelta(seconds=30)

_CAPABILITIES = (
    AsyncVisibilityExtender,
    AsyncRedriver,
    AsyncStatsProvider,
    AsyncDeadLetterStore,
    AsyncReleaser,
    AsyncTransactionalPusher,
)


class _Bare:
    """A queue without capabilities that records its calls; `pop` waits to be let go."""

    def __init__(self, guarantees: Guarantees) -> None:
        self.guarantees = guarantees
        self.calls: list[str] = []
        #: Set while a slow call waits for `let_go`.
        self.waiting = threading.Event()
        self.let_go = threading.Event()
        self.settled = threading.Event()

    def push(self, *messages: Message) -> None:
        self.calls.append("push")

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        self.calls.append("pop")
        self.waiting.set()
        self.let_go.wait(10)
        return [Message(queue_name, id="late")]

    def ack(self, *messages: Message) -> None:
        self.calls.append("ack")

    def retry(self, *messages: Message) -> None:
        self.calls.append(f"retry {messages[0].id}")
        self.settled.set()

    def dead_letter(self, *messages: Message) -> None:
        self.calls.append("dead_letter")

    def close(self) -> None:
        self.calls.append("close")
        self.let_go.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not happened():
            await asyncio.sleep(0.001)


def _run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


def test_every_operation_is_the_same_as_a_coroutine() -> None:
    """Arguments, results and effects."""

    async def test() -> None:
        async with AsyncQueue(MemoryQueue()) as queue:
            assert queue.guarantees == MemoryQueue().guarantees
            messages = [Message("q", str(n).encode()) for n in range(3)]
            await queue.push(*messages)
            assert all(message.id for message in messages)
            first, second, third = await queue.pop("q", 3, wait=_NOTHING)
            await queue.ack(first)
            second.payload = b"again"
            await queue.retry(second)
            await queue.dead_letter(third)
            (again,) = await queue.pop("q")
            assert (again.payload, again.attempt) == (b"again", 2)
            assert await queue.pop("q", wait=_NOTHING) == []

    _run(test)


def test_errors_are_those_of_the_queue() -> None:
    """Batches in part, and calls as a whole."""

    async def test() -> None:
        async with AsyncQueue(MemoryQueue()) as queue:
            with pytest.raises(BatchError) as caught:
                await queue.ack(Message("q"), Message("q"))
            assert [type(failure.error) for failure in caught.value.failed] == [NotFound] * 2
            with pytest.raises(InvalidArgument, match="max_messages is 0"):
                await queue.pop("q", 0)

    _run(test)


def test_capabilities_carry_over_and_work() -> None:
    """Those the wrapped queue has."""

    async def test() -> None:
        async with AsyncQueue(MemoryQueue()) as queue:
            offered = [each for each in _CAPABILITIES if capability(queue, each) is not None]
            assert offered == list(_CAPABILITIES[:-1])
            await queue.push(*(Message("q", id=str(n)) for n in range(4)))
            deliveries = await queue.pop("q", 4)
            assert queue.visibility_timeout == _LONG
            await queue.extend_visibility(_LONG, deliveries[0])
            await queue.release(deliveries[0])
            await queue.dead_letter(*deliveries[1:])
            assert await queue.queues() == ["q"]
            assert await queue.stats("q") == QueueStats("q", 1, 0, 0, 3)
            newest = await queue.dead_letters("q", 1)
            older = await queue.dead_letters("q", 9, newest[0].cursor)
            assert [letter.message.id for letter in newest + older] == ["3", "2", "1"]
            assert await queue.redrive("q", 1) == 1
            assert await queue.redrive_ids("q", "2", "unknown") == 1
            assert await queue.forget("q", "3") == 1

    _run(test)


def test_a_capability_that_the_queue_lacks_is_not_there() -> None:
    """No method of the name at all."""

    async def test() -> None:
        async with AsyncQueue(_Bare(Guarantees(durable=True))) as queue:
            assert [each for each in _CAPABILITIES if capability(queue, each)] == []
            assert "redrive" not in dir(queue)
            assert type(queue).__name__ == "AsyncQueue"
            assert isinstance(queue, AsyncQueue)

    _run(test)


def test_a_push_within_a_transaction_runs_where_the_connection_lives() -> None:
    """SQLAlchemy's asynchronous connections lend their synchronous half; others go as they are."""

    class Transactional(_Bare):
        def push_within(self, connection: object, *messages: Message) -> None:
            self.calls.append(f"push_within {connection} in {threading.current_thread().name}")

        def shares_database(self, connection: object) -> bool:
            self.calls.append(f"asked of {connection} in {threading.current_thread().name}")
            return connection == "lent"

    class AsyncConnection:
        async def run_sync(self, function: Callable[[object], object]) -> object:
            return function("lent")

    async def test() -> None:
        inner = Transactional(Guarantees(durable=True))
        async with AsyncQueue(inner) as queue:
            assert capability(queue, AsyncTransactionalPusher) is queue
            await queue.push_within(AsyncConnection(), Message("q"))
            await queue.push_within("plain", Message("q"))
            assert await queue.shares_database(AsyncConnection())
            assert not await queue.shares_database("plain")
        assert inner.calls[0] == "push_within lent in MainThread"
        assert inner.calls[1].startswith("push_within plain in hypercube-call")
        assert inner.calls[2] == "asked of lent in MainThread"
        assert inner.calls[3].startswith("asked of plain in hypercube-call")

    _run(test)


def test_what_a_cancelled_pop_receives_is_released() -> None:
    """As if it had not been popped: at once, the attempt uncounted (ERR-5)."""

    async def test() -> None:
        inner = MemoryQueue()
        async with AsyncQueue(inner) as queue:
            popping = asyncio.create_task(queue.pop("q", wait=_LONG))
            await asyncio.sleep(0.05)
            popping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await popping
            await queue.push(Message("q", id="a"))
            # The thread of the cancelled pop may have taken it first.
            (delivery,) = await queue.pop("q", wait=_LONG)
            assert (delivery.id, delivery.attempt) == ("a", 1)

    _run(test)


def test_a_pop_that_is_cancelled_with_its_result_in_hand_gives_it_back() -> None:
    """The moment between the result and its receiver loses nothing."""

    async def test() -> None:
        inner = MemoryQueue()
        async with AsyncQueue(inner) as queue:
            popping = asyncio.create_task(queue.pop("q", wait=_LONG))
            await asyncio.sleep(0)
            # Only now, else the pop may be over before it is waited for.
            inner.push(Message("q", id="a"))
            while inner.stats("q").in_flight == 0:
                # Blocks the loop on purpose: the result arrives and nobody can fetch it.
                threading.Event().wait(0.001)
            popping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await popping
            (delivery,) = await queue.pop("q", wait=_LONG)
            assert delivery.attempt == 1

    _run(test)


def test_without_leases_and_release_a_cancelled_pop_retries_what_it_received() -> None:
    """Nothing else would bring it back before the connection ends (ERR-5)."""

    async def test() -> None:
        inner = _Bare(Guarantees(durable=True, leases=False))
        async with AsyncQueue(inner) as queue:
            await _cancel_while_popping(queue, inner)
            await asyncio.to_thread(inner.settled.wait, 10)
            assert inner.calls == ["pop", "retry late"]

    _run(test)


def test_without_release_the_lease_brings_back_what_a_cancelled_pop_received() -> None:
    """A retry would count the attempt, and maybe store something."""

    async def test() -> None:
        inner = _Bare(Guarantees(durable=True))
        async with AsyncQueue(inner) as queue:
            await _cancel_while_popping(queue, inner)
            await queue.push(Message("q"))
        assert inner.calls == ["pop", "push", "close"]

    _run(test)


async def _cancel_while_popping(queue: AsyncQueue, inner: _Bare) -> None:
    popping = asyncio.create_task(queue.pop("q"))
    await _until(inner.waiting.is_set)
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping
    inner.let_go.set()


def test_a_give_back_that_fails_disturbs_nobody() -> None:
    """Nobody is left to tell."""

    class Failing(_Bare):
        def retry(self, *messages: Message) -> None:
            super().retry(*messages)
            raise QueueError("no")

    async def test() -> None:
        inner = Failing(Guarantees(durable=True, leases=False))
        async with AsyncQueue(inner) as queue:
            await _cancel_while_popping(queue, inner)
            await asyncio.to_thread(inner.settled.wait, 10)
            await queue.push(Message("q"))
        assert inner.calls == ["pop", "retry late", "push", "close"]

    _run(test)


def test_a_pop_cancelled_before_its_turn_pops_nothing() -> None:
    """It was waiting for a thread."""

    async def test() -> None:
        inner = _Bare(Guarantees(durable=True))
        async with AsyncQueue(inner, threads=1) as queue:
            running = asyncio.create_task(queue.pop("q"))
            await _until(inner.waiting.is_set)
            waiting = asyncio.create_task(queue.pop("q"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            inner.let_go.set()
            assert [message.id for message in await running] == ["late"]
        assert inner.calls == ["pop", "close"]

    _run(test)


def test_waiting_pops_do_not_hold_up_settlements() -> None:
    """However many there are, more than threads included."""

    async def test() -> None:
        async with AsyncQueue(MemoryQueue(), threads=2) as queue:
            await queue.push(Message("q"))
            (delivery,) = await queue.pop("q")
            waiting = [asyncio.create_task(queue.pop("q", wait=_LONG)) for _ in range(50)]
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await queue.push(Message("other"))
                await queue.ack(delivery)
            await queue.close()
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(end) for end in ends} == {QueueClosed}

    _run(test)


def test_a_close_wakes_waiting_pops_and_refuses_everything_later() -> None:
    """The wrapped queue is closed too (LIFE-1)."""

    async def test() -> None:
        inner = MemoryQueue()
        queue = AsyncQueue(inner)
        waiting = asyncio.create_task(queue.pop("q", wait=_LONG))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            await queue.close()
            with pytest.raises(QueueClosed):
                await waiting
        for call in (queue.push(), queue.pop("q"), queue.ack(), queue.stats("q")):
            with pytest.raises(QueueClosed, match="closed; open another one"):
                await call
        with pytest.raises(QueueClosed):
            inner.push()

    _run(test)


def test_closing_twice_closes_once() -> None:
    """One after the other, at the same time, and by leaving the context."""

    async def test() -> None:
        inner = _Bare(Guarantees(durable=True))
        async with AsyncQueue(inner) as queue:
            await asyncio.gather(queue.close(), queue.close())
            await queue.close()
        assert inner.calls == ["close"]

    _run(test)


class _Slow(_Bare):
    """Its `retry` waits to be let go."""

    def retry(self, *messages: Message) -> None:
        self.waiting.set()
        self.let_go.wait(10)
        super().retry(*messages)


def test_a_cancelled_close_goes_on() -> None:
    """Only the waiting ends, even while the close waits for its turn."""

    async def test() -> None:
        inner = _Slow(Guarantees(durable=True))
        queue = AsyncQueue(inner, threads=1)
        retrying = asyncio.create_task(queue.retry(Message("q", id="a")))
        await _until(inner.waiting.is_set)
        closing = asyncio.create_task(queue.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        inner.let_go.set()
        await retrying
        await queue.close()
        assert inner.calls == ["retry a", "close"]

    _run(test)


def test_a_cancelled_settlement_is_carried_out() -> None:
    """Its outcome is unknown to the caller only (ERR-5)."""

    async def test() -> None:
        inner = _Slow(Guarantees(durable=True))
        async with AsyncQueue(inner) as queue:
            retrying = asyncio.create_task(queue.retry(Message("q", id="a")))
            await _until(inner.waiting.is_set)
            retrying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await retrying
            inner.let_go.set()
            await _until(inner.settled.is_set)
        assert inner.calls == ["retry a", "close"]

    _run(test)


@pytest.mark.parametrize("threads", [0, -1])
def test_it_needs_a_thread(threads: int) -> None:
    """The error names the value, and nothing was opened."""
    with pytest.raises(InvalidArgument, match=f"threads is at least 1, not {threads}"):
        AsyncQueue(MemoryQueue(), threads=threads)
