"""What may be said about the jobs of a kind, and about one job."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from hypercube_jobs._backoff import Backoff, Constant, Exponential, checked_backoff
from hypercube_queue import Guarantees, InvalidArgument
from hypercube_queue.driver import checked_queue_name, checked_visibility, shown

DEFAULT_QUEUE = "default"
DEFAULT_RETRIES = 3
#: Patient enough that a rolling deploy ends before the retries do.
DEFAULT_BACKOFF = Exponential(timedelta(seconds=10), jitter=0.1)
DEFAULT_TIMEOUT = timedelta(minutes=1)

#: More than anybody waits for, and a limit for what a foreign record may claim.
MAX_RETRIES = 1_000_000


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


def checked_policy(
    guarantees: Guarantees,
    *,
    queue: str | None = None,
    retries: int | None = None,
    backoff: Backoff | None = None,
    timeout: timedelta | None = None,
) -> Policy:
    """The default policy with what is given replaced. Raises InvalidArgument."""
    return Policy(
        queue=DEFAULT_QUEUE if queue is None else checked_queue_name(queue, guarantees),
        retries=DEFAULT_RETRIES if retries is None else checked_retries(retries),
        backoff=DEFAULT_BACKOFF if backoff is None else checked_backoff(backoff),
        timeout=DEFAULT_TIMEOUT if timeout is None else checked_timeout(timeout),
    )


def checked_retries(value: object) -> int:
    """`value` if it is a number of retries."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"retries is an int, not {type(value).__name__}")
    if not 0 <= value <= MAX_RETRIES:
        raise InvalidArgument(
            f"retries is {shown(value)}; it is 0, for one attempt only, to {MAX_RETRIES:,}"
        )
    return value


def checked_timeout(value: object) -> timedelta:
    """`value` if it can bound an attempt."""
    return checked_visibility(value, field="timeout")
