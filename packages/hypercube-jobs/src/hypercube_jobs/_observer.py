"""Being told what happens to jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from hypercube_jobs._text import one_line

_log = logging.getLogger("hypercube_jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One step of a job. It carries no payload: payloads may hold what nobody should log."""

    id: str
    kind: str
    #: Empty but for the jobs of `jobs.under(namespace)`.
    namespace: str = ""
    queue: str
    #: 0 when the job was dispatched, else the number of the attempt.
    attempt: int
    max_retries: int
    #: When it failed: that there is no retry, the job is among the dead letters.
    final: bool = False
    #: How long the attempt took.
    duration: timedelta = timedelta(0)
    error: BaseException | None = None
    #: Whether the kind is declared here. Others are named by whoever pushes, so label no metric
    #: with them.
    declared: bool = True


class Observer:
    """Override what you want to know.

    Methods are called from the worker's threads, several at once, and delay it while they
    run. What they raise is logged and changes nothing.
    """

    def dispatched(self, event: JobEvent) -> None:
        """A job was stored by this process; not called for an id that was there already."""

    def processed(self, event: JobEvent) -> None:
        """A job is done and its message is gone."""

    def failed(self, event: JobEvent) -> None:
        """An attempt failed, and its retry or, if `event.final`, its dead letter is stored."""

    def interrupted(self, event: JobEvent) -> None:
        """A shutdown cancelled an attempt, and the job is back in its queue at no cost."""

    def lost(self, event: JobEvent) -> None:
        """An attempt came to nothing: its lease had ended, so its result was dropped."""


def notify(observers: Sequence[Observer], step: str, event: JobEvent) -> None:
    """Call the method `step` of all `observers`."""
    for observer in observers:
        try:
            getattr(observer, step)(event)
        except (Exception, GeneratorExit, SystemExit):  # noqa: BLE001  # whatever it raises is logged
            _log.exception(
                "the observer %s raised when job %s was %s; the job goes on as if it had not",
                type(observer).__name__,
                one_line(event.id),
                step,
            )
