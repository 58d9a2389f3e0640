"""What goes wrong with jobs.

JobError
├── PermanentError          raised by handlers: do not retry
├── Retry                   raised by handlers: retry after this delay
├── DuplicateKind           (also a ValueError)
├── UnknownKind             (also a LookupError)
├── UnknownNamespace        (also a LookupError)
├── InvalidPayload          (also a ValueError)
├── InlineDelay             a delay, where jobs run at once (also an InvalidArgument)
├── NotSupported            the driver cannot do this
├── TimeLimitExceeded       (also a TimeoutError)
├── WorkerFailed            a part of the worker has died
├── Interrupted             a shutdown ended the attempt
└── WorkerLost              the process ended while it ran the job

ThreadInterrupt (a BaseException)  raised in handlers that are interrupted

A bad option or argument is `hypercube_queue.InvalidArgument`, as everywhere in Hypercube.
The last two are never raised at anybody, nor is TimeLimitExceeded: they name what the worker writes
into a job's failure record.
"""

from __future__ import annotations

from datetime import timedelta

from hypercube_queue import InvalidArgument
from hypercube_queue.checks import checked_delay


class ThreadInterrupt(BaseException):
    """Raised in the thread of a synchronous handler that the worker interrupts.

    Only by a worker with `interrupt_threads=True`. Like `asyncio.CancelledError` it is no
    Exception, so that `except Exception` does not take it for a failure of its own: clean up in
    a `finally`, and let it go on.
    """


class JobError(Exception):
    """The root of all errors that this package defines."""


class PermanentError(JobError):
    """Raise it in a handler when retrying cannot help: the job is dead-lettered at once.

        raise PermanentError("the order was deleted") from error

    A subclass of your own that also derives from another error works as well. So does one that is
    the explicit cause of the error that the handler raises (`raise OrderError() from
    PermanentError("...")`), and a group of errors each of which is one; where Retry is meant in the
    same way, the outermost of them counts.
    """


class Retry(JobError):
    """Raise it in a handler to say when the job is to be tried again.

        raise Retry("the bank is closed", delay=timedelta(hours=1)) from error

    The attempt has failed like any other and uses up a retry; only the delay is not that of
    the backoff. As PermanentError it counts as an explicit cause and in a group of its like, whose
    longest delay is taken. Raises InvalidArgument for a delay that is negative or over ten years.
    """

    def __init__(self, text: str = "", *, delay: timedelta) -> None:
        super().__init__(text or f"to be tried again in {delay}")
        self.delay = checked_delay(delay)


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


class WorkerFailed(JobError):
    """A worker cannot go on, since one of its threads has died; raised by `Worker.run`.

    What could be settled is; other jobs of this worker come back when their leases end. Start
    another process: `hypercube work` does so by itself.
    """


class Interrupted(JobError):
    """The attempt was cancelled by a shutdown, for the fourth time in a row or later."""


class WorkerLost(JobError):
    """The worker's process ended while it ran the job, more often than the job has retries."""


# Tracebacks and logs name them by where they are imported from.
for _error in tuple(globals().values()):
    if (
        isinstance(_error, type)
        and issubclass(_error, BaseException)
        and _error.__module__ == __name__
    ):
        _error.__module__ = __name__.rpartition(".")[0]
