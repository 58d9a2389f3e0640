"""The SQLite driver, whose class can be exchanged for a broken one."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from tools.sqlite_harness import SQLiteHarness

from hypercube_queue import Queue
from hypercube_queue_sql import SQLQueue


class BreakableHarness(SQLiteHarness):
    """What memory cannot break; faults come on top."""

    #: Nothing is slow here but what is broken.
    patience = timedelta(seconds=3)

    queue_type: ClassVar[type[SQLQueue]] = SQLQueue

    def opened(self, url: str) -> Queue:
        queue = super().opened(url)
        queue.__class__ = self.queue_type
        return queue
