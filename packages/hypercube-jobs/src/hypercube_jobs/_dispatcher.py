"""From a job to a message in the queue."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar, cast

from hypercube_jobs import _attempt
from hypercube_jobs._backoff import Constant, Exponential
from hypercube_jobs._clock import Clock
from hypercube_jobs._failure import failure_of, first_line
from hypercube_jobs._inline import InlineQueue
from hypercube_jobs._middleware import Dispatch, Middleware, dispatching
from hypercube_jobs._observer import JobEvent, Observer, notify
from hypercube_jobs._policy import check_limits, checked_retries, checked_timeout
from hypercube_jobs._record import Record
from hypercube_jobs._registry import Kind
from hypercube_jobs._text import indented
from hypercube_jobs._transactions import Late, after_commit, is_async, plain_connection
from hypercube_queue import (
    MAX_DURATION,
    AlreadyExists,
    BatchError,
    InvalidArgument,
    Message,
    Queue,
    TransactionalPusher,
    VisibilityExtender,
    capability,
)
from hypercube_queue.checks import checked_delay, checked_name, checked_queue_name, safe_repr
from hypercube_queue.ids import new_id

R = TypeVar("R")

#: Where no lease can be extended, it outlives the attempt by this.
_LEASE_MARGIN = timedelta(minutes=1)

_log = logging.getLogger("hypercube_jobs")


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """What became of a dispatch."""

    id: str
    queue: str
    kind: str
    #: False if the queue already held a job of this id, which stays as it is. None if the job
    #: is stored only after a transaction's commit: nobody knows yet.
    created: bool | None


class _RunsSync(Protocol):
    """SQLAlchemy's AsyncConnection and AsyncSession: they lend their synchronous half."""

    async def run_sync(self, function: Callable[[object], R]) -> R: ...


class Dispatcher:
    """What all namespaces of one `Jobs` object share: where jobs go, and who is told."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self.clock = clock
        self.observers: tuple[Observer, ...] = ()
        self.middleware: tuple[Middleware, ...] = ()
        self.use(queue)

    def use(self, queue: Queue) -> None:
        """Send jobs here from now on."""
        self.queue = queue
        # Asking takes longer than encoding a job.
        self._extends = capability(queue, VisibilityExtender) is not None
        self._pusher = capability(queue, TransactionalPusher)
        self._inline = queue if isinstance(queue, InlineQueue) else None
        self._ids_may_repeat = self._inline is None and queue.guarantees.unique_ids == "none"

    def accept_repeated_ids(self) -> None:
        """Do not warn where the queue cannot refuse an id that is taken."""
        self._ids_may_repeat = False

    def observe(self, *observers: Observer) -> None:
        """Tell these, and wrap in those that wrap."""
        for observer in observers:
            if not isinstance(observer, Observer):
                raise InvalidArgument(
                    "an observer is an object of a subclass of Observer, not "
                    f"{type(observer).__name__}"
                )
        self.observers = observers
        self.middleware = tuple(each for each in observers if isinstance(each, Middleware))

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
        attempt = _attempt.current_attempt()
        now = self.clock()
        record = Record.new(
            retries=kind.policy.retries if retries is None else checked_retries(retries),
            timeout=allowed,
            backoff=backoff,
            dispatched_at=now,
            trace=None if attempt is None else attempt.trace,
        )
        check_limits(kind.policy, retries=retries, timeout=timeout, backoff=backoff)
        longest = guarantees.max_delay
        checked_delay(delay, MAX_DURATION if longest else longest)
        first_step = record.start_delay(delay, longest, now)
        message = Message(
            kind.policy.queue if queue is None else checked_queue_name(queue, guarantees),
            kind.codec.encode(job),
            kind.name,
            kind.namespace,
            id=checked_name("id", id, may_be_empty=True),
            extra=record.to_bytes() or b"",
            delay=first_step,
        )
        if message.id and self._ids_may_repeat:
            self._warn_of_ids(message)
        if guarantees.leases and not self._extends:
            message.visibility_timeout = min(allowed + _LEASE_MARGIN, guarantees.max_visibility)
        return message

    def _warn_of_ids(self, message: Message) -> None:
        self._ids_may_repeat = False
        _log.warning(
            "job %s is dispatched with an id of its own, %s, but ids are not unique on this "
            "backend (guarantees.unique_ids is 'none'): dispatching the same id again stores a "
            "second job, and both run. This warning is given once",
            message.job_name,
            safe_repr(message.id),
        )

    # Now

    def push(self, message: Message) -> DispatchResult:
        """Store it, or run it, now."""
        if self._inline is None:
            return self._push(message, self.queue.push)
        self._inline.check(message)
        _identify(message)
        result = self._push(message, _store_nothing)
        self._inline.run(message)
        return result

    async def push_async(self, message: Message) -> DispatchResult:
        """Store it now, from a thread; or run it on this event loop."""
        if self._inline is None:
            return await asyncio.to_thread(self.push, message)
        self._inline.check(message)
        _identify(message)
        result = self._push(message, _store_nothing)
        await self._inline.run_async(message)
        return result

    # Within a transaction

    def push_within(self, connection: object, message: Message) -> DispatchResult:
        """Store it in the transaction of `connection`, or after its commit."""
        if is_async(connection):
            raise InvalidArgument(
                f"connection is an {type(connection).__name__}, which cannot be waited for here: "
                "await jobs.dispatch_within_async(connection, job)"
            )
        if self._pusher is not None:
            plain = plain_connection(connection)
            if plain is None:
                return self.push(message)
            if self._pusher.shares_database(plain):
                return self._push(message, partial(self._pusher.push_within, plain))
        return self._push_late(connection, message) or self.push(message)

    async def push_within_async(self, connection: object, message: Message) -> DispatchResult:
        """`push_within` without blocking the event loop."""
        if self._pusher is None:
            return self._push_late(connection, message) or await self.push_async(message)
        if not is_async(connection):
            return self.push_within(connection, message)
        pusher = self._pusher

        def push(lent: object) -> DispatchResult | None:
            if not pusher.shares_database(lent):
                return None
            return self._push(message, partial(pusher.push_within, lent))

        pushed = await cast("_RunsSync", plain_connection(connection)).run_sync(push)
        return pushed or self._push_late(connection, message) or await self.push_async(message)

    def _push_late(self, connection: object, message: Message) -> DispatchResult | None:
        """Store it after the commit; None if there is nothing to commit."""
        if self._inline is not None:
            self._inline.check(message)
        _identify(message)
        # The trace of this dispatch, not of whoever commits.
        context = contextvars.copy_context()

        def push() -> None:
            try:
                context.run(self.push, message)
            except Exception as error:  # noqa: BLE001  # the commit is done; nobody may be told it failed
                self._log_late(message, error)

        async def push_async() -> None:
            try:
                await asyncio.create_task(self.push_async(message), context=context)
            except Exception as error:  # noqa: BLE001  # as above
                self._log_late(message, error)

        if not after_commit(connection, Late(push, push_async)):
            return None
        return DispatchResult(message.id, message.queue_name, message.job_name, created=None)

    def _log_late(self, message: Message, error: Exception) -> None:
        failure = failure_of(error, attempt=1, at=self.clock())
        _log.error(
            "job %s %s was dispatched within a transaction, and %s after the commit: %s: %s\n%s",
            message.job_name,
            message.id,
            "could not be stored" if self._inline is None else "failed",
            failure.type,
            first_line(failure.text),
            indented(failure.traceback.rstrip()),
        )

    # Within

    def _push(self, message: Message, push: Callable[[Message], None]) -> DispatchResult:
        if not self.middleware:
            return self._store(message, push)
        _identify(message)
        record = Record.read(message.extra)
        dispatch = Dispatch(
            id=message.id,
            kind=message.job_name,
            namespace=message.namespace,
            queue=message.queue_name,
            delay=message.delay + record.delay_left,
            max_retries=record.retries or 0,
            trace=dict(record.trace),
        )
        with dispatching(dispatch, self.middleware):
            if dispatch.trace:
                record.note_trace(dispatch.trace)
                message.extra = record.to_bytes() or message.extra
            return self._store(message, push)

    def _store(self, message: Message, push: Callable[[Message], None]) -> DispatchResult:
        try:
            push(message)
        except BatchError as failures:
            error = failures.failed[0].error
            if not isinstance(error, AlreadyExists):
                # One job was dispatched: nobody wants its error wrapped in a batch.
                raise error from error.__cause__
            return _created(message, created=False)
        self._tell(message)
        return _created(message)

    def _tell(self, message: Message) -> None:
        if not self.observers:
            return
        event = JobEvent(
            id=message.id,
            kind=message.job_name,
            namespace=message.namespace,
            queue=message.queue_name,
            attempt=0,
            max_retries=0 if self._inline else Record.read(message.extra).retries or 0,
        )
        notify(self.observers, "dispatched", event)


def _identify(message: Message) -> None:
    """Give it an id where somebody wants to know it before the push, which would else do it."""
    message.id = message.id or new_id()


def _store_nothing(_message: Message) -> None:
    pass


def _created(message: Message, *, created: bool = True) -> DispatchResult:
    return DispatchResult(message.id, message.queue_name, message.job_name, created)
