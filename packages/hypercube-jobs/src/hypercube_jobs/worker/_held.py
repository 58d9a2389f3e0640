"""The deliveries that a worker owns."""

from __future__ import annotations

import threading
from asyncio import Task
from collections.abc import Iterable
from enum import Enum, auto

from hypercube_jobs._attempt import Attempt
from hypercube_jobs._errors import JobError, UnknownKind, UnknownNamespace
from hypercube_jobs._failure import Failure
from hypercube_jobs._jobs import Jobs
from hypercube_jobs._middleware import Middleware
from hypercube_jobs._policy import DispatchLimits, Policy
from hypercube_jobs._record import Record
from hypercube_jobs._registry import Kind
from hypercube_jobs.worker._decision import Decision, Outcome, Standing, max_retries, standing
from hypercube_queue import Message

#: A moment that never comes, on the monotonic clock.
NEVER = float("inf")
#: Held while an attempt is made: there must be one only, since others note on it what it lost.
_one_attempt = threading.Lock()
#: What unknown kinds are treated by.
_DEFAULTS = Policy()


class Cause(Enum):
    """Why an attempt was ended from outside."""

    TIME_LIMIT = auto()
    SHUTDOWN = auto()
    LOST = auto()


class Held:
    """One delivery, from its pop to its settlement.

    Moments are on the monotonic clock, durations in seconds. `default_lease` is for messages
    that name none; NEVER where it is not known or there are no leases. `unknown` says why
    there is no `kind`.
    """

    __slots__ = (
        "_attempt",
        "abandoned",
        "began",
        "cancelled",
        "cause",
        "deadline",
        "decision",
        "duration",
        "error",
        "extend_at",
        "failure",
        "hopeless",
        "is_async",
        "kind",
        "lease",
        "leased_until",
        "message",
        "middleware",
        "outcome",
        "outcome_unknown",
        "overdue",
        "pause",
        "place",
        "policy",
        "popped_at",
        "record",
        "settling",
        "size",
        "standing",
        "started_at",
        "task",
        "thread_id",
        "timeout",
        "unknown",
        "unreadable",
    )

    def __init__(
        self,
        message: Message,
        kind: Kind | None,
        *,
        unknown: JobError | None = None,
        policy: Policy | None = None,
        middleware: tuple[Middleware, ...] = (),
        exact_attempts: bool,
        default_lease: float,
        now: float,
    ) -> None:
        self.message = message
        self.kind = kind
        self.unknown = unknown
        self.middleware = middleware
        self.policy = policy or (_DEFAULTS if kind is None else kind.policy)
        self.is_async = kind is not None and kind.is_async
        self.size = len(message.payload) + len(message.extra)
        self.record = record = Record.read(message.extra)
        self.standing: Standing = standing(message.attempt, record, exact=exact_attempts)
        self._attempt: Attempt | None = None
        self.timeout = record.timeout_seconds or self.policy.timeout.total_seconds()
        limit = self.policy.limits.timeout
        if limit is not None and self.timeout > limit.total_seconds():
            self.timeout = limit.total_seconds()
        # The lease
        self.popped_at = now
        lease = message.visibility_timeout
        self.lease = default_lease if lease is None else lease.total_seconds()
        self.leased_until = now + self.lease
        self.extend_at = now + self.lease / 3
        #: Its number among those that came to wait for a slot.
        self.place = 0
        # The attempt
        self.started_at = NEVER
        self.deadline = NEVER
        self.duration = 0.0
        #: The payload was read and the handler called.
        self.began = False
        #: The payload could not be read.
        self.unreadable = False
        #: Nobody waits for its end any more.
        self.hopeless = False
        #: It is settled without it.
        self.abandoned = False
        #: It is over its time-out, and was told to end.
        self.overdue = False
        #: The event loop has told its task to end.
        self.cancelled = False
        self.cause: Cause | None = None
        self.error: BaseException | None = None
        #: What is recorded of the error.
        self.failure: Failure | None = None
        self.task: Task[None] | None = None
        self.thread_id: int | None = None
        # The settlement
        self.outcome: Outcome | None = None
        self.decision: Decision | None = None
        self.settling = False
        self.outcome_unknown = False
        #: How long to wait before the next try, in seconds, once one was refused.
        self.pause = 0.0

    @property
    def attempt(self) -> Attempt:
        """What the handler can learn, made for whoever asks first: most never do."""
        if self._attempt is None:
            with _one_attempt:
                if self._attempt is None:
                    self._attempt = self._new_attempt()
        return self._attempt

    def _new_attempt(self) -> Attempt:
        message = self.message
        retries = max_retries(self.record, self.policy)
        return Attempt(
            id=message.id,
            kind=message.job_name,
            namespace=message.namespace,
            queue=message.queue_name,
            number=self.standing.number,
            max_retries=retries,
            trace=self.record.trace,
            declared=self.kind is not None,
            last=self.standing.used >= retries,
        )

    def strip_record(self) -> bool:
        """Reduce the message's record to the counters; False if it is so already."""
        bare = self.record.essentials()
        if self.message.extra == bare:
            return False
        self.message.extra = bare
        return True

    @property
    def lost(self) -> bool:
        return self.cause is Cause.LOST


class Policies:
    """How the jobs of each kind are treated, within the limits of a worker."""

    def __init__(self, limits: DispatchLimits) -> None:
        self._limits = limits
        self._by_kind: dict[Kind | None, Policy] = {}

    def of(self, kind: Kind | None) -> Policy:
        """The policy of a kind, or of what has none, with all of its limits."""
        policy = self._by_kind.get(kind)
        if policy is None:
            own = _DEFAULTS if kind is None else kind.policy
            policy = self._by_kind[kind] = own.within(self._limits)
        return policy


def held_for(
    jobs: Jobs,
    messages: Iterable[Message],
    policies: Policies,
    *,
    default_lease: float,
    now: float,
) -> list[Held]:
    """What a worker of `jobs` holds when it has popped `messages`."""
    middleware = jobs.middleware
    exact_attempts = jobs.queue.guarantees.exact_attempts
    some: list[Held] = []
    for message in messages:
        kind: Kind | None = None
        unknown: JobError | None = None
        try:
            kind = jobs.kind_of(message)
        except (UnknownKind, UnknownNamespace) as error:
            unknown = error
        held = Held(
            message,
            kind,
            unknown=unknown,
            policy=policies.of(kind),
            middleware=middleware,
            exact_attempts=exact_attempts,
            default_lease=default_lease,
            now=now,
        )
        some.append(held)
    return some


class Holding:
    """All deliveries that the worker has popped and not settled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[Held] = set()
        #: How much their payloads and records have together.
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, held: Held) -> bool:
        return held in self._all

    def add(self, some: Iterable[Held]) -> None:
        with self._lock:
            for held in some:
                if held not in self._all:
                    self._all.add(held)
                    self.bytes += held.size

    def remove(self, some: Iterable[Held]) -> None:
        with self._lock:
            for held in some:
                if held in self._all:
                    self._all.remove(held)
                    self.bytes -= held.size

    def snapshot(self) -> list[Held]:
        """Those of this moment."""
        with self._lock:
            return list(self._all)
