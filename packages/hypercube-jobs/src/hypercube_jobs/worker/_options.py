"""The options of a worker, checked before anything is popped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from hypercube_jobs._policy import DispatchLimits
from hypercube_jobs.worker._interruption import AVAILABLE
from hypercube_queue import MAX_DURATION, Guarantees, InvalidArgument
from hypercube_queue.checks import checked_count, checked_queue_name, safe_repr

#: More threads than this help nobody, and more coroutines than this are another program.
MAX_CONCURRENCY = 10_000
_NOTHING = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """See `Worker`. Raises InvalidArgument."""

    queues: tuple[str, ...]
    concurrency: int
    sleep: timedelta
    max_jobs: int | None
    stop_when_empty: bool
    stop_timeout: timedelta | None
    settle_after: timedelta
    interrupt_threads: bool
    process_ends: bool
    end_on_overrun: bool
    limits: DispatchLimits

    def __post_init__(self) -> None:
        checked_count("concurrency", self.concurrency, at_most=MAX_CONCURRENCY)
        if self.max_jobs is not None:
            checked_count("max_jobs", self.max_jobs)
        for name in ("stop_when_empty", "interrupt_threads", "process_ends", "end_on_overrun"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidArgument(f"{name} is {safe_repr(value)}, not a bool")
        if self.interrupt_threads and not AVAILABLE:
            raise InvalidArgument("interrupt_threads works on CPython only, not on this Python")
        if self.end_on_overrun and not self.process_ends:
            raise InvalidArgument(
                "end_on_overrun leaves a thread behind that only the end of the process ends, so "
                "it goes with process_ends"
            )
        if not isinstance(self.limits, DispatchLimits):
            raise InvalidArgument(
                f"limits is a DispatchLimits object, not {type(self.limits).__name__}"
            )
        _check_duration("sleep", self.sleep)
        if not self.sleep:
            raise InvalidArgument("sleep is 0; a pop that never waits would keep a core busy")
        _check_duration("settle_after", self.settle_after)
        if self.stop_timeout is not None:
            _check_duration("stop_timeout", self.stop_timeout)


def checked_queues(value: Sequence[str], guarantees: Guarantees) -> tuple[str, ...]:
    """The names of the queues, in order of priority."""
    if isinstance(value, str):
        raise InvalidArgument(f"queues is a list of names, such as [{value!r}], not a str")
    names = tuple(checked_queue_name(name, guarantees) for name in value)
    if not names:
        raise InvalidArgument("queues is empty; name at least one queue to work on")
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"queues has {safe_repr(name)} twice")
    return names


def _check_duration(field: str, value: object) -> None:
    if not isinstance(value, timedelta):
        raise InvalidArgument(f"{field} is a timedelta, not {type(value).__name__}")
    if not _NOTHING <= value <= MAX_DURATION:
        raise InvalidArgument(f"{field} is {value}; it is from zero to {MAX_DURATION}")
