"""The worker at work: it pops, and hands deliveries from one part to the next.

    Popping -> Intake -> Execution -> Judge -> Settlement
                 |                                ^
                 +---- what is too much ----------+

Leases keeps all of it meanwhile, and the watch sees to what takes too long.
"""

from __future__ import annotations

import logging
import time
from asyncio import CancelledError
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta

from hypercube_jobs._errors import WorkerFailed
from hypercube_jobs._failure import text_of, type_name
from hypercube_jobs._jobs import Jobs
from hypercube_jobs._outage import Outage
from hypercube_jobs.worker._bell import Bell
from hypercube_jobs.worker._decision import is_exhausted
from hypercube_jobs.worker._ending import Ending
from hypercube_jobs.worker._execution import Execution, Load
from hypercube_jobs.worker._held import NEVER, Cause, Held, Holding, Policies, held_for
from hypercube_jobs.worker._intake import Intake
from hypercube_jobs.worker._interruption import Interruption
from hypercube_jobs.worker._leases import Leases
from hypercube_jobs.worker._options import WorkerOptions
from hypercube_jobs.worker._popping import Popping
from hypercube_jobs.worker._report import Reporter
from hypercube_jobs.worker._service_thread import service_thread
from hypercube_jobs.worker._settlement import Settlement
from hypercube_jobs.worker._verdict import Judge
from hypercube_jobs.worker._watch import CLEAN_UP, Watch
from hypercube_queue import (
    BackendError,
    InvalidArgument,
    Message,
    QueueClosed,
    QueueError,
    Releaser,
    capability,
)

_log = logging.getLogger("hypercube_jobs.worker")

#: How long a pop that failed waits before it is repeated, in seconds: at first, and at most.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
#: How often a worker that is to stop looks whether it can, in seconds.
_LOOK = 0.1
_AT_ONCE = timedelta(0)
#: How long a job waits that was given back although it runs on, until its process has ended.
_LEAVE = timedelta(seconds=5)
#: How long a job is put off that has to run alone, while another one here does not end.
_PUT_OFF = timedelta(seconds=10)
#: How many ids a log line shows.
_SHOWN = 5


class Coordinator:
    """Runs once: `run` until it is over, `stop` from any thread."""

    def __init__(self, jobs: Jobs, options: WorkerOptions, context: Context) -> None:
        queue = jobs.queue
        self._jobs = jobs
        self._options = options
        self._guarantees = queue.guarantees
        self._sleep = options.sleep.total_seconds()
        self._releasable = capability(queue, Releaser) is not None
        self._stopping = False
        self._at_once = False
        #: A thread is hopelessly over its time-out, and that is to be the end.
        self._overrun = False
        #: A thread that all depends on has died.
        self._failure: WorkerFailed | None = None
        #: How many handlers still run although their attempts are settled.
        self.abandoned = 0
        #: A quarantined delivery that runs, or will once nothing else is held.
        self._alone: Held | None = None
        self._alone_was_submitted = False
        #: The last pop brought all that was asked for, so there may be more.
        self._plenty = False
        #: A pop has succeeded.
        self._ready = False
        #: How long the last pop that failed was rested after; 0 when pops work.
        self._pause = 0.0
        self._outage = Outage("fetching jobs", _log)
        self._bell = Bell()
        self._holding = Holding()
        self._popping = Popping(queue, options.queues, options.sleep, self._bell)
        self._intake = Intake(releasable=self._releasable)
        self._policies = Policies(options.limits)
        self._judge = Judge(queue.guarantees, jobs.clock)
        self._settlement = Settlement(
            queue,
            self._holding,
            Reporter(jobs),
            self._bell,
            options.settle_after.total_seconds(),
            failed=self._fail,
        )
        self._execution = Execution(
            options.concurrency,
            context,
            self._complete,
            self._idle,
            self._bell,
            interruption=Interruption() if options.interrupt_threads else None,
            failed=self._fail,
        )
        self._leases = Leases(queue, self._holding, self._lose, self._fail)
        self._watch = Watch(
            self._execution,
            options,
            jobs.clock,
            threads=(self._settlement.progress, self._leases.progress),
            give_back=self._give_back,
            end_with=self._end_with,
        )

    def run(self, on_ready: Callable[[], None]) -> Ending:
        """Work until there is a reason to stop, and leave nothing behind that can be settled.

        `on_ready` is called after the first pop that succeeds.
        """
        self._settlement.start()
        self._leases.start()
        service_thread("hypercube-watch", self._watch.run, self._fail).start()
        try:
            ending = self._work(on_ready)
        finally:
            self._stopping = True
            self._drain()
            self._popping.close()
            self._execution.close()
            self._settlement.close()
            self._leases.close()
        if self._failure is not None:
            raise self._failure
        return ending

    def longest_timeout(self) -> float:
        """How long an attempt may take, of those that run and of the kinds, in seconds."""
        kinds = [kind.policy.timeout.total_seconds() for kind in self._jobs.kinds() if kind.handler]
        return max([0.0, *kinds, *(held.timeout for held in self._execution.running())])

    def stop(self, *, now: bool = False) -> None:
        """Pop no more and let what runs end; with `now` interrupt it."""
        self._stopping = True
        if now:
            self._at_once = True
        self._bell.ring()

    # Work

    def _work(self, on_ready: Callable[[], None]) -> Ending:
        while not self._stopping:
            self._run_alone()
            load = self._execution.load()
            if self._options.max_jobs is not None and load.ended >= self._options.max_jobs:
                return Ending.MAX_JOBS
            before = len(self._holding)
            room = self._room(load, before)
            try:
                messages = self._popping.arrived()
                if not messages and room:
                    messages = self._pop(room, load)
                    self._plenty = len(messages) >= room > 1
                    self._pause = 0.0
                    self._outage.end()
                    if not self._ready:
                        self._ready = True
                        on_ready()
            except QueueError as error:
                self._wait_out(error)
                continue
            if messages and self._stopping:
                self._return(messages)
            elif messages:
                self._admit(messages, room)
            elif not room:
                # While a job runs alone no time makes room: only its end does.
                self._bell.wait(None if self._alone else self._intake.seconds_left())
            elif self._options.stop_when_empty and not before:
                return Ending.EMPTY
        return Ending.OVERRUN if self._overrun else Ending.STOPPED

    def _room(self, load: Load, held: int) -> int:
        if self._alone is not None:
            return 0
        room = self._intake.room(load, held, self._holding.bytes)
        if self._options.max_jobs is not None:
            room = min(room, self._options.max_jobs - load.ended - load.running - load.waiting)
        return max(0, room)

    def _pop(self, room: int, load: Load) -> list[Message]:
        """Up to `room` deliveries; none, once it is worth looking again."""
        if load.waiting:
            # The slots are supplied, so this is no time to wait.
            messages = self._popping.sweep(room)
            if not messages:
                self._execution.ring_when_empty()
                self._bell.wait(self._sleep)
        elif self._options.stop_when_empty:
            certain = self._guarantees.empty_is_certain
            messages = self._popping.sweep(room, _AT_ONCE if certain else self._options.sleep)
            if not messages and len(self._holding):
                self._bell.wait(self._sleep)
        elif not self._ready:
            # Each queue is asked at once, before a pop waits.
            messages = self._popping.sweep(room)
        else:
            messages = self._popping.take(room)
        if not messages:
            self._intake.nothing_came()
        return messages

    def _admit(self, messages: list[Message], room: int) -> None:
        before = len(self._holding)
        some = self._held(messages)
        self._leases.added(some)
        alive: list[Held] = []
        for held in some:
            if self._judge.put_off(held):
                self._settlement.add(held)
            elif is_exhausted(held.standing, held.record, held.policy):
                self._judge.bury(held)
                self._settlement.add(held)
            else:
                alive.append(held)
        chosen = self._intake.sort(alive, room, self._execution.load(), before)
        self._give_back(chosen.release)
        self._quarantine(chosen.quarantine)
        for held in chosen.put_off:
            self._judge.put_off_unrun(held, _PUT_OFF)
            self._settlement.add(held)
        self._alone = self._alone or chosen.alone
        if chosen.run:
            self._execution.submit(chosen.run)

    def _quarantine(self, some: list[Held]) -> None:
        if not some:
            return
        _log.info(
            "held by a process that ended, or lost its leases, before it settled them: %s; each of "
            "these jobs runs next while its process holds no other job",
            _ids(some),
        )
        for held in some:
            self._judge.quarantine(held)
            self._settlement.add(held)
        self._settlement.hurry()

    def _run_alone(self) -> None:
        """Run a quarantined delivery, once all others are settled and none can come (ATT-3).

        What is held when it ends the process is lost with it.
        """
        alone = self._alone
        if alone is None:
            return
        if self._alone_was_submitted:
            if alone not in self._holding:
                self._alone, self._alone_was_submitted = None, False
        elif len(self._holding) == 1 and not self._popping.waiting:
            if alone.lost:
                self._holding.remove((alone,))
                self._alone = None
            else:
                self._alone_was_submitted = True
                self._execution.submit([alone])

    def _held(self, messages: list[Message]) -> list[Held]:
        some = held_for(
            self._jobs,
            messages,
            self._policies,
            default_lease=self._leases.default,
            now=time.monotonic(),
        )
        self._holding.add(some)
        return some

    def _return(self, messages: list[Message]) -> None:
        """Give back what came when it was no longer wanted."""
        self._give_back(self._held(messages))

    def _give_back(self, some: list[Held]) -> None:
        for held in some:
            self._judge.give_back(held, releasable=self._releasable)
            self._settlement.add(held)
        if some:
            self._settlement.hurry()

    def _wait_out(self, error: QueueError) -> None:
        """Rest after a pop that failed, or raise its error where it is the end."""
        final = isinstance(error, QueueClosed | InvalidArgument)
        # What has worked before is left alone: a deploy may be putting it right.
        hopeless = isinstance(error, BackendError) and error.permanent and not self._ready
        if final or hopeless or self._options.stop_when_empty:
            raise error
        self._pause = min(self._pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
        self._outage.note(error, self._pause)
        until = time.monotonic() + self._pause
        while not self._stopping and (left := until - time.monotonic()) > 0:
            self._bell.wait(left)

    # What the other threads bring

    def _complete(self, held: Held) -> None:
        try:
            if not held.lost:
                self._judge.judge(held)
        except BaseException:  # noqa: BLE001  # a bug must not cost the slot
            _log.exception("job %s ended, but nothing could be decided about it", held.attempt.id)
            self._holding.remove((held,))
            return
        self._settlement.add(held)

    def _idle(self) -> None:
        # What comes next will soon be settled together with what has ended.
        if not self._plenty:
            self._settlement.hurry()

    def _lose(self, held: Held) -> None:
        held.cause = Cause.LOST
        held.attempt.lost = True
        if self._execution.forget(held):
            self._holding.remove((held,))
        else:
            self._execution.cancel(held)
        self._bell.ring()

    def _fail(self, thread: str, error: BaseException) -> None:
        """End with an error, because a thread has died; what can be settled still is."""
        _log.critical(
            "%s has died of %s; the worker lets running jobs end and stops",
            thread,
            type_name(error),
            exc_info=error,
        )
        if self._failure is None:
            failure = WorkerFailed(f"{thread} has died of {type_name(error)}: {text_of(error)}")
            failure.__cause__ = error
            self._failure = failure
        self.stop()

    def _end_with(self, held: Held) -> None:
        """Give up on this attempt and, once the other jobs have ended, on the process."""
        held.hopeless = True
        self._overrun = True
        self.stop()

    # The end

    def _drain(self) -> None:
        limit = self._options.stop_timeout
        until = time.monotonic() + limit.total_seconds() if limit else NEVER
        interrupted_at = NEVER
        self._give_back(self._execution.withdraw())
        if self._alone is not None and not self._alone_was_submitted:
            self._give_back([self._alone])
        while len(self._holding) or self._popping.waiting:
            self._give_back_arrived()
            now = time.monotonic()
            running = self._execution.running()
            if interrupted_at == NEVER and (self._at_once or now >= until):
                interrupted_at = now
                self._interrupt(running)
            if self._at_once or (now >= until and not running):
                self._settlement.give_up()
            left = [held for held in running if self._is_stuck(held, now, interrupted_at)]
            if left and len(left) == len(self._holding):
                if not self._options.process_ends:
                    _warn_of(left)
                    return
                self._abandon(left)
            self._bell.wait(_LOOK)

    def _is_stuck(self, held: Held, now: float, interrupted_at: float) -> bool:
        """Whether there is no use in waiting for this attempt."""
        if held.hopeless or (held.is_async and self._watch.loop_is_lost):
            return True
        if interrupted_at != NEVER and (self._at_once or self._options.process_ends):
            return now >= interrupted_at + (CLEAN_UP if self._can_interrupt(held) else 0)
        return now >= held.started_at + held.timeout + CLEAN_UP

    def _abandon(self, some: list[Held]) -> None:
        """Settle attempts that run on: the process ends before anybody else can have them."""
        for held in some:
            if not self._execution.abandon(held):
                continue
            self.abandoned += 1
            held.cause = held.cause or Cause.SHUTDOWN
            # It has not returned, so it is not done, whatever it was ended for.
            held.error = CancelledError()
            if not held.lost:
                self._judge.judge(held, not_before=_LEAVE)
            self._settlement.add(held)
        self._settlement.hurry()

    def _can_interrupt(self, held: Held) -> bool:
        return held.is_async or self._options.interrupt_threads

    def _give_back_arrived(self) -> None:
        try:
            messages = self._popping.arrived()
        except BaseException as error:  # noqa: BLE001  # whatever a driver raises: it is the end
            _log.warning("a last pop failed: %s", error)
            return
        self._return(messages)

    def _interrupt(self, running: list[Held]) -> None:
        for held in running:
            if self._can_interrupt(held):
                held.cause = held.cause or Cause.SHUTDOWN
                self._execution.cancel(held)


def _warn_of(left: list[Held]) -> None:
    _log.warning(
        "%d jobs are still running and cannot be ended (%s); end this process, and they run "
        "again when their leases end",
        len(left),
        _ids(left),
    )


def _ids(some: list[Held]) -> str:
    ids = ", ".join(held.attempt.id for held in some[:_SHOWN])
    return f"{ids}, ..." if len(some) > _SHOWN else ids
