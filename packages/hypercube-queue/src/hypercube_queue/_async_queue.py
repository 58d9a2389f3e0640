"""The same queue for asyncio, over threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, runtime_checkable

from hypercube_queue._capabilities import (
    DeadLetter,
    DeadLetterStore,
    QueueStats,
    Redriver,
    Releaser,
    StatsProvider,
    TransactionalPusher,
    VisibilityExtender,
    capability,
)
from hypercube_queue._errors import InvalidArgument, QueueClosed, QueueError
from hypercube_queue._guarantees import Guarantees
from hypercube_queue._message import Message
from hypercube_queue._queue import Queue

P = ParamSpec("P")
R = TypeVar("R")


class AsyncQueue:
    """A queue whose operations are coroutines, with the rules of `Queue`.

        async with AsyncQueue(open_queue("sqlite:///jobs.db")) as queue:
            await queue.push(Message("billing", b"42"))

    The calls run on two thread pools of its own, `threads` each: pops, which may wait, and
    all the rest, so that a settlement never queues behind a waiting pop. More than `threads`
    pops at once wait for each other. It owns the queue it wraps: `close` closes both.

    The capabilities of the wrapped queue carry over: `capability(queue, AsyncRedriver)`.

    Cancelling a call ends the waiting and not the operation, whose outcome is then unknown;
    what a cancelled pop received is handed back (ERR-5).
    """

    def __new__(cls, queue: Queue, *, threads: int = 32) -> Self:  # noqa: ARG004 for __init__
        if cls is AsyncQueue:
            cls = _with_capabilities_of(queue)  # type: ignore[assignment]
        return super().__new__(cls)

    def __init__(self, queue: Queue, *, threads: int = 32) -> None:
        if threads < 1:
            raise InvalidArgument(f"threads is at least 1, not {threads}")
        self._queue = queue
        self._pops = ThreadPoolExecutor(threads, thread_name_prefix="hypercube-pop")
        self._calls = ThreadPoolExecutor(threads, thread_name_prefix="hypercube-call")
        self._closing: Future[None] | None = None

    @property
    def guarantees(self) -> Guarantees:
        return self._queue.guarantees

    async def push(self, *messages: Message) -> None:
        await self._call(self._queue.push, *messages)

    async def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        popping = self._submit(self._pops, self._queue.pop, queue_name, max_messages, wait=wait)
        try:
            return await asyncio.wrap_future(popping)
        except asyncio.CancelledError:
            popping.add_done_callback(self._hand_back)
            raise

    async def ack(self, *messages: Message) -> None:
        await self._call(self._queue.ack, *messages)

    async def retry(self, *messages: Message) -> None:
        await self._call(self._queue.retry, *messages)

    async def dead_letter(self, *messages: Message) -> None:
        await self._call(self._queue.dead_letter, *messages)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._submit(self._calls, self._queue.close)
            # Queued calls still run, and meet a closed queue.
            self._pops.shutdown(wait=False)
            self._calls.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._closing))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _call(
        self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[R]:
        return asyncio.wrap_future(self._submit(self._calls, function, *args, **kwargs))

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        function: Callable[P, R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Future[R]:
        if self._closing is not None:
            raise QueueClosed("this queue is closed; open another one")
        return pool.submit(function, *args, **kwargs)

    def _hand_back(self, popping: Future[list[Message]]) -> None:
        if popping.cancelled() or popping.exception() is not None:
            return
        deliveries = popping.result()
        if not deliveries or self._closing is not None:
            return
        if releaser := capability(self._queue, Releaser):
            give_back: Callable[..., None] = releaser.release
        elif not self.guarantees.leases:
            give_back = self._queue.retry
        else:
            return  # the lease brings them back
        # This callback may run on the event loop's thread, which must not wait.
        with contextlib.suppress(RuntimeError):  # closed a moment ago
            self._calls.submit(_ignoring_queue_errors, give_back, *deliveries)


def _ignoring_queue_errors(give_back: Callable[..., None], *deliveries: Message) -> None:
    # The caller is gone; the end of the lease or of the connection brings them back.
    with contextlib.suppress(QueueError):
        give_back(*deliveries)


class _Extending(AsyncQueue):
    _queue: Any

    @property
    def visibility_timeout(self) -> timedelta:
        timeout: timedelta = self._queue.visibility_timeout
        return timeout

    async def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        await self._call(self._queue.extend_visibility, extension, *messages)


class _Redriving(AsyncQueue):
    _queue: Any

    async def redrive(self, queue_name: str, count: int) -> int:
        return await self._call(self._queue.redrive, queue_name, count)


class _Counting(AsyncQueue):
    _queue: Any

    async def queues(self) -> list[str]:
        return await self._call(self._queue.queues)

    async def stats(self, queue_name: str) -> QueueStats:
        return await self._call(self._queue.stats, queue_name)


class _StoringDeadLetters(AsyncQueue):
    _queue: Any

    async def dead_letters(
        self, queue_name: str, limit: int, before: str | None = None
    ) -> list[DeadLetter]:
        return await self._call(self._queue.dead_letters, queue_name, limit, before)

    async def redrive_ids(self, queue_name: str, *ids: str) -> int:
        return await self._call(self._queue.redrive_ids, queue_name, *ids)

    async def forget(self, queue_name: str, *ids: str) -> int:
        return await self._call(self._queue.forget, queue_name, *ids)


class _Releasing(AsyncQueue):
    _queue: Any

    async def release(self, *messages: Message) -> None:
        await self._call(self._queue.release, *messages)


@runtime_checkable
class _RunsSync(Protocol):
    """SQLAlchemy's AsyncConnection and AsyncSession: they lend their synchronous half."""

    async def run_sync(self, function: Callable[[Any], R]) -> R: ...


class _PushingWithin(AsyncQueue):
    _queue: Any

    async def push_within(self, connection: object, *messages: Message) -> None:
        if isinstance(connection, _RunsSync):
            await connection.run_sync(lambda lent: self._queue.push_within(lent, *messages))
        else:
            await self._call(self._queue.push_within, connection, *messages)

    async def shares_database(self, connection: object) -> bool:
        if isinstance(connection, _RunsSync):
            return await connection.run_sync(self._queue.shares_database)
        return await self._call(self._queue.shares_database, connection)


#: The mixin for each capability.
_MIXINS: tuple[tuple[type, type[AsyncQueue]], ...] = (
    (VisibilityExtender, _Extending),
    (Redriver, _Redriving),
    (StatsProvider, _Counting),
    (DeadLetterStore, _StoringDeadLetters),
    (Releaser, _Releasing),
    (TransactionalPusher, _PushingWithin),
)


def _with_capabilities_of(queue: Queue) -> type[AsyncQueue]:
    return _composed(
        tuple(mixin for protocol, mixin in _MIXINS if capability(queue, protocol) is not None)
    )


@functools.cache
def _composed(mixins: tuple[type[AsyncQueue], ...]) -> type[AsyncQueue]:
    return type("AsyncQueue", (*mixins, AsyncQueue), {"__module__": AsyncQueue.__module__})
