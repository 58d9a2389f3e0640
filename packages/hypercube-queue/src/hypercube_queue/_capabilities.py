"""Optional capabilities of drivers, one Protocol each, and the function that asks for one.

A driver that lacks a capability has no such methods. Each Protocol has an asynchronous
twin of the same name with `Async` before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeVar, runtime_checkable

from hypercube_queue._message import Message

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The number of messages of a queue in each state, at one moment."""

    name: str
    #: Visible now: an expired lease and a due delay count here (STA-1).
    ready: int
    delayed: int
    in_flight: int
    dead: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in the dead-letter store."""

    #: The message, or None where the stored bytes cannot be read (POP-8).
    message: Message | None
    #: The stored bytes of an unreadable message, else None.
    raw: bytes | None = field(repr=False)
    #: Why the driver set it aside; empty when a worker dead-lettered it.
    reason: str
    #: The time of its death, in UTC, by the backend's clock.
    died_at: datetime
    #: Its position in the list: pass it as `before` to continue after it.
    cursor: str


@runtime_checkable
class VisibilityExtender(Protocol):
    """Moves the visibility deadline of deliveries."""

    @property
    def visibility_timeout(self) -> timedelta:
        """The lease of a message that names none of its own, known without I/O.

        A worker needs it to know when to extend.
        """
        ...

    def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        """Own the deliveries for `extension` from now, however much was left (EXT-1).

        A batch, like settlement. Failures per item: `NotFound` for a stale delivery (EXT-2);
        `InvalidArgument`, still owned, when the extension is not positive or ends later than
        `guarantees.max_visibility` after the pop (EXT-3).
        """
        ...


@runtime_checkable
class Redriver(Protocol):
    """Brings dead messages back."""

    def redrive(self, queue_name: str, count: int) -> int:
        """Make up to `count` dead messages ready, as new; return how many surely moved.

        Oldest death first where `guarantees.ordered_redrive` (RED-1). Contents and routing
        stay, the next delivery has attempt 1 (RED-2, RED-3); unreadable messages are passed
        over (RED-6). An error after some moved returns their number; one before any raises
        (RED-4). `count` below 1 is `InvalidArgument` (RED-5).
        """
        ...


@runtime_checkable
class StatsProvider(Protocol):
    """Counts messages."""

    def queues(self) -> list[str]:
        """The names of all queues that retain a message, sorted (STA-3)."""
        ...

    def stats(self, queue_name: str) -> QueueStats:
        """Count the messages of the queue in each state; zeros if unknown (STA-1, STA-2)."""
        ...


@runtime_checkable
class DeadLetterStore(Protocol):
    """Shows dead messages, and lets single ones go."""

    def dead_letters(
        self, queue_name: str, limit: int, before: str | None = None
    ) -> list[DeadLetter]:
        """Up to `limit` dead messages, newest death first, changing nothing (DLS-1).

        `before` is the cursor of a DeadLetter: the page starts behind it. Paging neither
        skips nor repeats what stays dead (DLS-2). A foreign cursor or a limit outside
        1 to 10,000 is `InvalidArgument`.
        """
        ...

    def redrive_ids(self, queue_name: str, *ids: str) -> int:
        """Make these dead messages ready, as `redrive` does; unknown ids count nothing (DLS-3)."""
        ...

    def forget(self, queue_name: str, *ids: str) -> int:
        """Remove these dead messages for good; unknown ids count nothing (DLS-3)."""
        ...


@runtime_checkable
class Releaser(Protocol):
    """Gives deliveries back unused."""

    def release(self, *messages: Message) -> None:
        """Undo the pop: visible at once in its old place, attempt uncounted, nothing stored.

        A batch, like settlement (REL-1). Failures per item: `NotFound` for a stale delivery.
        """
        ...


@runtime_checkable
class TransactionalPusher(Protocol):
    """Pushes within a transaction of the caller's."""

    def push_within(self, connection: object, *messages: Message) -> None:
        """Push so that the messages exist if and only if the caller commits (TXN-1).

        Failures as in `push`; one of them leaves the transaction usable (TXN-2). Nothing is
        retried: a deadlock is a `BackendError`, and the transaction is the caller's (TXN-3).
        Delays count from this call, by the database's clock (TXN-4). A `connection` of an
        unknown kind, or into another database than the queue's, is `InvalidArgument`.
        """
        ...

    def shares_database(self, connection: object) -> bool:
        """Tell whether `push_within` can join the transaction of this connection.

        False for one into another database, and for what is no connection. Begins nothing.
        """
        ...


@runtime_checkable
class AsyncVisibilityExtender(Protocol):
    """`VisibilityExtender` with coroutines."""

    @property
    def visibility_timeout(self) -> timedelta: ...

    async def extend_visibility(self, extension: timedelta, *messages: Message) -> None: ...


@runtime_checkable
class AsyncRedriver(Protocol):
    """`Redriver` with coroutines."""

    async def redrive(self, queue_name: str, count: int) -> int: ...


@runtime_checkable
class AsyncStatsProvider(Protocol):
    """`StatsProvider` with coroutines."""

    async def queues(self) -> list[str]: ...

    async def stats(self, queue_name: str) -> QueueStats: ...


@runtime_checkable
class AsyncDeadLetterStore(Protocol):
    """`DeadLetterStore` with coroutines."""

    async def dead_letters(
        self, queue_name: str, limit: int, before: str | None = None
    ) -> list[DeadLetter]: ...

    async def redrive_ids(self, queue_name: str, *ids: str) -> int: ...

    async def forget(self, queue_name: str, *ids: str) -> int: ...


@runtime_checkable
class AsyncReleaser(Protocol):
    """`Releaser` with coroutines."""

    async def release(self, *messages: Message) -> None: ...


@runtime_checkable
class AsyncTransactionalPusher(Protocol):
    """`TransactionalPusher` with coroutines."""

    async def push_within(self, connection: object, *messages: Message) -> None: ...

    async def shares_database(self, connection: object) -> bool: ...


#: Every synchronous capability, in the order of the contract's table.
CAPABILITIES: tuple[type, ...] = (
    VisibilityExtender,
    Redriver,
    StatsProvider,
    DeadLetterStore,
    Releaser,
    TransactionalPusher,
)


def capability(queue: object, protocol: Callable[..., C]) -> C | None:
    """`queue`, typed as the capability `protocol`, or None if it has no such capability.

        if stats := capability(queue, StatsProvider):
            print(stats.stats("billing"))

    A bare isinstance compares names only and would take an asynchronous queue for a
    synchronous one; this also compares the kinds of the methods. (`protocol` is typed as a
    callable because type checkers refuse a Protocol where a `type[C]` is expected.)
    """
    for name, method in vars(protocol).items():
        if isinstance(method, property) and inspect.getattr_static(queue, name, None) is None:
            return None
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        offered = getattr(queue, name, None)
        if not callable(offered):
            return None
        if inspect.iscoroutinefunction(offered) != inspect.iscoroutinefunction(method):
            return None
    return queue  # type: ignore[return-value]  # its members were just compared
