"""Interrupting the thread of a synchronous handler, where that was asked for.

An exception raised in a thread from outside comes up between any two steps of Python, or
not at all while the thread waits in C. So it is set only while the handler runs, and taken
back when the handler has ended before it came up: the thread runs others after it.

The thread takes no lock meanwhile: since Python 3.14 the exception may come up between the
taking of a lock by `with` and the block that would release it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context

from hypercube_jobs._errors import ThreadInterrupt
from hypercube_jobs.worker._held import Held

#: Only CPython has the call that this takes.
AVAILABLE = sys.implementation.name == "cpython"


class Turn:
    """The run of one handler in its thread."""

    __slots__ = ("interrupted", "thread_id")

    def __init__(self) -> None:
        self.thread_id = threading.get_ident()
        #: Whether the exception has been set.
        self.interrupted = False


class Interruption:
    """Runs handlers in the calling thread, and interrupts them from another one."""

    def __init__(self) -> None:
        #: The handlers that run and are not interrupted. Who takes one out, in a single step,
        #: has the say: the thread when the handler has ended, or whoever interrupts it.
        self._turns: dict[Held, Turn] = {}

    def run(self, held: Held, context: Context, call: Callable[[Held], None]) -> None:
        """Call within `context`, and keep what is raised as the error of `held`."""
        turn = Turn()
        returned = False
        try:
            try:
                self._turns[held] = turn
                context.run(call, held)
                returned = True
            except BaseException as error:  # noqa: BLE001  # even sys.exit() is a failed attempt
                held.error = error
            if self._turns.pop(held, None) is None:
                # Somebody else has it, who is about to set the exception.
                while not turn.interrupted:
                    time.sleep(0.0001)
                _raise_in(turn.thread_id, None)  # if it has not come up yet
        except ThreadInterrupt as error:
            # It came up when the handler had ended, and it comes once.
            if not returned:
                held.error = held.error or error

    def interrupt(self, held: Held) -> None:
        """Raise ThreadInterrupt in the thread of this handler, once; nothing if it has ended."""
        turn = self._turns.pop(held, None)
        if turn is not None:
            try:
                _raise_in(turn.thread_id, ThreadInterrupt)
            finally:
                turn.interrupted = True


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    import ctypes  # slow to load, and most workers interrupt nothing

    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), raised)
