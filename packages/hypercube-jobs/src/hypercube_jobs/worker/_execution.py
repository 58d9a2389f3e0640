"""Running handlers: the deliveries that wait for a slot, the slots, and the threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

from hypercube_jobs._errors import JobError
from hypercube_jobs._failure import Frames, text_of, type_name
from hypercube_jobs.worker._bell import Bell
from hypercube_jobs.worker._call import call
from hypercube_jobs.worker._event_loop import EventLoop
from hypercube_jobs.worker._held import NEVER, Cause, Held
from hypercube_jobs.worker._interruption import Interruption
from hypercube_jobs.worker._service_thread import service_thread
from hypercube_jobs.worker._waiting import PATIENCE, Waiting

_log = logging.getLogger("hypercube_jobs.worker")

#: A slot whose job has run for longer than this takes no part in what is popped ahead, and a
#: delivery that has waited for longer is given back. In seconds.
START_WITHIN = 0.1
#: How much the latest run time counts in the average.
_WEIGHT = 0.1
#: How often the watch looks after the worker's own threads, in seconds.
_LOOK = 10.0
#: How often the watch looks after the event loop while asynchronous attempts run, in seconds.
_LOOK_AT_LOOP = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the slots are, at one moment."""

    #: Slots with nothing to do.
    free: int
    #: Slots that are free or have had their present job for less than `START_WITHIN`.
    moving: int
    running: int
    #: Running attempts that are over their time-outs, and so may never end.
    overdue: int
    #: Deliveries that wait for a slot, and their bytes.
    waiting: int
    waiting_bytes: int
    #: Attempts that have ended.
    ended: int
    #: Recent run times, on average; None before the first.
    run_seconds: float | None
    #: The bytes of those that run.
    running_bytes: int = 0


class Execution:
    """Runs deliveries in the order they came, up to `concurrency` at once.

    Synchronous handlers run in threads, asynchronous ones on one event loop; both draw from
    the same waiting deliveries and one number of slots. A thread, or the loop, that has ended
    an attempt keeps its slot and takes the next delivery of its sort itself, so that no
    delivery costs a switch of threads; only where it is the turn of the other sort, or nothing
    waits, does the slot become free.

    `completed` is called with each delivery whose attempt has ended, in the thread it ran in,
    and `failed` if a thread dies otherwise than by what a handler does.
    """

    def __init__(
        self,
        concurrency: int,
        context: Context,
        completed: Callable[[Held], None],
        idle: Callable[[], None],
        bell: Bell,
        *,
        interruption: Interruption | None,
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._concurrency = concurrency
        self._context = context
        self._completed = completed
        self._idle = idle
        self._bell = bell
        self._interruption = interruption
        self._failed = failed
        self._lock = threading.Lock()
        #: Wakes threads that have no slot.
        self._work = threading.Condition(self._lock)
        #: Wakes the watch when something is due before `_watch_at`.
        self._watching = threading.Condition(self._lock)
        self._watch_at = NEVER
        self._loop_looked_at = 0.0
        # One job at a time is a promise of order, too.
        self._waiting = Waiting(PATIENCE if concurrency > 1 else 0.0)
        #: The coordinator wants to know when no more than these wait.
        self._few = 0
        self._running: set[Held] = set()
        self._overdue: set[Held] = set()
        self._free = concurrency
        self._threads = 0
        self._short_of_threads = False
        self._resting = 0
        self._ended = 0
        self._run_seconds: float | None = None
        self._closed = False
        #: Attempts on the event loop were given up, and the process is to end.
        self._abandoned_on_loop = False
        #: Asynchronous deliveries cannot begin any more.
        self._loop_is_dead = False
        self._loop = EventLoop(self, failed)

    # What the coordinator does

    def submit(self, some: list[Held]) -> None:
        """Run these, after those that wait already."""
        with self._lock:
            self._waiting.extend(some)
            self._few = len(self._waiting) // 2
            self._use_free_slots()
            if self._waiting and self._start_by() < self._watch_at:
                self._watching.notify()

    def load(self) -> Load:
        now = time.monotonic()
        with self._lock:
            stuck = sum(1 for held in self._running if now - held.started_at > START_WITHIN)
            return Load(
                free=self._free,
                moving=self._concurrency - stuck,
                running=len(self._running),
                overdue=len(self._overdue),
                waiting=len(self._waiting),
                waiting_bytes=self._waiting.bytes,
                ended=self._ended,
                run_seconds=self._run_seconds,
                running_bytes=sum(held.size for held in self._running),
            )

    def ring_when_empty(self) -> None:
        """There is nothing to pop: ring no sooner than when nothing waits any more."""
        with self._lock:
            self._few = 0

    def withdraw(self) -> list[Held]:
        """Take back all that has not started."""
        with self._lock:
            return self._waiting.clear()

    def forget(self, held: Held) -> bool:
        """Take this one back; False if it has started."""
        with self._lock:
            return self._waiting.remove(held)

    def running(self) -> list[Held]:
        with self._lock:
            return list(self._running)

    def cancel(self, held: Held) -> None:
        """Let an attempt end soon, whose `cause` has been set; threads go on by default."""
        if held.is_async:
            self._loop.cancel(held)
        elif self._interruption is not None:
            self._interruption.interrupt(held)

    def abandon(self, held: Held) -> bool:
        """Take the attempt for ended although it runs; False if it has ended by itself."""
        with self._lock:
            if held not in self._running:
                return False
            held.abandoned = True
            self._abandoned_on_loop = self._abandoned_on_loop or held.is_async
            held.duration = time.monotonic() - held.started_at
            self._running.discard(held)
            self._overdue.discard(held)
            self._ended += 1
            return True

    def close(self) -> None:
        """Let idle threads and the loop end. Abandoned ones end with the process."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._watching.notify_all()
        self._loop.close(wait=not self._abandoned_on_loop)

    # What the watch does

    def look_again(self, held: Held, seconds: float) -> None:
        """Let an attempt that was due be due once more, in so many seconds."""
        with self._lock:
            held.deadline = time.monotonic() + seconds

    def next_due(self, *, look_at_loop: bool = False) -> tuple[list[Held], list[Held]] | None:
        """Wait for what is due: attempts over their time-outs, and deliveries to give back.

        The latter have not started in time while all slots are taken. It also returns, with
        nothing, after ten seconds, and once a second while asynchronous attempts run or with
        `look_at_loop`. None once closed.
        """
        return_at = time.monotonic() + _LOOK
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                overdue = [held for held in self._running if held.deadline <= now]
                for held in overdue:
                    held.deadline = NEVER
                    held.cause = held.cause or Cause.TIME_LIMIT
                    self._overdue.add(held)
                late: list[Held] = []
                while not self._free and self._waiting and self._start_by() <= now:
                    late.append(self._waiting.take_first())
                looks = look_at_loop or any(held.is_async for held in self._running)
                look_at = self._loop_looked_at + _LOOK_AT_LOOP if looks else return_at
                if overdue:
                    self._bell.ring()
                if overdue or late or now >= min(look_at, return_at):
                    self._loop_looked_at = now
                    return overdue, late
                self._watch_at = min((held.deadline for held in self._running), default=NEVER)
                self._watch_at = min(self._watch_at, look_at, return_at)
                if self._waiting:
                    self._watch_at = min(self._watch_at, max(self._start_by(), now + 0.01))
                self._watching.wait(self._watch_at - now)
            return None

    def seconds_blocked(self) -> float:
        """How long the event loop has not got on."""
        return self._loop.seconds_blocked()

    def what_runs_on_loop(self) -> tuple[Held | None, Frames]:
        """The attempt that the event loop is at, if known, and where its thread is."""
        return self._loop.what_runs()

    def _start_by(self) -> float:
        return self._waiting.first().popped_at + START_WITHIN

    # What threads and the loop do

    def turn(self, ended: Held) -> Held | None:
        """End an attempt and begin the next one of its sort; None if the slot became free."""
        now = time.monotonic()
        with self._lock:
            if ended.abandoned:
                return None  # the worker is gone
            ended.duration = now - ended.started_at
            self._running.discard(ended)
            if self._overdue:
                self._overdue.discard(ended)
            self._ended += 1
            if self._run_seconds is None:
                self._run_seconds = ended.duration
            else:
                self._run_seconds += (ended.duration - self._run_seconds) * _WEIGHT
            no_loop = ended.is_async and self._loop_is_dead
            if not no_loop and self._waiting.may_begin(now, is_async=ended.is_async):
                return self._begin(now, is_async=ended.is_async)
            self._free += 1
            self._use_free_slots()
        self._bell.ring()
        return None

    def begin_async(self) -> Held | None:
        """Begin an asynchronous attempt on a free slot, if it is the turn of one."""
        with self._lock:
            now = time.monotonic()
            if self._free and self._waiting.may_begin(now, is_async=True):
                return self._occupy(now, is_async=True)
            self._use_free_slots()
            return None

    def complete(self, held: Held) -> None:
        """Hand over an attempt that has ended, in the thread it ran in."""
        if held.abandoned:
            return
        self._completed(held)
        if not self._running and not self._waiting:
            self._idle()

    def end_async(self, error: BaseException) -> None:
        """End all asynchronous attempts, because the event loop has died with `error`."""
        with self._lock:
            self._loop_is_dead = True
            some = [held for held in self._running if held.is_async]
        for held in some:
            held.error = JobError(
                f"the event loop that the attempt ran on has died: {type_name(error)}: "
                f"{text_of(error)}"
            )
            self.turn(held)
            self.complete(held)

    def context(self) -> Context:
        """A context for one attempt."""
        return self._context.copy()

    def _begin_sync(self) -> Held | None:
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                if self._free and self._waiting.may_begin(now, is_async=False):
                    return self._occupy(now, is_async=False)
                self._resting += 1
                self._work.wait()
                self._resting -= 1
            self._threads -= 1
            return None

    def _occupy(self, now: float, *, is_async: bool) -> Held:
        self._free -= 1
        held = self._begin(now, is_async=is_async)
        self._use_free_slots()
        return held

    def _begin(self, now: float, *, is_async: bool) -> Held:
        held = self._waiting.begin(is_async=is_async)
        held.started_at = now
        held.deadline = now + held.timeout
        self._running.add(held)
        look_at = min(held.deadline, now + _LOOK_AT_LOOP) if is_async else held.deadline
        if look_at < self._watch_at:
            self._watching.notify()
        if len(self._waiting) == self._few:
            self._bell.ring()
        return held

    def _use_free_slots(self) -> None:
        if not self._free or not self._waiting:
            return
        now = time.monotonic()
        if self._waiting.may_begin(now, is_async=True):
            self._loop.kick()
        if not self._waiting.may_begin(now, is_async=False):
            return
        wanted = min(self._free, self._waiting.count_of(is_async=False))
        self._work.notify(wanted)
        for _ in range(min(wanted - self._resting, self._concurrency - self._threads)):
            thread = service_thread("hypercube-job", self._serve, self._failed)
            try:
                thread.start()
            except RuntimeError as error:
                if not self._threads:  # without any, nothing would ever run
                    self._failed(thread.name, error)
                elif not self._short_of_threads:
                    self._short_of_threads = True
                    _log.warning(
                        "the system gives no more threads (%s), so fewer jobs run at once: %d "
                        "instead of %d",
                        error,
                        self._threads,
                        self._concurrency,
                    )
                return
            self._threads += 1

    def _serve(self) -> None:
        held = self._begin_sync()
        while held is not None:
            held.thread_id = threading.get_ident()
            if self._interruption is not None:
                self._interruption.run(held, self.context(), call)
            else:
                try:
                    self.context().run(call, held)
                except BaseException as error:  # noqa: BLE001  # sys.exit() is a failed attempt too
                    held.error = error
            following = self.turn(held)
            self.complete(held)
            held = following or self._begin_sync()
