"""Declaring kinds of jobs, and dispatching them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, Unpack

from hypercube_jobs._dispatcher import Dispatcher, DispatchResult
from hypercube_jobs._periodic import PeriodicJob, PeriodicOptions, periodic_job
from hypercube_jobs._periodic_times import When
from hypercube_jobs._policy import (
    DISPATCH_OPTIONS,
    KIND_OPTIONS,
    DispatchOptions,
    KindOptions,
    check_options,
    checked_policy,
)
from hypercube_jobs._registry import Kind, Registry, check_handler, job_type
from hypercube_queue import InvalidArgument, Message
from hypercube_queue.checks import checked_name, safe_repr

H = TypeVar("H", bound=Callable[[Any], object])


class Namespace:
    """Kinds of jobs that cannot clash with equal ones of other namespaces.

        mail = jobs.under("mail")

        @mail.handler("send")
        def send(job: Mail) -> None: ...

        mail.dispatch(Mail(to="somebody@example.com"))

    `jobs.under` makes it. The messages of its jobs carry its name. Kinds are declared at
    import, before anything is dispatched or worked on; all the rest may be called from any
    thread.
    """

    def __init__(self, name: str, dispatcher: Dispatcher) -> None:
        self._name = name
        self._dispatcher = dispatcher
        self._registry = Registry(name)
        self._periodic: dict[str, PeriodicJob] = {}

    @property
    def name(self) -> str:
        """The namespace of its messages; empty for that of `Jobs` itself."""
        return self._name

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
        check_options(options, KIND_OPTIONS, "a kind")
        policy = checked_policy(self._dispatcher.queue.guarantees, **options)
        self._registry.declare(kind, type, policy, aliases)

    def handler(
        self, kind: str, *, aliases: Iterable[str] = (), **options: Unpack[KindOptions]
    ) -> Callable[[H], H]:
        """Make a function, `def` or `async def`, the handler of `kind`.

        A kind that is not declared yet is declared with the type of the function's first
        parameter and with the options. For a declared kind no options may be given: they
        stand where it is declared. The function itself stays as it is.

        Raises as `declare` does, and DuplicateKind for a second handler.
        """
        check_options(options, KIND_OPTIONS, "a kind")
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

    def kinds(self) -> list[Kind]:
        """All that is declared, in that order."""
        return self._registry.all()

    def kind(self, name: str) -> Kind | None:
        """What is declared under this name or alias, or None."""
        return self._registry.get(name)

    # Dispatching

    def dispatch(self, job: object, **options: Unpack[DispatchOptions]) -> DispatchResult:
        """Store a job, and return when it is stored.

        The options are those of `DispatchOptions`; they win over those of its kind and travel
        with the job. With an `id` of your own it is stored at most once as long as the queue
        holds it, waiting, running or dead: `created` says whether it was, and repeating a
        dispatch whose outcome is unknown is safe.

        Blocks as long as the driver's push does. Raises UnknownKind for a type with no kind
        or with several, InvalidPayload, InvalidArgument for a bad option, and what the push
        raised; all before anything is stored, but for a BackendError with unknown outcome.
        """
        return self._dispatcher.push(self.message(job, **options))

    def dispatch_kind(
        self, kind: str, payload: object, **options: Unpack[DispatchOptions]
    ) -> DispatchResult:
        """`dispatch` by kind: for a TypedDict, and for types with several kinds.

        `payload` is of the kind's type, or a mapping with its fields.
        """
        return self._dispatcher.push(self.message(payload, kind=kind, **options))

    async def dispatch_async(
        self, job: object, **options: Unpack[DispatchOptions]
    ) -> DispatchResult:
        """`dispatch` for asyncio: it runs in a thread and does not block the event loop.

        Cancelling it ends the waiting, not the dispatch.
        """
        return await self._dispatcher.push_async(self.message(job, **options))

    async def dispatch_kind_async(
        self, kind: str, payload: object, **options: Unpack[DispatchOptions]
    ) -> DispatchResult:
        """`dispatch_kind` for asyncio, as `dispatch_async` is."""
        return await self._dispatcher.push_async(self.message(payload, kind=kind, **options))

    def dispatch_within(
        self, connection: object, job: object, **options: Unpack[DispatchOptions]
    ) -> DispatchResult:
        """`dispatch` within the caller's transaction: the job exists only if it commits.

        `connection` is an SQLAlchemy Session or Connection, Django's connection, or what else
        the driver takes. A driver that can (TransactionalPusher) stores the job in that
        transaction if it is one of the queue's own database, so the job exists if and only if it
        commits. Else it is stored right after the commit: `created` is None then, and what goes
        wrong so late is logged and not raised, as nothing can be undone any more; the process may
        also end in between. Where no transaction is open it is stored now.

        Raises as `dispatch` does, and NotSupported where the driver cannot join and nothing tells
        when `connection` commits. An AsyncSession needs `dispatch_within_async`.
        """
        return self._dispatcher.push_within(connection, self.message(job, **options))

    def dispatch_kind_within(
        self, connection: object, kind: str, payload: object, **options: Unpack[DispatchOptions]
    ) -> DispatchResult:
        """`dispatch_kind` within the caller's transaction, as `dispatch_within` is."""
        message = self.message(payload, kind=kind, **options)
        return self._dispatcher.push_within(connection, message)

    async def dispatch_within_async(
        self, connection: object, job: object, **options: Unpack[DispatchOptions]
    ) -> DispatchResult:
        """`dispatch_within` for asyncio: an AsyncSession, an AsyncConnection, or any of those.

        A synchronous connection blocks the event loop, as its own calls do.
        """
        return await self._dispatcher.push_within_async(connection, self.message(job, **options))

    async def dispatch_kind_within_async(
        self, connection: object, kind: str, payload: object, **options: Unpack[DispatchOptions]
    ) -> DispatchResult:
        """`dispatch_kind` within the caller's transaction, as `dispatch_within_async` is."""
        message = self.message(payload, kind=kind, **options)
        return await self._dispatcher.push_within_async(connection, message)

    def message(
        self, job: object, *, kind: str | None = None, **options: Unpack[DispatchOptions]
    ) -> Message:
        """The message that `dispatch` would push, for code that pushes many at once.

        jobs.queue.push(*(jobs.message(SendInvoice(order)) for order in orders))
        """
        if options:
            check_options(options, DISPATCH_OPTIONS, "a dispatch")
        declared = self._registry.of(job) if kind is None else self._registry.named(kind)
        return self._dispatcher.message(declared, job, **options)

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
        periodic = periodic_job(name, when, job, namespace=self._name, kind=kind, options=options)
        if name in self._periodic:
            raise InvalidArgument(f"a periodic job is named {safe_repr(name)} already")
        if not periodic.is_made:
            self.message(job, kind=kind, **options)
        self._periodic[name] = periodic
