"""The event loop that asynchronous handlers run on, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from hypercube_jobs import _attempt
from hypercube_jobs._failure import Frames, frames_of_thread, text_of, type_name
from hypercube_jobs.worker._call import call_async
from hypercube_jobs.worker._first_step import FirstSteps
from hypercube_jobs.worker._held import Held
from hypercube_jobs.worker._service_thread import service_thread

_log = logging.getLogger("hypercube_jobs.worker")

#: How long the loop may take to end what handlers left running on it, in seconds.
_GRACE = 5.0
#: How asyncio calls the steps of tasks, and what else it is asked to call.
_STEP = asyncio.Handle._run.__code__
#: How many handlers that never wait are run in one pass of the loop.
_AT_A_TIME = 64


class Slots(Protocol):
    """What the loop needs of the execution it belongs to."""

    def begin_async(self) -> Held | None: ...

    def turn(self, ended: Held) -> Held | None: ...

    def complete(self, held: Held) -> None: ...

    def end_async(self, error: BaseException) -> None: ...

    def context(self) -> Context: ...


class EventLoop:
    """Started by the first asynchronous job.

    What a task of a handler raises to end the process, such as SystemExit, ends neither the
    process nor the loop. `failed` is called where the loop cannot go on.
    """

    def __init__(self, slots: Slots, failed: Callable[[str, BaseException], None]) -> None:
        self._slots = slots
        self._failed = failed
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempts: _Attempts | None = None
        self._stopping = False
        self._ready = threading.Event()
        #: When the loop was asked for a sign of life that it has not given yet.
        self._asked_at: float | None = None

    def kick(self) -> None:
        """There are free slots, and it is the turn of asynchronous deliveries."""
        if self._thread is None:
            self._thread = service_thread("hypercube-event-loop", self._run, self._failed)
            try:
                self._thread.start()
            except RuntimeError as error:  # the system gives no more threads
                self._failed(self._thread.name, error)
                return
            self._ready.wait()
        if self._attempts is not None:
            self._call_soon(self._attempts.fill_slots)

    def cancel(self, held: Held) -> None:
        """Cancel the attempt, whose `cause` has been set."""
        if self._attempts is not None:
            self._call_soon(self._attempts.cancel, held)

    def seconds_blocked(self) -> float:
        """How long the loop has not got on at least, by when it was asked for a sign of life."""
        if self._loop is None:
            return 0.0
        asked_at = self._asked_at
        if asked_at is not None:
            return time.monotonic() - asked_at
        self._asked_at = time.monotonic()
        self._call_soon(self._give_sign)
        return 0.0

    def what_runs(self) -> tuple[Held | None, Frames]:
        """Where the loop's thread is this moment, and the attempt that it is at, if it is known.

        From any thread, for a loop that is blocked: else the answer is old when it comes.
        """
        if self._thread is None or self._loop is None or self._attempts is None:
            return None, []
        frames = frames_of_thread(self._thread.ident)
        held = self._attempts.starting
        for number, (frame, _) in enumerate(frames):
            if frame.f_code is _STEP:
                # Of the callback or the step of a task that the loop has called.
                if held is None:
                    held = _attempt_in(frame.f_locals["self"])
                return held, _beneath(frames[number + 1 :])
        return held, _beneath(frames)

    def close(self, *, wait: bool = True) -> None:
        """Cancel what handlers left running, and end the thread; one that is stuck is left.

        Without `wait` it is left at once, since the process is about to end.
        """
        if self._thread is not None:
            self._stopping = True
            if self._loop is not None:
                self._call_soon(self._loop.stop)
            if wait and self._thread.is_alive():
                self._thread.join(_GRACE)

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                loop = self._loop = runner.get_loop()
                self._attempts = _Attempts(self._slots, loop, self._failed)
                self._ready.set()
                self._run_until_stopped(loop)
        except BaseException as error:
            self._ready.set()
            if not self._stopping:
                self._give_up(error)
                raise
            # The loop is closed, and what handlers left behind has made trouble for the last time.
            _log.warning("ending the event loop raised %s: %s", type_name(error), text_of(error))

    def _run_until_stopped(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopping:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # From a task or a callback. Whoever awaits the task is given it as well.
                _log.warning(
                    "%s was raised on the event loop of the asynchronous handlers, which goes on",
                    type_name(error),
                    exc_info=error,
                )
            else:
                if not self._stopping:
                    _log.warning("a handler has stopped the event loop; it goes on")

    def _give_up(self, error: BaseException) -> None:
        if self._attempts is not None:
            self._attempts.closed = True
        self._loop = None
        self._slots.end_async(error)

    def _give_sign(self) -> None:
        self._asked_at = None

    def _call_soon(self, function: Callable[..., object], *args: Held) -> None:
        with contextlib.suppress(RuntimeError):  # closed a moment ago
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *args)


class _Attempts:
    """The attempts on the loop, each a task of its own. Called on the loop's thread only."""

    def __init__(
        self,
        slots: Slots,
        loop: asyncio.AbstractEventLoop,
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._slots = slots
        self._loop = loop
        self._failed = failed
        #: The loop does not run any more, so what still waits on it has ended.
        self.closed = False
        self._first_steps = FirstSteps(loop)
        #: A task is taking its first step. If it ends with that it says so here, and leaves
        #: what follows it.
        self._driving = False
        self._following: Held | None = None
        #: The attempt of that task.
        self.starting: Held | None = None

    def fill_slots(self) -> None:
        try:
            while (held := self._slots.begin_async()) is not None:
                self._drive(held)
        except BaseException as error:  # noqa: BLE001  # a bug; else the loop would only log it
            self._failed("the event loop", error)

    def cancel(self, held: Held) -> None:
        # Before its first step it sees its `cause` by itself.
        if held.began and held.task is not None:
            held.cancelled = True
            held.task.cancel()

    def _drive(self, held: Held | None) -> None:
        """Start `held`, and as long as handlers end without ever waiting, what follows it."""
        for _ in range(_AT_A_TIME):
            if held is None:
                return
            self._driving = True
            self.starting = held
            task = self._first_steps.start(self._attend(held), self._slots.context())
            self.starting = None
            if self._driving:
                self._driving = False
                held.task = task
                return  # it waits, and its end drives on
            # It has ended, so nothing keeps its task. Kept until the settlement, the tasks of
            # short jobs would cost as much in garbage collections as all else does.
            held, self._following = self._following, None
        # Others want their turn as well: time-outs, and handlers that did wait.
        self._loop.call_soon(self._drive, held)

    async def _attend(self, held: Held) -> None:
        try:
            await call_async(held)
        except BaseException as error:  # even sys.exit() is a failed attempt
            if self.closed or held.abandoned:
                raise  # of a coroutine that is collected, in whichever thread
            held.error = error
        held.task = None  # not kept any longer, as in _drive
        following: Held | None = None
        try:
            following = self._slots.turn(held)
            self._slots.complete(held)
        except BaseException as error:  # noqa: BLE001  # a bug; else only its task would end
            self._failed("the event loop", error)
        if self._driving:
            self._driving = False
            self._following = following
        elif following is not None:
            # Not from here: tasks begin outside of others.
            self._loop.call_soon(self._drive, following)


def where(task: asyncio.Task[None]) -> Frames:
    """Where a task that waits does so, from its handler inwards."""
    frames: Frames = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        waiting = waiting.cr_await
    return _beneath(frames)


def _attempt_in(handle: asyncio.Handle) -> Held | None:
    context: Context | None = getattr(handle, "_context", None)
    run = None if context is None else context.get(_attempt.running)
    return run if isinstance(run, Held) else None


def _beneath(frames: Frames) -> Frames:
    """Without those of the worker itself at the outer end, unless there are no others."""
    outer = 0
    while outer < len(frames) and frames[outer][0].f_globals.get("__package__") == __package__:
        outer += 1
    return frames[outer:] or frames
