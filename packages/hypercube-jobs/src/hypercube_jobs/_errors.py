"""What goes wrong with jobs.

JobError
├── PermanentError          raised by handlers: do not retry
├── DuplicateKind           (also a ValueError)
├── UnknownKind             (also a LookupError)
├── UnknownNamespace        (also a LookupError)
├── InvalidPayload          (also a ValueError)
├── InlineDelay             a delay, where jobs run at once (also an InvalidArgument)
├── NotSupported            the driver cannot do this
├── TimeLimitExceeded       (also a TimeoutError)
├── Interrupted             a shutdown ended the attempt
└── WorkerLost              the process ended while it ran the job

A bad option or argument is `hypercube_queue.InvalidArgument`, as everywhere in Hypercube.
The last three are never raised at anybody: they name what the worker writes into a job's
failure record.
"""

from __future__ import annotations

from hypercube_queue import InvalidArgument


class JobError(Exception):
    """The root of all errors that this package defines."""


class PermanentError(JobError):
    """Raise it in a handler when retrying cannot help: the job is dead-lettered at once.

        raise PermanentError("the order was deleted") from error

    A subclass of your own that also derives from another error works as well.
    """


class DuplicateKind(JobError, ValueError):
    """The kind, or an alias, is declared already, or has a handler already."""


class UnknownKind(JobError, LookupError):
    """No kind of this name or for this type is declared here, or it has no handler here.

    In a worker it is a failed attempt like any other, since a rolling deploy may bring the
    handler; at dispatch it is raised before anything is stored.
    """


class UnknownNamespace(JobError, LookupError):
    """A message belongs to a namespace that nobody asked for with `jobs.under`.

    In a worker its job is dead-lettered at once: a whole plugin is missing, which is no
    matter of waiting. Once it is there, retry the failed jobs.
    """


class InvalidPayload(JobError, ValueError):
    """A job does not have the shape its kind was declared with.

    At dispatch it is raised before anything is stored; in a worker the job is dead-lettered
    at once. The text says where and what is wrong, and never shows the values.
    """


class InlineDelay(JobError, InvalidArgument):
    """A job with a delay was dispatched to an InlineQueue, which would run it early."""


class NotSupported(JobError):
    """The queue's driver lacks the capability for what was asked."""


class TimeLimitExceeded(JobError, TimeoutError):
    """The attempt ran longer than its time-out."""


class Interrupted(JobError):
    """The attempt was cancelled by a shutdown, for the fourth time in a row or later."""


class WorkerLost(JobError):
    """The worker's process ended while it ran the job, more often than the job has retries."""
