"""Declaring, dispatching and finding jobs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, Unpack

from hypercube_jobs import _failed_jobs
from hypercube_jobs._backoff import Constant, Exponential
from hypercube_jobs._clock import Clock, utc_now
from hypercube_jobs._errors import NotSupported
from hypercube_jobs._failed_jobs import FailedJob
from hypercube_jobs._observer import JobEvent, Observer, notify
from hypercube_jobs._periodic import PeriodicJob, PeriodicOptions, periodic_job
from hypercube_jobs._periodic_times import When
from hypercube_jobs._policy import (
    DispatchOptions,
    KindOptions,
    checked_policy,
    checked_retries,
    checked_timeout,
)
from hypercube_jobs._record import Record
from hypercube_jobs._registry import Kind, Registry, check_handler, job_type
from hypercube_queue import (
    AlreadyExists,
    BatchError,
    InvalidArgument,
    Message,
    Queue,
    TransactionalPusher,
    VisibilityExtender,
    capability,
    open_queue,
)
from hypercube_queue.driver import checked_delay, checked_name, checked_queue_name, shown

H = TypeVar("H", bound=Callable[[Any], object])

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


class Jobs:
    """The jobs of an application, on one queue.

        jobs = Jobs(open_queue("sqlite:///jobs.db"))

        @jobs.handler("send_invoice", retries=5)
        def send_invoice(job: SendInvoice) -> None: ...

        jobs.dispatch(SendInvoice(order_id=1))

    Kinds are declared at import, before anything is dispatched or worked on; all the rest
    may be called from any thread. The queue stays the caller's to close.
    """

    def __init__(
        self, queue: Queue, *, observers: Iterable[Observer] = (), clock: Clock = utc_now
    ) -> None:
        # An isinstance would take an AsyncQueue.
        if capability(queue, Queue) is None:
            raise InvalidArgument(
                f"queue is a Queue, such as open_queue(url) gives, not {type(queue).__name__}"
            )
        self._queue = queue
        self._registry = Registry()
        self._observers: tuple[Observer, ...] = ()
        for observer in observers:
            self.add_observer(observer)
        self._clock = clock
        self._periodic: dict[str, PeriodicJob] = {}
        # Asking takes longer than encoding a job.
        self._extends = capability(queue, VisibilityExtender) is not None

    @classmethod
    def from_env(
        cls,
        variable: str = "HYPERCUBE_URL",
        *,
        observers: Iterable[Observer] = (),
        clock: Clock = utc_now,
    ) -> Jobs:
        """Jobs on the queue whose URL stands in an environment variable.

        Raises InvalidArgument if the variable is empty or not set, and as `open_queue` does.
        """
        url = os.environ.get(variable)
        if not url:
            raise InvalidArgument(
                f"the environment variable {variable} is not set; it takes a queue URL such as "
                "sqlite:///jobs.db"
            )
        return cls(open_queue(url), observers=observers, clock=clock)

    @property
    def queue(self) -> Queue:
        """The queue that jobs are stored in."""
        return self._queue

    @property
    def clock(self) -> Clock:
        """What stamps dispatches and failures."""
        return self._clock

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who is told, in this order."""
        return self._observers

    def add_observer(self, observer: Observer) -> None:
        """Tell `observer` too, after the ones before it."""
        if not isinstance(observer, Observer):
            raise InvalidArgument(
                f"an observer is an object of a subclass of Observer, not {type(observer).__name__}"
            )
        self._observers = (*self._observers, observer)

    # Declaring

    def declare(
        self,
        kind: str,
        type: type,
        *,
        aliases: Iterable[str] = (),
        **options: Unpack[KindOptions],
    ) -> None:
        """Declare that jobs of `kind` are of `type`, and how they are treated by default.

        A producer needs no more than this. `kind` is stored with each job, so it stays when
        the type is renamed; `aliases` are its former names, whose stored jobs are still
        understood. The other options are those of `KindOptions`.

        Raises DuplicateKind, and InvalidArgument for a type that is no dataclass, pydantic
        model or TypedDict and for a bad option.
        """
        self._registry.declare(
            kind, type, checked_policy(self._queue.guarantees, **options), aliases
        )

    def handler(
        self, kind: str, *, aliases: Iterable[str] = (), **options: Unpack[KindOptions]
    ) -> Callable[[H], H]:
        """Make a function, `def` or `async def`, the handler of `kind`.

        A kind that is not declared yet is declared with the type of the function's first
        parameter and with the options. For a declared kind no options may be given: they
        stand where it is declared. The function itself stays as it is.

        Raises as `declare` does, and DuplicateKind for a second handler.
        """
        declared = self._registry.get(checked_name("kind", kind, may_be_empty=False))
        if declared is not None and (options or aliases):
            raise InvalidArgument(
                f"the kind {kind!r} is declared already, so its options "
                "and aliases belong to jobs.declare()"
            )

        def bind(function: H) -> H:
            check_handler(function)
            if declared is None:
                self.declare(kind, job_type(function, depth=2), aliases=aliases, **options)
            self._registry.bind(self._registry.named(kind), function)
            return function

        return bind

    # Dispatching

    def dispatch(
        self,
        job: object,
        **options: Unpack[DispatchOptions],
    ) -> DispatchResult:
        """Store a job, and return when it is stored.

        The options are those of `DispatchOptions`; they win over those of its kind and travel
        with the job. With an `id` of your own it is stored at most once as long as the queue
        holds it, waiting, running or dead: `created` says whether it was, and repeating a
        dispatch whose outcome is unknown is safe.

        Blocks as long as the driver's push does. Raises UnknownKind for a type with no kind
        or with several, InvalidPayload, InvalidArgument for a bad option, and what the push
        raised; all before anything is stored, but for a BackendError with unknown outcome.
        """
        return self._push(self._message(self._registry.of(job), job, **options))

    def dispatch_kind(
        self,
        kind: str,
        payload: object,
        **options: Unpack[DispatchOptions],
    ) -> DispatchResult:
        """`dispatch` by kind: for a TypedDict, and for types with several kinds.

        `payload` is of the kind's type, or a mapping with its fields.
        """
        declared = self._registry.named(kind)
        return self._push(self._message(declared, payload, **options))

    async def dispatch_async(
        self,
        job: object,
        **options: Unpack[DispatchOptions],
    ) -> DispatchResult:
        """`dispatch` for asyncio: it runs in a thread and does not block the event loop.

        Cancelling it ends the waiting, not the dispatch.
        """
        message = self._message(self._registry.of(job), job, **options)
        return await asyncio.to_thread(self._push, message)

    def dispatch_within(
        self,
        connection: object,
        job: object,
        **options: Unpack[DispatchOptions],
    ) -> DispatchResult:
        """`dispatch` within the caller's transaction: the job exists if and only if it commits.

        `connection` is what the driver takes, such as a SQLAlchemy Connection or Session.
        Raises NotSupported where the driver shares no transaction with anybody.
        """
        pusher = capability(self._queue, TransactionalPusher)
        if pusher is None:
            raise NotSupported(
                "this queue's driver cannot dispatch within a transaction; dispatch after the "
                "commit, or use a queue in the same database (hypercube-queue-sql)"
            )
        return self._push(
            self._message(self._registry.of(job), job, **options),
            lambda message: pusher.push_within(connection, message),
        )

    def message(
        self,
        job: object,
        *,
        kind: str | None = None,
        **options: Unpack[DispatchOptions],
    ) -> Message:
        """The message that `dispatch` would push, for code that pushes many at once.

        jobs.queue.push(*(jobs.message(SendInvoice(order)) for order in orders))
        """
        declared = self._registry.of(job) if kind is None else self._registry.named(kind)
        return self._message(declared, job, **options)

    # Periodic jobs

    def schedule(
        self,
        name: str,
        when: When,
        job: object,
        *,
        kind: str | None = None,
        **options: Unpack[PeriodicOptions],
    ) -> None:
        """Declare that `job` is dispatched whenever it is due, as long as a Scheduler runs.

            jobs.schedule("report", Cron("30 3 * * *", timezone="Europe/Berlin"), Report())
            jobs.schedule("sweep", Every(timedelta(minutes=5)), lambda due: Sweep(until=due))

        `job` is of a declared kind, or a function that makes it from its due time, an aware
        datetime in UTC. `name` is part of the ids, so it stays as it is. The options are those
        of a dispatch.

        Raises InvalidArgument for a bad option or a name that is taken, and as `dispatch` does
        for a job that cannot be dispatched.
        """
        periodic = periodic_job(name, when, job, kind, options)
        if name in self._periodic:
            raise InvalidArgument(f"a periodic job is named {shown(name)} already")
        if not periodic.is_made:
            self.message(job, kind=kind, **options)
        self._periodic[name] = periodic

    def periodic(self) -> list[PeriodicJob]:
        """All that is scheduled, in that order."""
        return list(self._periodic.values())

    def kinds(self) -> list[Kind]:
        """All that is declared, in that order."""
        return self._registry.all()

    def kind(self, name: str) -> Kind | None:
        """What is declared under this name or alias, or None."""
        return self._registry.get(name)

    # Failed jobs

    def failed(
        self, queue: str = "default", *, limit: int = 100, before: str | None = None
    ) -> list[FailedJob]:
        """Up to `limit` failed jobs of a queue, newest first.

        `before` is the cursor of a FailedJob: the page starts behind it. Raises NotSupported
        where the driver cannot look into its dead letters.
        """
        return _failed_jobs.failed_jobs(self._queue, queue, limit, before)

    def retry(self, *ids: str, queue: str = "default") -> int:
        """Make failed jobs ready again, as new; return how many of the ids there were."""
        return _failed_jobs.retry(self._queue, queue, ids)

    def retry_all(self, queue: str = "default") -> int:
        """Make all failed jobs of a queue ready again, as new; return how many there were."""
        return _failed_jobs.retry_all(self._queue, queue)

    def forget(self, *ids: str, queue: str = "default") -> int:
        """Remove failed jobs for good; return how many of the ids there were."""
        return _failed_jobs.forget(self._queue, queue, ids)

    # Within

    def _message(
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
        guarantees = self._queue.guarantees
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
            dispatched_at=self._clock(),
        )
        message = Message(
            kind.policy.queue if queue is None else checked_queue_name(queue, guarantees),
            kind.codec.encode(job),
            kind.name,
            id=checked_name("id", id, may_be_empty=True),
            extra=record.to_bytes() or b"",
            delay=checked_delay(delay, guarantees.max_delay),
        )
        if guarantees.leases and not self._extends:
            message.visibility_timeout = min(allowed + _LEASE_MARGIN, guarantees.max_visibility)
        return message

    def _push(
        self, message: Message, push: Callable[[Message], None] | None = None
    ) -> DispatchResult:
        created = True
        try:
            (push or self._queue.push)(message)
        except BatchError as failures:
            error = failures.failed[0].error
            if not isinstance(error, AlreadyExists):
                # One job was dispatched: nobody wants its error wrapped in a batch.
                raise error from error.__cause__
            created = False
        if created and self._observers:
            record = Record.read(message.extra)
            notify(
                self._observers,
                "dispatched",
                JobEvent(
                    id=message.id,
                    kind=message.job_name,
                    queue=message.queue_name,
                    attempt=0,
                    max_retries=record.retries or 0,
                ),
            )
        return DispatchResult(message.id, message.queue_name, message.job_name, created)
