"""Typed background jobs and their worker on any Hypercube queue.

`Jobs` declares kinds of jobs and dispatches them; `Worker` runs their handlers.
"""

from __future__ import annotations

from hypercube_jobs.__about__ import __version__
from hypercube_jobs._attempt import Attempt, current_attempt
from hypercube_jobs._backoff import Backoff, Constant, Exponential
from hypercube_jobs._errors import (
    DuplicateKind,
    Interrupted,
    InvalidPayload,
    JobError,
    NotSupported,
    PermanentError,
    Retry,
    ThreadInterrupt,
    TimeLimitExceeded,
    UnknownKind,
    WorkerLost,
)
from hypercube_jobs._failed_jobs import FailedJob
from hypercube_jobs._failure import Failure
from hypercube_jobs._jobs import DispatchResult, Jobs
from hypercube_jobs._observer import JobEvent, Observer
from hypercube_jobs._periodic import PeriodicJob, PeriodicOptions
from hypercube_jobs._periodic_times import Cron, Every, When
from hypercube_jobs._policy import DispatchOptions, KindOptions, Policy
from hypercube_jobs._registry import Kind
from hypercube_jobs._scheduler import Scheduler
from hypercube_jobs.worker import Ending, Worker

__all__ = [
    "Attempt",
    "Backoff",
    "Constant",
    "Cron",
    "DispatchOptions",
    "DispatchResult",
    "DuplicateKind",
    "Ending",
    "Every",
    "Exponential",
    "FailedJob",
    "Failure",
    "Interrupted",
    "InvalidPayload",
    "JobError",
    "JobEvent",
    "Jobs",
    "Kind",
    "KindOptions",
    "NotSupported",
    "Observer",
    "PeriodicJob",
    "PeriodicOptions",
    "PermanentError",
    "Policy",
    "Retry",
    "Scheduler",
    "ThreadInterrupt",
    "TimeLimitExceeded",
    "UnknownKind",
    "When",
    "Worker",
    "WorkerLost",
    "__version__",
    "current_attempt",
]
