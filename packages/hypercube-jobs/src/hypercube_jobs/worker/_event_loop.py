"""The event loop that asynchronous handlers run on, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

from hypercube_jobs.worker._call import call_async
from hypercube_jobs.worker._first_step import FirstSteps
from hypercube_jobs.worker._held import Held

#: How long the loop may take to end what handlers left running on it, in seconds.
_GRACE = 5.0
#: How many handlers that never wait are run in one pass of the loop.
_AT_A_TIME = 64


class Slots(Protocol):
    """What the loop needs of the execution it belongs to."""

    def begin_async(self) -> Held | None: ...

    def turn(self, ended: Held) -> Held | None: ...

    def complete(self, held: Held) -> None: ...

    def context(self) -> Context: ...


class EventLoop:
    """Started by the first asynchronous job."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempts: _Attempts | None = None
        self._stopped = asyncio.Event()
        self._ready = threading.Event()

    def kick(self) -> None:
        """There are free slots, and it is the turn of asynchronous deliveries."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="hypercube-event-loop", daemon=True
            )
            self._thread.start()
            self._ready.wait()
        if self._attempts is not None:
            self._call_soon(self._attempts.fill_slots)

    def cancel(self, held: Held) -> None:
        """Cancel the attempt, whose `cause` has been set."""
        if self._attempts is not None:
            self._call_soon(self._attempts.cancel, held)

    def close(self) -> None:
        """Cancel what handlers left running, and end the thread; one that is stuck is left."""
        if self._thread is not None:
            self._call_soon(self._stopped.set)
            self._thread.join(_GRACE)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._attempts = _Attempts(self._slots, self._loop)
            self._ready.set()
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stopped.wait()

    def _call_soon(self, function: Callable[..., object], *args: Held) -> None:
        with contextlib.suppress(RuntimeError):  # closed a moment ago
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *args)


class _Attempts:
    """The attempts on the loop, each a task of its own. Called on the loop's thread only."""

    def __init__(self, slots: Slots, loop: asyncio.AbstractEventLoop) -> None:
        self._slots = slots
        self._loop = loop
        self._first_steps = FirstSteps(loop)
        #: A task is taking its first step. If it ends with that it says so here, and leaves
        #: what follows it.
        self._driving = False
        self._following: Held | None = None

    def fill_slots(self) -> None:
        while (held := self._slots.begin_async()) is not None:
            self._drive(held)

    def cancel(self, held: Held) -> None:
        # Before its first step it sees its `cause` by itself.
        if held.began and held.task is not None:
            held.task.cancel()

    def _drive(self, held: Held | None) -> None:
        """Start `held`, and as long as handlers end without ever waiting, what follows it."""
        for _ in range(_AT_A_TIME):
            if held is None:
                return
            self._driving = True
            task = self._first_steps.start(self._attend(held), self._slots.context())
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
        except GeneratorExit:
            raise  # the loop itself is going away
        except BaseException as error:  # noqa: BLE001  # even sys.exit() is a failed attempt
            held.error = error
        held.task = None  # not kept any longer, as in _drive
        following = self._slots.turn(held)
        self._slots.complete(held)
        if self._driving:
            self._driving = False
            self._following = following
        elif following is not None:
            # Not from here: tasks begin outside of others.
            self._loop.call_soon(self._drive, following)
