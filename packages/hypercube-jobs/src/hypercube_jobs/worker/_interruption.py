"""Interrupting the thread of a synchronous handler, where that was asked for.

An exception raised in a thread from outside comes up between any two steps of Python, or
not at all while the thread waits in C. So it is set only while the handler runs, and taken
back when the handler has ended before it came up: the thread runs others after it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context

from hypercube_jobs._errors import ThreadInterrupt
from hypercube_jobs.worker._held import Held

#: Only CPython has the call that this takes.
AVAILABLE = sys.implementation.name == "cpython"


class Interruption:
    """Runs handlers in the calling thread, and interrupts them from another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The threads that run a handler now.
        self._threads: dict[Held, int] = {}
        #: Those that have been interrupted.
        self._interrupted: set[Held] = set()

    def run(self, held: Held, context: Context, call: Callable[[Held], None]) -> None:
        """Call within `context`, and keep what is raised as the error of `held`."""
        returned = False
        try:
            try:
                with self._lock:
                    self._threads[held] = threading.get_ident()
                context.run(call, held)
                returned = True
            except BaseException as error:  # noqa: BLE001  # even sys.exit() is a failed attempt
                held.error = error
            self._end(held)
        except ThreadInterrupt as error:
            # It came up when the handler had ended, and it comes once.
            self._end(held)
            if not returned:
                held.error = held.error or error

    def interrupt(self, held: Held) -> None:
        """Raise ThreadInterrupt in the thread of this handler, once; nothing if it has ended."""
        with self._lock:
            thread_id = self._threads.get(held)
            if thread_id is not None and held not in self._interrupted:
                self._interrupted.add(held)
                _raise_in(thread_id, ThreadInterrupt)

    def _end(self, held: Held) -> None:
        with self._lock:
            thread_id = self._threads.pop(held, None)
            if thread_id is not None and held in self._interrupted:
                _raise_in(thread_id, None)  # what has not come up yet must not hit the next one
            self._interrupted.discard(held)


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    import ctypes  # slow to load, and most workers interrupt nothing

    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), raised)
