"""Typed background jobs and their worker on any Hypercube queue.

`Jobs` declares kinds of jobs and dispatches them; `Worker` runs their handlers.
"""

from __future__ import annotations

from hypercube_jobs.__about__ import __version__
from hypercube_jobs._attempt import Attempt, current_attempt
from hypercube_jobs._backoff import Backoff, Constant, Exponential
from hypercube_jobs._clock import Clock
from hypercube_jobs._dispatcher import DispatchResult
from hypercube_jobs._errors import (
    DuplicateKind,
    InlineDelay,
    Interrupted,
    InvalidPayload,
    JobError,
    NotSupported,
    PermanentError,
    Retry,
    ThreadInterrupt,
    TimeLimitExceeded,
    UnknownKind,
    UnknownNamespace,
    WorkerFailed,
    WorkerLost,
)
from hypercube_jobs._failed_jobs import FailedJob
from hypercube_jobs._failure import Failure
from hypercube_jobs._inline import InlineQueue
from hypercube_jobs._jobs import Jobs
from hypercube_jobs._middleware import Dispatch, Middleware
from hypercube_jobs._namespace import Namespace
from hypercube_jobs._observer import JobEvent, Observer
from hypercube_jobs._periodic import PeriodicJob, PeriodicOptions
from hypercube_jobs._periodic_times import Cron, Every, When
from hypercube_jobs._policy import DispatchLimits, DispatchOptions, KindOptions, Policy
from hypercube_jobs._registry import Kind
from hypercube_jobs._scheduler import Scheduler
from hypercube_jobs.worker import MAX_FREE_INTERRUPTIONS, Ending, Worker, process

__all__ = [
    "MAX_FREE_INTERRUPTIONS",
    "Attempt",
    "Backoff",
    "Clock",
    "Constant",
    "Cron",
    "Dispatch",
    "DispatchLimits",
    "DispatchOptions",
    "DispatchResult",
    "DuplicateKind",
    "Ending",
    "Every",
    "Exponential",
    "FailedJob",
    "Failure",
    "InlineDelay",
    "InlineQueue",
    "Interrupted",
    "InvalidPayload",
    "JobError",
    "JobEvent",
    "Jobs",
    "Kind",
    "KindOptions",
    "Middleware",
    "Namespace",
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
    "UnknownNamespace",
    "When",
    "Worker",
    "WorkerFailed",
    "WorkerLost",
    "__version__",
    "current_attempt",
    "process",
]
