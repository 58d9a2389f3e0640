"""The worker's outside: its options, its start, and its end."""

from __future__ import annotations

import contextvars
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from types import FrameType
from typing import Any

from hypercube_jobs._errors import WorkerFailed
from hypercube_jobs._failure import type_name
from hypercube_jobs._jobs import Jobs
from hypercube_jobs._policy import DispatchLimits
from hypercube_jobs.worker._coordinator import Coordinator
from hypercube_jobs.worker._ending import Ending
from hypercube_jobs.worker._options import WorkerOptions, checked_queues
from hypercube_jobs.worker._supervised import Line
from hypercube_jobs.worker._watchdog import Watchdog
from hypercube_queue import InvalidArgument

_log = logging.getLogger("hypercube_jobs.worker")

#: Without slices Windows would see no signal while the main thread waits. In seconds.
_SLICE = 1.0


def _do_nothing() -> None:
    pass


class Worker:
    """Runs the handlers of `jobs` for what comes in its queues.

        Worker(jobs, queues=["billing", "default"], concurrency=16).run()

    `queues` are served in this order: a later one only when those before it are empty.
    `concurrency` is how many jobs run at once, synchronous ones in threads and asynchronous
    ones on one event loop. `sleep` is how long a pop waits when there is nothing to do, and so
    how long `stop` may take to be noticed. It ends by itself after `max_jobs` attempts, or
    with `stop_when_empty` once nothing is ready and nothing is running; then a pop that fails
    ends it too, while otherwise an outage of the backend is waited out. Where it can never work,
    for want of a password, tables or a folder, it ends at its start.

    `stop_timeout` bounds how long running jobs may take once it is to stop; None and zero
    wait for them. After that asynchronous handlers are cancelled, and go back to their queue
    at no cost, three times in a row. Nothing can end a thread: a synchronous handler is
    waited for until its own time-out, but for the options below.

    `settle_after` is how long a finished job may wait for others to be settled together with;
    zero settles each by itself.

    `interrupt_threads` raises ThreadInterrupt in the thread of a synchronous handler where an
    asynchronous one would be cancelled: over its time-out, without its lease, after
    `stop_timeout`. It comes up between two steps of Python, so it does not end a call that
    blocks, and it may come up anywhere, in a library's innermost parts as well.

    `process_ends` is a promise of the caller's that the process ends as soon as `run` returns.
    Then handlers that go on after `stop_timeout` are not waited for: their jobs are back in
    the queue at no cost, five seconds later. With `end_on_overrun` a handler that goes on after
    its time-out ends the worker, for a supervisor to start another process: a synchronous one
    at once, an asynchronous one after five seconds in which it did not end when cancelled, or
    blocked the event loop. What else ran on that loop goes back at no cost.

    `limits` are the most that any job is given of retries, time-out and backoff, whatever it
    was dispatched with. They come on top of those of its kind.

    Raises InvalidArgument for a bad option.
    """

    def __init__(
        self,
        jobs: Jobs,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 1,
        sleep: timedelta = timedelta(seconds=1),
        max_jobs: int | None = None,
        stop_when_empty: bool = False,
        stop_timeout: timedelta | None = None,
        settle_after: timedelta = timedelta(milliseconds=5),
        interrupt_threads: bool = False,
        process_ends: bool = False,
        end_on_overrun: bool = False,
        limits: DispatchLimits | None = None,
    ) -> None:
        if not isinstance(jobs, Jobs):
            raise InvalidArgument(f"a worker is for a Jobs object, not {type(jobs).__name__}")
        self._jobs = jobs
        self._options = WorkerOptions(
            queues=checked_queues(queues, jobs.queue.guarantees),
            concurrency=concurrency,
            sleep=sleep,
            max_jobs=max_jobs,
            stop_when_empty=stop_when_empty,
            stop_timeout=stop_timeout,
            settle_after=settle_after,
            interrupt_threads=interrupt_threads,
            process_ends=process_ends,
            end_on_overrun=end_on_overrun,
            limits=DispatchLimits() if limits is None else limits,
        )
        #: Signals are passed on by a supervisor, which counts them: one that comes directly may
        #: be the same, sent to all processes of a service.
        self._supervised = False
        self._signals_seen = 0
        self._started = threading.Lock()
        self._ended = threading.Event()
        self._ending = Ending.STOPPED
        self._error: BaseException | None = None
        # Handlers see the context variables of whoever made the worker, each in a copy.
        self._coordinator = Coordinator(jobs, self._options, contextvars.copy_context())

    @property
    def abandoned(self) -> int:
        """How many handlers still run although their jobs are settled, with `process_ends`."""
        return self._coordinator.abandoned

    def run(self, *, on_ready: Callable[[], None] = _do_nothing) -> Ending:
        """Work until stopped, and return when all that ran has ended and is settled.

        `on_ready` is called once the queues have been reached for the first time, in a thread
        of the worker's. Until then a backend that is away is waited for, and what only a person
        can repair (`BackendError.permanent`) ends the worker; later both are waited out.

        In the main thread SIGTERM and SIGINT mean `stop()`, a second one `stop(now=True)`,
        and a third one what it meant before. A worker runs once.

        Raises what a pop raised where that ends it: QueueClosed, a permanent BackendError at
        the start, or with `stop_when_empty` any QueueError. Raises WorkerFailed if one of its
        threads dies.
        """
        if not self._started.acquire(blocking=False):
            raise InvalidArgument("this worker has run already; make another one")
        self._warn_of_long_kinds()
        thread = threading.Thread(
            target=self._work, args=(on_ready,), name="hypercube-worker", daemon=True
        )
        longest = self._coordinator.longest_timeout
        with self._signals(), Watchdog(longest) if self._supervised else nullcontext():
            thread.start()
            try:
                while not self._ended.wait(_SLICE):
                    pass
            except BaseException:
                self.stop(now=True)
                raise
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise WorkerFailed(f"the worker has died of {type_name(self._error)}") from self._error
        return self._ending

    def stop(self, *, now: bool = False) -> None:
        """Let `run` end: from any thread, a handler or a signal handler, and without waiting.

        What has not started goes back at once; what runs may end, for up to `stop_timeout`.
        With `now` it is interrupted at once, and threads that cannot be are left alone: end
        the process then. Their jobs come back when their leases end, or with `process_ends`
        five seconds later and at no cost.
        """
        self._coordinator.stop(now=now)

    def _supervised_by(self, line: Line) -> None:
        """Stop when the supervisor at the other end of `line` says so, or has gone."""
        self._supervised = True
        line.listen(self._on_signal, self.stop)

    def _warn_of_long_kinds(self) -> None:
        guarantees = self._jobs.queue.guarantees
        longest = guarantees.max_visibility if guarantees.leases else guarantees.max_hold
        for kind in self._jobs.kinds():
            if kind.handler and longest is not None and kind.policy.timeout > longest:
                _log.warning(
                    "jobs of the kind %s may take %s, but the backend takes back what is held for "
                    "longer than %s: such a job would run twice at once",
                    kind.name,
                    kind.policy.timeout,
                    longest,
                )

    def _work(self, on_ready: Callable[[], None]) -> None:
        try:
            self._ending = self._coordinator.run(on_ready)
        except BaseException as error:  # noqa: BLE001  # run() raises it
            self._error = error
        finally:
            self._ended.set()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

        def restore() -> None:
            while former:
                signal.signal(*former.popitem())

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if self._supervised:
                self._on_signal(number, 1)
                return
            if self._signals_seen:
                restore()  # before it is said, since a third one may be the answer
            self._on_signal(number, self._signals_seen + 1)

        for number in (signal.SIGINT, signal.SIGTERM):
            former[number] = signal.signal(number, on_signal)
        try:
            yield
        finally:
            restore()

    def _on_signal(self, number: int, count: int) -> None:
        """Stop at the first signal, and at once at the second; `count` says which one it is."""
        if count <= self._signals_seen:
            return
        self._signals_seen = count
        if count > 1:
            _log.warning("stopping now: interrupting what runs")
            self.stop(now=True)
        else:
            _log.info(
                "%s: stopping once what runs has ended; another signal interrupts it",
                signal.Signals(number).name,
            )
            self.stop()
