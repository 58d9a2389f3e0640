"""From a job to a message in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from hypercube_jobs._backoff import Constant, Exponential
from hypercube_jobs._clock import Clock
from hypercube_jobs._errors import NotSupported
from hypercube_jobs._observer import JobEvent, Observer, notify
from hypercube_jobs._policy import checked_retries, checked_timeout
from hypercube_jobs._record import Record
from hypercube_jobs._registry import Kind
from hypercube_queue import (
    AlreadyExists,
    BatchError,
    InvalidArgument,
    Message,
    Queue,
    TransactionalPusher,
    VisibilityExtender,
    capability,
)
from hypercube_queue.driver import checked_delay, checked_name, checked_queue_name

#: Where no lease can be extended, it outlives the attempt by this.
_LEASE_MARGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """What became of a dispatch."""

    id: str
    queue: str
    kind: str
    #: False if the queue already held a job of this id, which stays as it is.
    created: bool


class Dispatcher:
    """What all namespaces of one `Jobs` object share: where jobs go, and who is told."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self.queue = queue
        self.clock = clock
        self.observers: tuple[Observer, ...] = ()
        # Asking takes longer than encoding a job.
        self._extends = capability(queue, VisibilityExtender) is not None

    def message(
        self,
        kind: Kind,
        job: object,
        *,
        queue: str | None = None,
        delay: timedelta = timedelta(0),
        id: str = "",
        retries: int | None = None,
        backoff: Constant | Exponential | None = None,
        timeout: timedelta | None = None,
    ) -> Message:
        """The message of a job. Raises InvalidPayload, and InvalidArgument for a bad option."""
        guarantees = self.queue.guarantees
        if backoff is not None and not isinstance(backoff, Constant | Exponential):
            raise InvalidArgument(
                f"the backoff of a dispatch is Constant(...) or Exponential(...), not "
                f"{type(backoff).__name__}: it travels with the job, and a function cannot"
            )
        allowed = kind.policy.timeout if timeout is None else checked_timeout(timeout)
        record = Record.new(
            retries=kind.policy.retries if retries is None else checked_retries(retries),
            timeout=allowed,
            backoff=backoff,
            dispatched_at=self.clock(),
        )
        message = Message(
            kind.policy.queue if queue is None else checked_queue_name(queue, guarantees),
            kind.codec.encode(job),
            kind.name,
            kind.namespace,
            id=checked_name("id", id, may_be_empty=True),
            extra=record.to_bytes() or b"",
            delay=checked_delay(delay, guarantees.max_delay),
        )
        if guarantees.leases and not self._extends:
            message.visibility_timeout = min(allowed + _LEASE_MARGIN, guarantees.max_visibility)
        return message

    def push(self, message: Message) -> DispatchResult:
        """Store it now."""
        return self._push(message, self.queue.push)

    async def push_async(self, message: Message) -> DispatchResult:
        """Store it now, from a thread."""
        return await asyncio.to_thread(self.push, message)

    def push_within(self, connection: object, message: Message) -> DispatchResult:
        """Store it in the transaction of `connection`."""
        pusher = capability(self.queue, TransactionalPusher)
        if pusher is None:
            raise NotSupported(
                "this queue's driver cannot dispatch within a transaction; dispatch after the "
                "commit, or use a queue in the same database (hypercube-queue-sql)"
            )
        return self._push(message, lambda message: pusher.push_within(connection, message))

    def _push(self, message: Message, push: Callable[[Message], None]) -> DispatchResult:
        created = True
        try:
            push(message)
        except BatchError as failures:
            error = failures.failed[0].error
            if not isinstance(error, AlreadyExists):
                # One job was dispatched: nobody wants its error wrapped in a batch.
                raise error from error.__cause__
            created = False
        if created and self.observers:
            record = Record.read(message.extra)
            notify(
                self.observers,
                "dispatched",
                JobEvent(
                    id=message.id,
                    kind=message.job_name,
                    namespace=message.namespace,
                    queue=message.queue_name,
                    attempt=0,
                    max_retries=record.retries or 0,
                ),
            )
        return DispatchResult(message.id, message.queue_name, message.job_name, created)
