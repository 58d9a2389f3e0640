"""Telling logs and observers what became of an attempt."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta

from hypercube_jobs._jobs import Jobs
from hypercube_jobs._observer import JobEvent, notify
from hypercube_jobs._text import indented, one_line
from hypercube_jobs.worker._decision import Ack, DeadLetter, Outcome, Retry
from hypercube_jobs.worker._held import NEVER, Held

#: A logger below the worker's, so that who has other means to follow jobs can turn it down alone.
_log = logging.getLogger("hypercube_jobs.worker.jobs")

#: A log line is read by people; the failure record has the rest.
_TEXT_LENGTH = 200


class Reporter:
    """One line and one event for each attempt, with the traceback of those that end in death."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def settled(self, some: Iterable[Held]) -> None:
        """The decisions about these attempts are stored."""
        told_of_success = self._jobs.observers or _log.isEnabledFor(logging.INFO)
        for held in some:
            if told_of_success or not isinstance(held.decision, Ack):
                self._settled(held)

    def _settled(self, held: Held) -> None:
        decision = held.decision
        if isinstance(decision, Ack):
            _line(logging.INFO, held, "done")
            self._notify("processed", held)
        elif isinstance(decision, DeadLetter):
            # Not as exc_info: nobody knows what the text of an error does to a log's handlers.
            trace = "" if held.failure is None else f"\n{indented(held.failure.traceback.rstrip())}"
            _line(logging.ERROR, held, f"dead: {_cause(held)}{trace}")
            self._notify("failed", held, final=True)
        elif isinstance(decision, Retry) and not decision.free:
            cause = _cause(held)
            _line(logging.WARNING, held, f"failed, next attempt in {decision.delay}: {cause}")
            self._notify("failed", held)
        elif held.outcome is Outcome.INTERRUPTED:
            _line(logging.INFO, held, "interrupted, back in its queue at no cost")
            self._notify("interrupted", held)

    def lost(self, some: Iterable[Held]) -> None:
        """These no longer owned their messages; whatever the attempts came to is dropped."""
        for held in some:
            if held.started_at == NEVER:
                continue  # nothing had been done that could be lost
            _line(logging.WARNING, held, "lost its lease; its result is dropped and it runs again")
            self._notify("lost", held)

    def _notify(self, step: str, held: Held, *, final: bool = False) -> None:
        observers = self._jobs.observers
        if observers:
            attempt = held.attempt
            notify(
                observers,
                step,
                JobEvent(
                    id=attempt.id,
                    kind=attempt.kind,
                    namespace=attempt.namespace,
                    queue=attempt.queue,
                    attempt=attempt.number,
                    max_retries=attempt.max_retries,
                    final=final,
                    duration=timedelta(seconds=held.duration),
                    error=held.error,
                    declared=attempt.declared,
                ),
            )


def _line(level: int, held: Held, outcome: str) -> None:
    attempt = held.attempt
    _log.log(
        level,
        "job %s %s, queue %s, attempt %d, %.3f s: %s",
        _kind(held),
        one_line(attempt.id),
        one_line(attempt.queue),
        attempt.number,
        held.duration,
        outcome,
    )


def _kind(held: Held) -> str:
    attempt = held.attempt
    kind = attempt.kind or "(of no kind)"
    return one_line(f"{attempt.namespace}:{kind}" if attempt.namespace else kind)


def _cause(held: Held) -> str:
    failure = held.failure
    if failure is None:
        return "for no recorded reason"
    first = failure.text.partition("\n")[0]
    return one_line(f"{failure.type}: {first[:_TEXT_LENGTH]}")
