"""The queue: five operations, and a close."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from hypercube_queue._guarantees import Guarantees
from hypercube_queue._message import Message


@runtime_checkable
class Queue(Protocol):
    """Moves messages, and decides nothing.

    What a failure means is the worker's business: no driver has an attempt limit, a backoff
    or a dead-letter policy of its own. One object serves any number of threads (LIFE-1).

    Every call ends within its `wait` plus the driver's `operation_timeout` (ERR-5); running
    out of it is a `BackendError` whose outcome is unknown. After `close` every call raises
    `QueueClosed`, even with an empty batch. A batch that fails in part raises one
    `BatchError` that lists the failed items; all others succeeded (ERR-1).
    """

    @property
    def guarantees(self) -> Guarantees:
        """The promises of this object, known without I/O."""
        ...

    def push(self, *messages: Message) -> None:
        """Store messages, for any number of queues, and return when they are stored.

        Contents are copied before the call returns (OWN-1). An empty `id` is assigned and
        written to the message before anything is sent, so that a push whose outcome is
        unknown can be repeated under the same id (PUSH-2). `attempt` and `driver_data` are
        ignored (PUSH-3). No messages: nothing happens (PUSH-1).

        Failures per item: `InvalidArgument`, `MessageTooLarge`, `AlreadyExists` when the id is
        retained in that queue (PUSH-4), `CapacityExceeded`, `BackendError`.
        """
        ...

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        """Take up to `max_messages` (1 to 10,000) deliveries, each owned by the caller.

        Returns as soon as one is visible, with all that are, up to the limit; an empty list
        once `wait` is over (POP-1). It takes no more once payloads and extras reach
        MAX_POP_BYTES, where `guarantees.bounded_pops` (POP-11).

        None waits for the driver's `poll_timeout`; zero checks once. A delivery is owned until
        its lease ends, counted from now: the message's `visibility_timeout`, else the driver's
        default.

        Raises `InvalidArgument`, `BackendError`, and `QueueClosed` when the queue is closed
        while it waits.
        """
        ...

    def ack(self, *messages: Message) -> None:
        """Remove deliveries for good (SET-1). A stale one fails with `NotFound` (SET-2)."""
        ...

    def retry(self, *messages: Message) -> None:
        """Put deliveries back, visible again after their `delay`, attempts kept (SET-3).

        Stores the present `payload`, `extra` and `delay`; the stored identity and routing win
        over changes to the other fields (OWN-4). Failures per item: `NotFound` for a stale
        delivery; `InvalidArgument`, `MessageTooLarge`, `CapacityExceeded` leave it owned.
        """
        ...

    def dead_letter(self, *messages: Message) -> None:
        """Move deliveries to the dead letters, where they stay until they are redriven (SET-4).

        Stores the present `payload` and `extra`; the id stays taken. Failures per item as in
        `retry`.
        """
        ...

    def close(self) -> None:
        """Wake waiting pops, let running settlements finish, release what the queue opened.

        Idempotent. Waiting pops raise `QueueClosed` within about a second. A client that was
        passed in stays the caller's to close (LIFE-1).
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
