"""A job that is dispatched again and again."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from hypercube_jobs._backoff import Constant, Exponential
from hypercube_jobs._periodic_times import When
from hypercube_jobs._text import checked_declared_name
from hypercube_queue import InvalidArgument
from hypercube_queue.checks import checked_name


class PeriodicOptions(TypedDict, total=False):
    """How the jobs of a periodic job are treated; what is not given is as their kind says."""

    queue: str | None
    retries: int | None
    backoff: Constant | Exponential | None
    timeout: timedelta | None


@dataclass(slots=True, kw_only=True, eq=False)
class PeriodicJob:
    """A name, the times when it is due, and what is dispatched then."""

    name: str
    #: Empty but for those of `jobs.under(namespace)`.
    namespace: str = ""
    when: When
    #: The job, or a function that makes it from its due time.
    job: object
    kind: str | None
    options: PeriodicOptions
    #: The last answer of `after`, since some expressions take long to come.
    _asked: tuple[datetime, datetime | None] | None = field(default=None, repr=False)

    def id(self, due: datetime) -> str:
        """The id of the job that is dispatched for `due`, the same for every scheduler."""
        whose = f"@{self.namespace}" if self.namespace else ""
        return f"cron{whose}:{self.name}:{due.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"

    @property
    def is_made(self) -> bool:
        """Whether `job` is a function that makes it."""
        return isinstance(self.job, _FUNCTIONS)

    def made_for(self, due: datetime) -> object:
        """The job to dispatch for `due`."""
        return self.job(due) if isinstance(self.job, _FUNCTIONS) else self.job

    def after(self, moment: datetime) -> datetime | None:
        """When it is due for the first time after `moment`, in UTC."""
        if self._asked is not None:
            asked, due = self._asked
            if asked <= moment and (due is None or moment < due):
                return due
        due = self.when.after(moment)
        self._asked = moment, due
        return due

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """When it is due after the one and not after the other."""
        due = self.after(after)
        while due is not None and due <= until:
            yield due
            due = self.after(due)


#: A job may well have a `__call__` of its own.
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def periodic_job(
    name: str,
    when: When,
    job: object,
    *,
    namespace: str,
    kind: str | None,
    options: PeriodicOptions,
) -> PeriodicJob:
    """Check what can be checked before it is due. Raises InvalidArgument."""
    checked_declared_name("name", name)
    if not callable(getattr(when, "after", None)):
        raise InvalidArgument(
            f"a job is due by Cron(...) or Every(...), not by {type(when).__name__}"
        )
    unknown = set(options) - PeriodicOptions.__annotations__.keys()
    if unknown:
        raise InvalidArgument(
            f"{min(unknown)} is no option of a periodic job: its id and its delay are those of its "
            "due time"
        )
    periodic = PeriodicJob(
        name=name, namespace=namespace, when=when, job=job, kind=kind, options=options
    )
    checked_name("id", periodic.id(datetime.max.replace(tzinfo=UTC)), may_be_empty=False)
    return periodic
