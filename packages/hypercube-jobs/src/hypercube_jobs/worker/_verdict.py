"""From how an attempt ended to a message that is ready to be settled."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import replace
from datetime import timedelta

from hypercube_jobs import _errors
from hypercube_jobs._clock import Clock
from hypercube_jobs._errors import (
    Interrupted,
    PermanentError,
    ThreadInterrupt,
    TimeLimitExceeded,
    UnknownNamespace,
    WorkerLost,
)
from hypercube_jobs._failure import failure_of
from hypercube_jobs._instruction import instruction_of
from hypercube_jobs.worker._decision import (
    MAX_FREE_INTERRUPTIONS,
    Ack,
    DeadLetter,
    Outcome,
    Release,
    Retry,
    decide,
)
from hypercube_jobs.worker._held import Cause, Held
from hypercube_queue import Guarantees
from hypercube_queue.checks import HEADROOM_BYTES, checked_delay

_ACK = Ack()
_AT_ONCE = timedelta(0)
#: What a handler ends with that was ended from outside.
_OURS = (CancelledError, ThreadInterrupt)


class Judge:
    """Decides about finished attempts, and writes into their messages what the decision needs.

    It runs in the handler's thread, so that settling is left with nothing but I/O.
    """

    def __init__(self, guarantees: Guarantees, clock: Clock) -> None:
        self._limit = guarantees.max_message_bytes
        self._max_delay = guarantees.max_delay
        self._clock = clock

    def judge(self, held: Held, *, not_before: timedelta = _AT_ONCE) -> None:
        """Decide about an attempt that has ended, with or without an error, or was abandoned.

        If it is tried again, then in `not_before` or later.
        """
        if held.error is None and held.cause is None:
            held.outcome = Outcome.DONE
            held.decision = _ACK
            return
        held.outcome = _outcome(held)
        error = held.error
        decision = held.decision = decide(
            held.outcome,
            held.standing,
            held.record,
            held.policy,
            wanted=_wanted_delay(held),
        )
        if isinstance(decision, Ack):
            return
        if isinstance(decision, Retry) and decision.delay < not_before:
            decision = held.decision = replace(decision, delay=not_before)
        record = held.record
        if isinstance(decision, Retry) and decision.free:
            record.note_interruption()
        elif error is not None:
            self._note_failure(held, error, held.standing.number)
            record.end_quarantine()
            if held.outcome is not Outcome.INTERRUPTED:
                record.end_interruptions()
        if isinstance(decision, DeadLetter):
            record.start_anew()
        held.message.delay = _AT_ONCE
        if isinstance(decision, Retry):
            held.message.delay = record.start_delay(decision.delay, self._max_delay, self._clock())
        self._write(held)

    def bury(self, held: Held) -> None:
        """Decide about a job whose lone runs have all come to nothing (ATT-3)."""
        held.outcome = Outcome.PERMANENT
        held.decision = DeadLetter()
        held.error = WorkerLost(
            f"the worker's process ended, or its lease did, in {held.standing.lost} runs of this "
            "job without any other; it is not tried again"
        )
        self._note_failure(held, held.error, held.standing.number - 1)
        held.record.start_anew()
        self._write(held)

    def put_off(self, held: Held) -> bool:
        """Decide that a job whose delay is not over waits on (ATT-1); False if it is due."""
        step = held.record.next_step(self._max_delay, self._clock)
        if not step:
            return False
        held.decision = Retry(step, free=True)
        held.record.note_free()
        held.message.delay = step
        self._write(held)
        return True

    def give_back(self, held: Held, *, releasable: bool) -> None:
        """Decide that a delivery goes back without having been run (ATT-1)."""
        if releasable:
            held.decision = Release()
        elif held.standing.isolation.is_unrecorded:
            self.quarantine(held)
        else:
            held.record.note_free()
            self._retry_free(held)

    def put_off_unrun(self, held: Held, delay: timedelta) -> None:
        """Decide that a delivery goes back, unrun and uncounted, for as long as `delay`."""
        held.record.note_free()
        held.decision = Retry(delay, free=True)
        held.message.delay = min(delay, self._max_delay)
        self._write(held)

    def quarantine(self, held: Held) -> None:
        """Decide that a delivery goes back unrun, and that the next one is run alone (ATT-3)."""
        held.record.note_quarantine(held.standing.lost)
        if not self._retry_free(held):
            # Unrecorded, its losses would never come to an end.
            held.outcome = Outcome.PERMANENT
            held.decision = DeadLetter()
            held.error = WorkerLost(
                "the worker's process ended, or its lease did, in a run of this job, whose "
                "message is too large to record that; it is not tried again"
            )
            held.failure = failure_of(held.error, attempt=held.standing.number, at=self._clock())

    def _retry_free(self, held: Held) -> bool:
        held.decision = Retry(_AT_ONCE, free=True)
        held.message.delay = _AT_ONCE
        return self._write(held)

    def _note_failure(self, held: Held, error: BaseException, number: int) -> None:
        if held.failure is None:
            held.failure = failure_of(error, attempt=number, at=self._clock())
        held.record.note_failure(held.failure)

    def _write(self, held: Held) -> bool:
        message = held.message
        if isinstance(held.decision, Retry):
            held.record.note_deliveries(message.attempt)
        room = None
        if self._limit is not None:
            room = self._limit + HEADROOM_BYTES - len(message.payload)
        extra = held.record.to_bytes(room)
        # A message that has no room even for the counters keeps what it has.
        if extra is not None:
            message.extra = extra
        return extra is not None


def _outcome(held: Held) -> Outcome:
    """How the attempt ended; where it was ended from outside, `held.error` is put in words."""
    error = held.error
    if held.cause is Cause.TIME_LIMIT:
        # Even if it returned after all: a time-out is a limit, for functions and coroutines.
        _blame_time_limit(held)
        return Outcome.FAILED
    if error is None:
        # A shutdown cancelled it, but it went on to its end.
        return Outcome.DONE
    if held.cause is Cause.SHUTDOWN and isinstance(error, _OURS):
        if held.record.interrupted >= MAX_FREE_INTERRUPTIONS:
            held.error = Interrupted(
                f"a shutdown cancelled the attempt; the {MAX_FREE_INTERRUPTIONS} before it in a "
                "row cost nothing"
            )
        return Outcome.INTERRUPTED
    # An unknown kind may come with the next deploy; an unknown namespace is a missing plugin.
    unknown = not held.began and isinstance(error, UnknownNamespace)
    if held.unreadable or unknown or isinstance(instruction_of(error), PermanentError):
        return Outcome.PERMANENT
    return Outcome.FAILED


def _wanted_delay(held: Held) -> timedelta | None:
    """The delay that the handler itself named; its time-out has the last word."""
    if held.error is None or held.cause is Cause.TIME_LIMIT:
        return None
    instruction = instruction_of(held.error)
    if not isinstance(instruction, _errors.Retry):
        return None
    try:
        return checked_delay(instruction.delay)
    except BaseException:  # noqa: BLE001  # a subclass may do anything
        return None


def _blame_time_limit(held: Held) -> None:
    error = held.error
    held.error = time_limit_error(held)
    if error is not None:
        # Where it was when it was cancelled, or what it raised then.
        held.error.__traceback__ = error.__traceback__
        held.error.__cause__ = None if isinstance(error, _OURS) else error


def time_limit_error(held: Held) -> TimeLimitExceeded:
    """What is said about an attempt that is over its time-out."""
    limit = timedelta(seconds=held.timeout)
    return TimeLimitExceeded(f"the attempt took longer than its time-out, {limit}")
