"""What may be said about the jobs of a kind, and about one job."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypedDict

from hypercube_jobs._backoff import (
    Backoff,
    Constant,
    Exponential,
    checked_backoff,
    longest_delay,
)
from hypercube_queue import Guarantees, InvalidArgument
from hypercube_queue.checks import checked_delay, checked_queue_name, checked_visibility, safe_repr

DEFAULT_QUEUE = "default"
DEFAULT_RETRIES = 3
#: Patient enough that a rolling deploy ends before the retries do.
DEFAULT_BACKOFF = Exponential(timedelta(seconds=10), jitter=0.1)
DEFAULT_TIMEOUT = timedelta(minutes=1)

#: More than anybody waits for, and a limit for what a foreign record may claim.
MAX_RETRIES = 1_000_000

# What a job may be dispatched with unless its kind has limits of its own.
DEFAULT_MAX_RETRIES = 1_000
DEFAULT_MAX_TIMEOUT = timedelta(days=1)
DEFAULT_MAX_BACKOFF = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """The most that a job may be dispatched with.

        @jobs.handler("import", limits=DispatchLimits(retries=10, timeout=timedelta(minutes=5)))

    Retries, time-out and backoff of a job travel with it, so that whoever may publish decides
    about them. A dispatch that asks for more than the limits of its kind is refused; what comes
    out of the queue with more is treated as if it had asked for that much. The limits of a
    worker hold for all kinds besides. What is None is as said elsewhere: for a kind 1,000
    retries, a day and seven days, or what the kind itself says if that is more; for a worker
    nothing. Raises InvalidArgument.
    """

    retries: int | None = None
    timeout: timedelta | None = None
    #: The longest delay that a backoff may come to.
    backoff: timedelta | None = None

    def __post_init__(self) -> None:
        if self.retries is not None:
            checked_retries(self.retries)
        if self.timeout is not None:
            checked_timeout(self.timeout)
        if self.backoff is not None:
            checked_delay(self.backoff)


class KindOptions(TypedDict, total=False):
    """How the jobs of a kind are treated, unless a dispatch says otherwise."""

    #: The queue they go to; "default" if not given.
    queue: str | None
    #: How often a failed job is tried again; 3 if not given.
    retries: int | None
    #: How long it waits before each of these; if not given 10 s, doubled each time.
    backoff: Backoff | None
    #: How long one attempt may take; one minute if not given.
    timeout: timedelta | None
    #: The most that one of them may be dispatched with.
    limits: DispatchLimits | None


class DispatchOptions(TypedDict, total=False):
    """How one job is treated; what is not given, or None, is as its kind says."""

    queue: str | None
    #: How long it is invisible at first; nothing if not given.
    delay: timedelta
    #: An id of your own: the queue holds at most one job of it at a time.
    id: str
    retries: int | None
    #: It travels with the job, which a function of your own could not.
    backoff: Constant | Exponential | None
    timeout: timedelta | None


#: What other libraries call an option, or have that is none here, and what takes its place.
_ELSEWHERE = {
    "acks_late": "nothing: a job is acknowledged once it is done",
    "args": "the fields of the job",
    "at": "delay=due - datetime.now(UTC)",
    "autoretry_for": "retries, which all errors but PermanentError use",
    "countdown": "delay=timedelta(seconds=...)",
    "default_retry_delay": "backoff=Constant(timedelta(seconds=...))",
    "delay_seconds": "delay=timedelta(seconds=...)",
    "enqueue_in": "delay=...",
    "eta": "delay=eta - datetime.now(UTC)",
    "expires": "a field of the job that its handler looks at",
    "job_id": "id=...",
    "job_timeout": "timeout=timedelta(seconds=...)",
    "kwargs": "the fields of the job",
    "max_attempts": "retries=..., one less: the first attempt is none",
    "max_retries": "retries=...",
    "name": "the kind",
    "priority": "queue=..., with a queue of its own that workers serve first",
    "queue_name": "queue=...",
    "retry": "retries=...",
    "retry_backoff": "backoff=Exponential(timedelta(seconds=...))",
    "routing_key": "queue=...",
    "schedule": "delay=...",
    "soft_time_limit": "timeout=timedelta(seconds=...)",
    "task_id": "id=...",
    "time_limit": "timeout=timedelta(seconds=...)",
    "unique": "id=..., which the queue holds once",
}


def check_options(options: Mapping[str, object], known: Set[str], what: str) -> None:
    """Raise TypeError for an option that `what` does not have, with the one to take."""
    unknown = options.keys() - known
    if not unknown:
        return
    name = min(unknown)
    near = difflib.get_close_matches(name, known, n=1)
    meant = _ELSEWHERE.get(name) or (f"{near[0]}=..." if near else None)
    hint = f"did you mean {meant}?" if meant else f"there are {', '.join(sorted(known))}"
    raise TypeError(f"{name} is no option of {what}: {hint}")


KIND_OPTIONS = frozenset(KindOptions.__annotations__)
DISPATCH_OPTIONS = frozenset(DispatchOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options of a kind, complete."""

    queue: str = DEFAULT_QUEUE
    retries: int = DEFAULT_RETRIES
    backoff: Backoff = DEFAULT_BACKOFF
    timeout: timedelta = DEFAULT_TIMEOUT
    limits: DispatchLimits = DispatchLimits()

    def max_retries(self) -> int:
        """The most retries that a job may be dispatched with."""
        limit = self.limits.retries
        return max(DEFAULT_MAX_RETRIES, self.retries) if limit is None else limit

    def max_timeout(self) -> timedelta:
        """The longest time-out that a job may be dispatched with."""
        limit = self.limits.timeout
        return max(DEFAULT_MAX_TIMEOUT, self.timeout) if limit is None else limit

    def max_backoff(self) -> timedelta:
        """The longest delay that the backoff of a dispatch may come to."""
        limit = self.limits.backoff
        if limit is not None:
            return limit
        return max(DEFAULT_MAX_BACKOFF, longest_delay(self.backoff))

    def within(self, limits: DispatchLimits) -> Policy:
        """The same policy, with limits that are no wider than these."""
        return replace(
            self,
            limits=DispatchLimits(
                retries=_lesser(self.max_retries(), limits.retries),
                timeout=_lesser(self.max_timeout(), limits.timeout),
                backoff=_lesser(self.max_backoff(), limits.backoff),
            ),
        )


def checked_policy(
    guarantees: Guarantees,
    *,
    queue: str | None = None,
    retries: int | None = None,
    backoff: Backoff | None = None,
    timeout: timedelta | None = None,
    limits: DispatchLimits | None = None,
) -> Policy:
    """The default policy with what is given replaced. Raises InvalidArgument."""
    limits = DispatchLimits() if limits is None else limits
    if not isinstance(limits, DispatchLimits):
        raise InvalidArgument(f"limits is a DispatchLimits object, not {type(limits).__name__}")
    policy = Policy(
        queue=DEFAULT_QUEUE if queue is None else checked_queue_name(queue, guarantees),
        retries=(
            _lesser(DEFAULT_RETRIES, limits.retries)
            if retries is None
            else checked_retries(retries)
        ),
        backoff=(
            replace(DEFAULT_BACKOFF, cap=_lesser(DEFAULT_BACKOFF.cap, limits.backoff))
            if backoff is None
            else checked_backoff(backoff)
        ),
        timeout=(
            _lesser(DEFAULT_TIMEOUT, limits.timeout)
            if timeout is None
            else checked_timeout(timeout)
        ),
        limits=limits,
    )
    check_limits(policy, retries=policy.retries, timeout=policy.timeout, backoff=policy.backoff)
    return policy


def check_limits(
    policy: Policy,
    *,
    retries: int | None = None,
    timeout: timedelta | None = None,
    backoff: Backoff | None = None,
) -> None:
    """Raise InvalidArgument for what is given and is more than the limits of `policy` allow."""
    values: tuple[tuple[str, Any, Any], ...] = (
        ("retries", retries, policy.max_retries()),
        ("timeout", timeout, policy.max_timeout()),
        ("backoff", None if backoff is None else longest_delay(backoff), policy.max_backoff()),
    )
    for name, value, limit in values:
        if value is not None and value > limit:
            raise InvalidArgument(
                f"{name} is {value}, but the limit of this kind is {limit}; declare the kind "
                f"with limits=DispatchLimits({name}=...) to allow more"
            )


def _lesser(value: Any, limit: Any) -> Any:
    return value if limit is None else min(value, limit)


def checked_retries(value: object) -> int:
    """`value` if it is a number of retries."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"retries is an int, not {type(value).__name__}")
    if not 0 <= value <= MAX_RETRIES:
        raise InvalidArgument(
            f"retries is {safe_repr(value)}; it is 0, for one attempt only, to {MAX_RETRIES:,}"
        )
    return value


def checked_timeout(value: object) -> timedelta:
    """`value` if it can bound an attempt."""
    return checked_visibility(value, field="timeout")
