"""The end of a process whose interpreter does not get on.

A call into C that keeps the interpreter's lock, such as that of a regular expression which
backtracks without end, stops all threads of Python, those that watch over time-outs included.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable
from types import TracebackType

#: How long the interpreter may stand still beyond the longest time-out, in seconds.
_MARGIN = 60.0
#: How often it says that it gets on, in seconds.
_BEAT = 10.0
#: Where to write which line of which thread it is at: standard error, whatever `sys.stderr` is.
_STANDARD_ERROR = 2


class Watchdog:
    """Ends the process with exit code 1 when no thread of Python has run for too long.

    That is longer than `longest` says, in seconds, and a minute. The thread that sees to it is
    no thread of Python, and writes first where all the others are.
    """

    def __init__(self, longest: Callable[[], float]) -> None:
        self._longest = longest
        self._stopped = threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._run, name="hypercube-watchdog", daemon=True).start()

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        faulthandler.cancel_dump_traceback_later()

    def _run(self) -> None:
        while True:
            faulthandler.dump_traceback_later(
                self._longest() + _MARGIN, exit=True, file=_STANDARD_ERROR
            )
            if self._stopped.wait(_BEAT):
                faulthandler.cancel_dump_traceback_later()
                return
