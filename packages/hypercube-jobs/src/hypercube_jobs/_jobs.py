"""The jobs of an application."""

from __future__ import annotations

import os
from collections.abc import Iterable

from hypercube_jobs import _failed_jobs
from hypercube_jobs._attached import AttachedQueue
from hypercube_jobs._clock import Clock, utc_now
from hypercube_jobs._dispatcher import Dispatcher
from hypercube_jobs._errors import NotSupported, UnknownKind, UnknownNamespace
from hypercube_jobs._failed_jobs import FailedJob
from hypercube_jobs._inline import InlineQueue
from hypercube_jobs._middleware import Middleware
from hypercube_jobs._namespace import Namespace
from hypercube_jobs._observer import Observer
from hypercube_jobs._periodic import PeriodicJob
from hypercube_jobs._registry import Kind
from hypercube_jobs._text import checked_declared_name
from hypercube_queue import (
    InvalidArgument,
    Message,
    Queue,
    StatsProvider,
    capability,
    open_queue,
)
from hypercube_queue.checks import safe_repr


class Jobs(Namespace):
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
        super().__init__("", Dispatcher(queue, clock))
        self._namespaces: dict[str, Namespace] = {"": self}
        self._host: object | None = None
        self.set_observers(*observers)
        if isinstance(queue, AttachedQueue):
            queue.attach(self)

    @classmethod
    def from_env(
        cls,
        variable: str = "HYPERCUBE_URL",
        *,
        observers: Iterable[Observer] = (),
        clock: Clock = utc_now,
    ) -> Jobs:
        """Jobs on the queue whose URL stands in an environment variable.

        `inline://` is an InlineQueue, for development. Raises InvalidArgument if the variable
        is empty or not set, and as `open_queue` does.
        """
        url = os.environ.get(variable)
        if not url:
            raise InvalidArgument(
                f"the environment variable {variable} is not set; it takes a queue URL such as "
                "sqlite:///jobs.db"
            )
        queue = InlineQueue() if url == "inline://" else open_queue(url)
        return cls(queue, observers=observers, clock=clock)

    @property
    def queue(self) -> Queue:
        """The queue that jobs are stored in."""
        return self._dispatcher.queue

    @property
    def clock(self) -> Clock:
        """What stamps dispatches and failures."""
        return self._dispatcher.clock

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who is told, in this order."""
        return self._dispatcher.observers

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """Those of the observers that wrap, outermost first."""
        return self._dispatcher.middleware

    def add_observer(self, observer: Observer) -> None:
        """Tell `observer` too, after the ones before it; a Middleware also wraps, within them.

        To be called before jobs are dispatched or worked on.
        """
        self._dispatcher.observe(*self._dispatcher.observers, observer)

    def set_observers(self, *observers: Observer) -> None:
        """Tell these and no others from now on."""
        self._dispatcher.observe(*observers)

    # Namespaces

    def under(self, namespace: str) -> Namespace:
        """The namespace of this name, such as a plugin's; the same object each time.

        Asking for it declares it: a worker without it dead-letters its jobs, while a kind
        that is missing from it is a failed attempt.
        """
        name = checked_declared_name("namespace", namespace)
        return self._namespaces.setdefault(name, Namespace(name, self._dispatcher))

    # What they run in

    @property
    def host(self) -> object | None:
        """What was named by `hosted_by`."""
        return self._host

    def hosted_by(self, host: object) -> None:
        """Name what has to be up while jobs run, a context manager such as an application.

        The commands `work` and `schedule` enter it in each of their processes, before the first
        job, and leave it after the last. An application of hypercube-plugins names itself when
        it provides Jobs. A Worker of your own enters nothing.
        """
        self._host = host

    # Periodic jobs

    def periodic(self) -> list[PeriodicJob]:
        """All that is scheduled, namespace by namespace, each in that order."""
        return [each for space in self._namespaces.values() for each in space._periodic.values()]

    def kinds(self) -> list[Kind]:
        """All that is declared, namespace by namespace, each in that order."""
        return [kind for space in self._namespaces.values() for kind in space._registry.all()]

    def kind_of(self, message: Message) -> Kind:
        """The kind of a message's job. Raises UnknownKind and UnknownNamespace."""
        space = self._namespaces.get(message.namespace)
        if space is None:
            raise UnknownNamespace(
                f"no namespace {safe_repr(message.namespace)} is declared here, so nothing can run "
                f"its job {safe_repr(message.job_name)}; start the worker with what declares it"
            )
        kind = space._registry.get(message.job_name)
        if kind is None:
            where = f" under {safe_repr(message.namespace)}" if message.namespace else ""
            raise UnknownKind(f"no kind {safe_repr(message.job_name)} is declared here{where}")
        return kind

    # Counts

    def pending(self, queue: str | None = None) -> int:
        """How many jobs are to be done: ready, delayed or running, in one queue or in all.

        Raises NotSupported where the driver cannot count.
        """
        stats = capability(self.queue, StatsProvider)
        if stats is None:
            raise NotSupported(
                "this queue's driver cannot count its messages; the broker's own tools can"
            )
        counts = [stats.stats(name) for name in self._queue_names(queue)]
        return sum(each.ready + each.delayed + each.in_flight for each in counts)

    # Failed jobs, of one queue or of all. Where the driver cannot list its queues, as on SQS and
    # RabbitMQ, NotSupported asks for a name.

    def failed(
        self,
        queue: str | None = None,
        *,
        limit: int = 100,
        before: str | None = None,
        payloads: bool = False,
    ) -> list[FailedJob]:
        """Up to `limit` failed jobs of a queue or of all queues, newest first.

        `before` is the cursor of a FailedJob of such a list: the page starts behind it. With
        `payloads` each has its payload. Raises NotSupported where the driver cannot look into its
        dead letters, or cannot list its queues and none was named.
        """
        return _failed_jobs.failed_jobs(self.queue, queue, limit, before, payloads=payloads)

    def retry(self, *ids: str, queue: str | None = None) -> int:
        """Make failed jobs ready again, as new, in a queue or in all; return how many there were.

        Raises NotSupported as `failed` does.
        """
        return _failed_jobs.retry(self.queue, self._queue_names(queue), ids)

    def retry_all(self, queue: str | None = None) -> int:
        """Make all failed jobs of a queue or of all ready again, as new; return how many.

        Raises NotSupported where the driver cannot list its queues and none was named.
        """
        names = self._queue_names(queue)
        return sum(_failed_jobs.retry_all(self.queue, name) for name in names)

    def forget(self, *ids: str, queue: str | None = None) -> int:
        """Remove failed jobs of a queue or of all for good; return how many there were.

        Raises NotSupported as `failed` does.
        """
        return _failed_jobs.forget(self.queue, self._queue_names(queue), ids)

    def forget_all(self, queue: str | None = None) -> int:
        """Remove all failed jobs of a queue or of all for good; return how many there were.

        Raises NotSupported as `failed` does.
        """
        names = self._queue_names(queue)
        return sum(_failed_jobs.forget_all(self.queue, name) for name in names)

    def _queue_names(self, queue: str | None) -> list[str]:
        return _failed_jobs.queue_names(self.queue) if queue is None else [queue]
