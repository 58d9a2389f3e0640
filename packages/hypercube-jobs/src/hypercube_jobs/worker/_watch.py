"""The watch over time-outs, and over the threads that do not get on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from hypercube_jobs._clock import Clock
from hypercube_jobs._failure import Frames, failure_of, frames_of_thread, stack_text
from hypercube_jobs.worker._event_loop import where
from hypercube_jobs.worker._execution import Execution
from hypercube_jobs.worker._held import Cause, Held
from hypercube_jobs.worker._options import WorkerOptions
from hypercube_jobs.worker._service_thread import Progress
from hypercube_jobs.worker._verdict import time_limit_error

_log = logging.getLogger("hypercube_jobs.worker")

#: How long handlers may clean up that were cancelled or interrupted, in seconds.
CLEAN_UP = 5.0
#: How long the event loop may be blocked before it is told, in seconds.
_BLOCKED = 5.0
#: How long a call to the backend, or to observers, may take before it is told, in seconds.
_STUCK = 60.0


class Watch:
    """Ends attempts that are over their time-outs, as far as they can be ended.

    `give_back` takes deliveries that have waited for a slot for too long, and `end_with`
    attempts that nothing but the end of the process ends, with `end_on_overrun`.
    """

    def __init__(
        self,
        execution: Execution,
        options: WorkerOptions,
        clock: Clock,
        *,
        threads: Sequence[Progress],
        give_back: Callable[[list[Held]], None],
        end_with: Callable[[Held], None],
    ) -> None:
        self._execution = execution
        self._options = options
        self._clock = clock
        self._give_back = give_back
        self._end_with = end_with
        self._threads = threads
        self._stuck: set[Progress] = set()
        self._loop_is_blocked = False
        #: What blocks the event loop is over its time-out, and the process ends for it.
        self.loop_is_lost = False

    def run(self) -> None:
        """Watch until the execution is closed."""
        while due := self._execution.next_due(look_at_loop=self._loop_is_blocked):
            overdue, late = due
            try:
                self._look_at_loop()
                self._look_at_threads()
                for held in overdue:
                    self._end_time(held)
                self._give_back(late)
            except BaseException:  # noqa: BLE001  # a bug must not leave time-outs unwatched
                _log.exception("the watch over time-outs failed; it goes on")

    def _end_time(self, held: Held) -> None:
        if held.is_async:
            if held.cause is Cause.TIME_LIMIT:
                self._end_time_of_task(held)
        elif held.failure is None:
            self._note_failure(held, frames_of_thread(held.thread_id))
            self._end_time_of_thread(held)
        else:
            self._end_with(held)

    def _note_failure(self, held: Held, stack: Frames) -> None:
        held.failure = failure_of(
            time_limit_error(held), attempt=held.attempt.number, at=self._clock(), stack=stack
        )

    # Threads of the worker

    def _look_at_threads(self) -> None:
        for thread in self._threads:
            seconds = thread.seconds()
            if seconds >= _STUCK and thread not in self._stuck:
                self._stuck.add(thread)
                _log.warning(
                    "%s has not got on for %.0f s, and this worker cannot go on without%s",
                    thread.work,
                    seconds,
                    _shown(thread.stack()),
                )
            elif seconds < _STUCK and thread in self._stuck:
                self._stuck.remove(thread)
                _log.info("%s gets on again", thread.work)

    # Threads of handlers

    def _end_time_of_thread(self, held: Held) -> None:
        consequence = (
            "nothing can end its thread: it keeps its slot, and is retried once it has ended"
        )
        if self._options.interrupt_threads:
            consequence = "its thread is being interrupted"
            self._execution.cancel(held)
            if self._options.end_on_overrun:
                self._execution.look_again(held, CLEAN_UP)
        elif self._options.end_on_overrun:
            consequence = "nothing but the end of this process can end its thread"
        _log.warning(
            "job %s %s is over its time-out of %g s; its attempt has failed, but %s",
            held.attempt.kind,
            held.attempt.id,
            held.timeout,
            consequence,
        )
        if self._options.end_on_overrun and not self._options.interrupt_threads:
            self._end_with(held)

    # The event loop

    def _end_time_of_task(self, held: Held) -> None:
        if not held.overdue:
            held.overdue = True
            self._execution.cancel(held)
            self._execution.look_again(held, CLEAN_UP)
            return
        if held.cancelled:
            task = held.task
            stack = [] if task is None else where(task)
            obstacle = "it goes on although it has been cancelled"
        else:
            blocker, stack = self._execution.what_runs_on_loop()
            obstacle = f"it cannot be cancelled, because {_blocked_by(blocker, held)}"
            self.loop_is_lost = self._options.end_on_overrun
        self._note_failure(held, stack)
        consequence = "it keeps its slot, and is retried once it has ended"
        if self._options.end_on_overrun:
            consequence = "nothing but the end of this process can end it"
        _log.warning(
            "job %s %s is over its time-out of %g s, and %s; its attempt has failed, and %s%s",
            held.attempt.kind,
            held.attempt.id,
            held.timeout,
            obstacle,
            consequence,
            _shown(stack),
        )
        if self._options.end_on_overrun:
            self._end_with(held)

    def _look_at_loop(self) -> None:
        blocked = self._execution.seconds_blocked()
        if blocked >= _BLOCKED and not self._loop_is_blocked:
            self._loop_is_blocked = True
            blocker, stack = self._execution.what_runs_on_loop()
            _log.warning(
                "for %.0f s no asynchronous job of this process has got on, because %s; let its "
                "handler call what blocks with asyncio.to_thread, or be a function without "
                "`async`%s",
                blocked,
                _blocked_by(blocker),
                _shown(stack),
            )
        elif self._loop_is_blocked and not blocked:
            self._loop_is_blocked = False
            _log.info("asynchronous jobs get on again")


def _blocked_by(blocker: Held | None, held: Held | None = None) -> str:
    if blocker is None:
        return "something blocks the event loop"
    if blocker is held:
        return "it blocks the event loop itself"
    return f"job {blocker.attempt.kind} {blocker.attempt.id} blocks the event loop"


def _shown(stack: Frames) -> str:
    return f"; it is at\n{stack_text(stack)}" if stack else ""
