"""What an attempt's end means for the message: the whole policy, without any I/O."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import TypeAlias

from hypercube_jobs._failure import text_of, type_name
from hypercube_jobs._policy import DEFAULT_BACKOFF, Policy
from hypercube_jobs._record import Record

#: How many shutdowns in a row may interrupt a job at no cost.
MAX_FREE_INTERRUPTIONS = 3

_AT_ONCE = timedelta(0)
_log = logging.getLogger("hypercube_jobs.worker")


class Outcome(Enum):
    """How an attempt ended."""

    DONE = auto()
    FAILED = auto()
    #: Failed so that no retry can help.
    PERMANENT = auto()
    #: Cancelled by a shutdown.
    INTERRUPTED = auto()


@dataclass(frozen=True, slots=True)
class Ack:
    """The job is done."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The job is tried again after `delay`; `free` if this attempt is not counted."""

    delay: timedelta
    free: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The job is not tried again."""


@dataclass(frozen=True, slots=True)
class Release:
    """The delivery goes back as if it had not been popped."""


Decision: TypeAlias = Ack | Retry | DeadLetter | Release


class Isolation(Enum):
    """Whether a job has to run while its process holds no other (ATT-3).

        NONE -> SUSPECTED -> QUARANTINED -> NONE, once its run has ended by itself
                                  |  ^
                                  v  |
                                  LOST -> dead, once its retries are used up

    A worker stores the quarantine, by a retry, before the lone run, and the delivery that
    follows it is that run. So a later delivery proves that the run was lost, while a job that
    was only held by a process that died, however often, is never more than suspected.
    """

    NONE = auto()
    #: An earlier delivery was lost, which may have been the fault of any job of its process.
    SUSPECTED = auto()
    #: This delivery is the lone run.
    QUARANTINED = auto()
    #: The lone run was lost.
    LOST = auto()

    @property
    def is_unrecorded(self) -> bool:
        """Whether the record does not say yet what it has to say before the next run."""
        return self in _UNRECORDED


_UNRECORDED = frozenset({Isolation.SUSPECTED, Isolation.LOST})


@dataclass(frozen=True, slots=True)
class Standing:
    """What a delivery's count and record say about the attempts before it."""

    #: The number of this attempt, as handlers see it (ATT-1).
    number: int
    #: Lone runs that left no record: their process ended, or their lease did (ATT-3).
    lost: int
    #: How much of the retries is used up: recorded failures and lost lone runs.
    used: int
    isolation: Isolation = Isolation.NONE


_FIRST = Standing(number=1, lost=0, used=0)


def standing(deliveries: int, record: Record, *, exact: bool) -> Standing:
    """Where a job stands at its `deliveries`-th delivery.

    A count that is not `exact` is good for a suspicion only; the rest is in the record (ATT-4).
    """
    if deliveries == 1 and record.is_new:
        return _FIRST
    failures = record.failures
    lost = record.lost
    seen = record.deliveries
    isolation = Isolation.NONE
    # A record that claims to have seen this delivery is wrong, or was moved to another backend.
    missed = deliveries - 1 - (seen if seen < deliveries else 0)
    if not record.quarantined or deliveries == 1:
        isolation = Isolation.SUSPECTED if missed else Isolation.NONE
    elif missed:
        isolation = Isolation.LOST
        lost += 1
    else:
        isolation = Isolation.QUARANTINED
    used = failures + lost
    number = deliveries - min(record.free, deliveries - 1) if exact else used + 1
    return Standing(number, lost, used, isolation)


def max_retries(record: Record, policy: Policy) -> int:
    """How often the job may be retried: as it was dispatched, else as its handler says."""
    retries = record.retries
    return policy.retries if retries is None else min(retries, policy.max_retries())


def is_exhausted(standing: Standing, record: Record, policy: Policy) -> bool:
    """Whether a lone run that was lost has used up the retries, so none is left."""
    lost = standing.isolation is Isolation.LOST
    return lost and standing.used > max_retries(record, policy)


def decide(
    outcome: Outcome,
    standing: Standing,
    record: Record,
    policy: Policy,
    *,
    wanted: timedelta | None = None,
) -> Ack | Retry | DeadLetter:
    """What is to be done after an attempt. `record` is the one the attempt began with.

    `wanted` is the delay that the handler itself named.
    """
    if outcome is Outcome.DONE:
        return Ack()
    if outcome is Outcome.PERMANENT:
        return DeadLetter()
    if outcome is Outcome.INTERRUPTED and record.interrupted < MAX_FREE_INTERRUPTIONS:
        return Retry(_AT_ONCE, free=True)
    failures = standing.used + 1
    if failures > max_retries(record, policy):
        return DeadLetter()
    return Retry(_backoff(record, policy, failures) if wanted is None else wanted)


def _backoff(record: Record, policy: Policy, failures: int) -> timedelta:
    backoff = record.backoff or policy.backoff
    try:
        delay = backoff(failures)
        if delay >= _AT_ONCE:
            return delay if record.backoff is None else min(delay, policy.max_backoff())
        problem: object = f"gave {delay}"
    except BaseException as error:  # noqa: BLE001  # an application's function may raise anything
        problem = f"raised {type_name(error)}: {text_of(error)}"
    _log.error("backoff %r %s after failure %d; the default is used", backoff, problem, failures)
    return DEFAULT_BACKOFF(failures)
