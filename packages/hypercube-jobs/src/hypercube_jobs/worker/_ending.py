"""Why a worker has ended."""

from __future__ import annotations

from enum import Enum, auto


class Ending(Enum):
    """What `Worker.run` returns."""

    #: `stop` was called, or a signal came.
    STOPPED = auto()
    #: Nothing was ready any more, with `stop_when_empty`.
    EMPTY = auto()
    #: `max_jobs` attempts have ended.
    MAX_JOBS = auto()
    #: A handler did not end with its time-out, with `end_on_overrun`.
    OVERRUN = auto()
