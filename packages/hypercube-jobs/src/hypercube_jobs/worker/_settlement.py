"""Giving deliveries back to the queue, many at a time, from a thread of its own."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count

from hypercube_jobs.worker._bell import Bell
from hypercube_jobs.worker._decision import Ack, DeadLetter, Release
from hypercube_jobs.worker._held import Held, Holding
from hypercube_jobs.worker._report import Reporter
from hypercube_jobs.worker._service_thread import Progress, service_thread
from hypercube_queue import (
    BackendError,
    BatchError,
    CapacityExceeded,
    InvalidArgument,
    NotFound,
    Queue,
    QueueError,
    Releaser,
    capability,
)

_log = logging.getLogger("hypercube_jobs.worker")

#: The most deliveries of one settlement call.
BATCH = 256
#: How long a settlement that the backend refused waits before it is repeated, in seconds:
#: at first, and at most.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


class Settlement:
    """Settles what is added, after `settle_after` seconds, or `BATCH` at once, or when hurried.

    With `settle_after=0` each delivery is settled by itself. What the backend refuses is
    repeated while the lease lives. `failed` is called if its thread dies; then all that is
    added is left to its lease.
    """

    def __init__(
        self,
        queue: Queue,
        holding: Holding,
        reporter: Reporter,
        bell: Bell,
        settle_after: float,
        *,
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._queue = queue
        self._releaser = capability(queue, Releaser)
        self._holding = holding
        self._reporter = reporter
        self._bell = bell
        self._settle_after = settle_after
        self._batch = BATCH if settle_after else 1
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[Held] = deque()
        self._due_at = 0.0
        #: Refused ones by the moment to try again, and a number to break ties.
        self._refused: list[tuple[float, int, Held]] = []
        self._numbers = count()
        self._in_trouble = False
        self._closing = False
        self._giving_up = False
        self._dead = False
        self.progress = Progress("settling jobs, or an observer that is told of them,")
        self._thread = service_thread("hypercube-settle", self._run, failed)

    def start(self) -> None:
        self._thread.start()

    def add(self, held: Held) -> None:
        """Settle this delivery as has been decided about it."""
        with self._lock:
            if self._dead:
                self._holding.remove((held,))
                return
            self._waiting.append(held)
            waiting = len(self._waiting)
            if waiting == 1:
                self._due_at = time.monotonic() + self._settle_after
            if waiting in {1, self._batch}:
                self._changed.notify()

    def hurry(self) -> None:
        """Nothing more is to come soon: settle what there is."""
        with self._lock:
            if self._waiting:
                self._due_at = 0.0
                self._changed.notify()

    def close(self) -> None:
        """Settle all that was added, and return."""
        with self._lock:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def give_up(self) -> None:
        """Let refused settlements be, even while `close` waits for them."""
        with self._lock:
            self._giving_up = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                try:
                    with self.progress:
                        self._settle(batch)
                except BaseException:  # noqa: BLE001  # a bug in a driver: leases bring them back
                    _log.exception("settling %d jobs failed; they will run again", len(batch))
                    self._holding.remove(batch)
                self._bell.ring()
        finally:
            self._leave_the_rest()

    def _leave_the_rest(self) -> None:
        with self._lock:
            self._dead = True
            left = [*self._waiting, *(held for _, _, held in self._refused)]
            self._waiting.clear()
            self._refused.clear()
        if left:
            _log.error("%d jobs cannot be settled any more; they will run again", len(left))
            self._holding.remove(left)

    def _next_batch(self) -> list[Held]:
        with self._lock:
            while True:
                now = time.monotonic()
                while self._refused and (self._refused[0][0] <= now or self._giving_up):
                    held = heapq.heappop(self._refused)[2]
                    if self._giving_up:
                        self._holding.remove((held,))
                    else:
                        self._waiting.appendleft(held)
                waiting = len(self._waiting)
                if waiting and (waiting >= self._batch or self._closing or now >= self._due_at):
                    return [self._waiting.popleft() for _ in range(min(waiting, self._batch))]
                if self._closing and not self._refused:
                    return []
                pause = self._due_at - now if waiting else None
                if self._refused:
                    again = self._refused[0][0] - now
                    pause = again if pause is None else min(pause, again)
                self._changed.wait(pause)

    def _settle(self, batch: list[Held]) -> None:
        done: list[Held] = []
        retried: list[Held] = []
        dead: list[Held] = []
        released: list[Held] = []
        for held in batch:
            held.settling = True
            if held.lost:
                self._lose(held)
            elif isinstance(held.decision, Ack):
                done.append(held)
            elif isinstance(held.decision, DeadLetter):
                dead.append(held)
            elif isinstance(held.decision, Release):
                released.append(held)
            else:
                retried.append(held)
        self._call(self._queue.ack, done)
        self._call(self._queue.retry, retried)
        self._call(self._queue.dead_letter, dead)
        if self._releaser is not None:
            self._call(self._releaser.release, released)

    def _call(self, operation: Callable[..., None], some: list[Held]) -> None:
        if not some:
            return
        messages = [held.message for held in some]
        try:
            operation(*messages)
        except BatchError as failures:
            errors = {failure.index: failure.error for failure in failures.failed}
            self._settled([held for index, held in enumerate(some) if index not in errors])
            for index, error in errors.items():
                self._refuse(some[index], error)
        except QueueError as error:
            for held in some:
                self._refuse(held, error)
        except Exception:  # noqa: BLE001  # a bug in a driver
            self._settle_each(operation, some)
        else:
            self._settled(some)

    def _settle_each(self, operation: Callable[..., None], some: list[Held]) -> None:
        """Settle one by one after an error that no driver should raise: one item may be why."""
        if len(some) == 1:
            _log.exception("settling job %s failed; it will run again", some[0].attempt.id)
            self._holding.remove(some)
            return
        for held in some:
            # The first time may have taken effect.
            held.outcome_unknown = True
            self._call(operation, [held])

    def _settled(self, some: list[Held]) -> None:
        if self._in_trouble and some:
            self._in_trouble = False
            _log.info("jobs can be settled again")
        self._holding.remove(some)
        self._report(self._reporter.settled, some)

    def _refuse(self, held: Held, error: QueueError) -> None:
        if isinstance(error, NotFound):
            if held.outcome_unknown:
                self._settled([held])  # it had been applied after all
            else:
                self._lose(held)
        elif isinstance(error, BackendError | CapacityExceeded):
            self._repeat_later(held, error)
        elif isinstance(error, InvalidArgument) and held.strip_record():
            with self._lock:
                self._waiting.appendleft(held)
                self._due_at = 0.0
        else:
            _log.error("job %s cannot be settled: %s; it will run again", held.attempt.id, error)
            self._holding.remove((held,))

    def _repeat_later(self, held: Held, error: BackendError | CapacityExceeded) -> None:
        now = time.monotonic()
        if isinstance(error, BackendError) and error.outcome_unknown:
            held.outcome_unknown = True
        if now >= held.leased_until:
            self._lose(held)
            return
        if not self._in_trouble:
            self._in_trouble = True
            _log.warning("jobs cannot be settled: %s; trying again while leases last", error)
        held.pause = min(held.pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
        with self._lock:
            heapq.heappush(self._refused, (now + held.pause, next(self._numbers), held))

    def _lose(self, held: Held) -> None:
        self._holding.remove((held,))
        self._report(self._reporter.lost, [held])

    def _report(self, tell: Callable[[list[Held]], None], some: list[Held]) -> None:
        try:
            tell(some)
        except BaseException:  # noqa: BLE001  # it runs handlers of logs and code of observers
            _log.exception(
                "what became of %d jobs cannot be told; it is done all the same", len(some)
            )
        for held in some:
            held.error = None  # its traceback refers to frames that refer to it
