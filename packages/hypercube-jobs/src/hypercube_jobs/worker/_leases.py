"""Keeping what the worker holds, however long handlers take."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

from hypercube_jobs._failure import text_of
from hypercube_jobs.worker._held import NEVER, Held, Holding
from hypercube_jobs.worker._service_thread import Progress, service_thread
from hypercube_queue import (
    BackendError,
    BatchError,
    InvalidArgument,
    NotFound,
    Queue,
    QueueClosed,
    QueueError,
    VisibilityExtender,
    capability,
)

_log = logging.getLogger("hypercube_jobs.worker")

#: The most deliveries of one extension call.
_BATCH = 256
#: How much of a lease passes before it is extended.
_PART = 1 / 3
#: How much of a lease passes before an extension that failed is tried again.
_SOON = 1 / 15
#: How far an extension stays below the longest that the backend allows, in seconds: it counts
#: from the pop, which was a little before we knew of it.
_MARGIN = 1.0
#: A wait longer than this is cut, since platforms limit them. In seconds.
_LONG = 3600.0
#: How long to wait for the thread's end, in seconds.
_PATIENCE = 1.0


class Leases:
    """Extends the leases of all that is held, from a thread of its own.

    Waiting, running and unsettled deliveries alike, to the end of the drain. `lost` is called
    with each delivery whose lease has ended. Where the driver cannot extend, or has no
    leases, it does nothing. `failed` is called if its thread dies.
    """

    def __init__(
        self,
        queue: Queue,
        holding: Holding,
        lost: Callable[[Held], None],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        extender = capability(queue, VisibilityExtender)
        self._extend_visibility = None if extender is None else extender.extend_visibility
        #: The lease of a message that names none, in seconds.
        self.default = NEVER if extender is None else extender.visibility_timeout.total_seconds()
        self._max_visibility = queue.guarantees.max_visibility.total_seconds()
        self._holding = holding
        self._lost = lost
        self._changed = threading.Condition()
        self._wake_at = NEVER
        self._closed = False
        self._in_trouble = False
        self.progress = Progress("extending leases")
        self._thread = service_thread("hypercube-leases", self._run, failed)

    def start(self) -> None:
        if self._extend_visibility is not None:
            self._thread.start()

    def added(self, some: list[Held]) -> None:
        """These are held from now on."""
        first = min(held.extend_at for held in some)
        with self._changed:
            if first < self._wake_at:
                self._wake_at = first
                self._changed.notify()

    def close(self) -> None:
        """Extend nothing more. A call to the backend that is under way may outlive this."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                self._wake_at = NEVER  # from here on `added` says what the look below misses
            with self.progress:
                first = self._extend_due()
            with self._changed:
                self._wake_at = min(self._wake_at, first)
                pause = self._wake_at - time.monotonic()
                if pause > 0 and not self._closed:
                    self._changed.wait(min(pause, _LONG))

    def _extend_due(self) -> float:
        """Extend what is due; the moment when something is due again."""
        now = time.monotonic()
        held_all = self._holding.snapshot()
        due: defaultdict[float, list[Held]] = defaultdict(list)
        for held in held_all:
            if held.extend_at <= now:
                due[self._extension(held, now)].append(held)
        for extension, some in due.items():
            for start in range(0, len(some), _BATCH):
                chunk = some[start : start + _BATCH]
                if extension > 0:
                    self._extend(extension, chunk)
                else:
                    _stop_extending(chunk)
        return min((held.extend_at for held in held_all), default=NEVER)

    def _extension(self, held: Held, now: float) -> float:
        left = self._max_visibility - (now - held.popped_at) - _MARGIN
        return min(held.lease, left)

    def _extend(self, extension: float, some: list[Held]) -> None:
        if self._extend_visibility is None:
            return
        sent_at = time.monotonic()
        errors: dict[int, QueueError] = {}
        try:
            self._extend_visibility(timedelta(seconds=extension), *(held.message for held in some))
        except BatchError as failures:
            errors = {failure.index: failure.error for failure in failures.failed}
        except QueueError as error:
            errors = dict.fromkeys(range(len(some)), error)
        except BaseException as error:  # noqa: BLE001  # a bug in the driver must not end the thread
            _log.exception("extending the leases of %d jobs failed", len(some))
            errors = dict.fromkeys(range(len(some)), BackendError(text_of(error)))
        for index, held in enumerate(some):
            problem = errors.get(index)
            if problem is None:
                held.leased_until = sent_at + extension
                held.extend_at = sent_at + extension * _PART
            else:
                self._failed(held, problem)
        if self._in_trouble and not errors:
            self._in_trouble = False
            _log.info("leases can be extended again")

    def _failed(self, held: Held, error: QueueError) -> None:
        now = time.monotonic()
        if isinstance(error, InvalidArgument | QueueClosed):
            _stop_extending([held])
        elif isinstance(error, NotFound) or now >= held.leased_until:
            _stop_extending([held])
            # Of what is being settled this moment, the settlement knows better.
            if held in self._holding and not held.settling:
                self._lost(held)
        else:
            held.extend_at = now + held.lease * _SOON
            if not self._in_trouble:
                self._in_trouble = True
                _log.warning("leases cannot be extended: %s; trying again while they last", error)


def _stop_extending(some: list[Held]) -> None:
    for held in some:
        held.extend_at = NEVER
