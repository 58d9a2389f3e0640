"""Dispatching periodic jobs, once for each due time however many schedulers run.

    now          + 30 s                    + 60 s
     |-----------|==========================|
      left to    | dispatched, delayed until | not yet
      others     | it is due, under its id   |

An id is free again once its job is done, so nobody may dispatch a due time that could be done
already. Whoever dispatches it does so while it is more than 30 s ahead, and the message waits
until then: a second scheduler whose clock or whose call is late by less finds the id taken.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from hypercube_jobs._dispatcher import DispatchResult
from hypercube_jobs._jobs import Jobs
from hypercube_jobs._outage import Outage
from hypercube_jobs._periodic import PeriodicJob
from hypercube_queue import InvalidArgument, QueueClosed, QueueError

_log = logging.getLogger("hypercube_jobs.scheduler")

#: Missed due times that are counted; after a long sleep there may be any number.
_COUNTED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """How far ahead a due time is dispatched, and how often that is looked after."""

    nearest: timedelta = timedelta(seconds=30)
    farthest: timedelta = timedelta(seconds=60)
    pause: timedelta = timedelta(seconds=5)


_HORIZON = Horizon()


class Scheduler:
    """Dispatches what `jobs.schedule` has declared.

        Scheduler(jobs).run()

    Any number of them may run, in any number of processes, as long as their clocks differ by
    less than 30 s: each due time is dispatched once. That takes ids which are unique across
    processes (`guarantees.unique_ids`); where they are not, `single_scheduler=True` promises that
    there is no other one. It then leaves its first minute to the scheduler before it.

    A due time is dispatched half a minute before it comes, or not at all. Those that come while
    the queue cannot be reached, or while this process stands still, are missed: they are logged
    and not made up for. Those that come while no scheduler runs are missed and not logged, as
    nobody knows of them; each one logs from when on it dispatches. What was dispatched and found
    no worker waits in its queue, one job for each due time.

    Raises InvalidArgument if there is nothing to schedule or ids are not unique.
    """

    def __init__(
        self, jobs: Jobs, *, single_scheduler: bool = False, _horizon: Horizon = _HORIZON
    ) -> None:
        if not isinstance(jobs, Jobs):
            raise InvalidArgument(f"a scheduler is for a Jobs object, not {type(jobs).__name__}")
        unique = jobs.queue.guarantees.unique_ids
        if unique != "backend" and not single_scheduler:
            raise InvalidArgument(
                "the ids of this queue are not unique across processes, so two schedulers would "
                "dispatch each due time twice; see to it that there is one only, and say so with "
                "single_scheduler=True"
            )
        self._periodic = jobs.periodic()
        if not self._periodic:
            raise InvalidArgument("there is no periodic job; declare some with jobs.schedule()")
        self._jobs = jobs
        self._single = single_scheduler
        if single_scheduler:
            # There the ids of due times need not be unique.
            jobs._dispatcher.accept_repeated_ids()
        self._horizon = _horizon
        #: What is due until then has been seen to, or has been missed.
        self._left_at: datetime | None = None
        #: The ids of what is due later and has been dispatched.
        self._done: dict[str, datetime] = {}
        self._outage = Outage("dispatching periodic jobs", _log)
        self._stopped = threading.Event()

    def run(self) -> None:
        """Dispatch until stopped. A queue that cannot be reached is waited for.

        Raises QueueClosed.
        """
        self.look()
        while not self._stopped.wait(self._horizon.pause.total_seconds()):
            self.look()

    def stop(self) -> None:
        """Let `run` end: from any thread, and without waiting."""
        self._stopped.set()

    def look(self) -> None:
        """Dispatch all that it is time for, once. `run` does so every five seconds."""
        now = self._jobs.clock()
        nearest, farthest = now + self._horizon.nearest, now + self._horizon.farthest
        if self._left_at is None:
            self._left_at = farthest if self._single else nearest
            _log.info(
                "dispatching what is due after %s; what was due before is left to the schedulers "
                "that ran then, and missed if none did",
                self._left_at.replace(microsecond=0),
            )
        for periodic in self._periodic:
            self._note_missed(periodic, self._left_at, nearest)
        begin = self._left_at = max(self._left_at, nearest)
        self._done = {id: due for id, due in self._done.items() if due > begin}
        for periodic in self._periodic:
            for due in periodic.between(begin, farthest):
                if periodic.id(due) not in self._done:
                    self._dispatch(periodic, due)

    def _dispatch(self, periodic: PeriodicJob, due: datetime) -> None:
        delay = due - self._jobs.clock()
        if delay <= self._horizon.nearest:
            return  # those before it took too long
        try:
            result = self._pushed(periodic, due, delay)
        except QueueClosed:
            raise
        except QueueError as error:
            self._outage.note(error, self._horizon.pause.total_seconds())
            return
        except (Exception, SystemExit):  # noqa: BLE001  # an application's function makes the job
            _log.exception("the periodic job %s cannot be made for %s", periodic.name, due)
        else:
            self._outage.end()
            if result.created:
                _log.info("periodic job %s is dispatched for %s", periodic.name, due)
        self._done[periodic.id(due)] = due

    def _pushed(self, periodic: PeriodicJob, due: datetime, delay: timedelta) -> DispatchResult:
        job, id = periodic.made_for(due), periodic.id(due)
        space = self._jobs.under(periodic.namespace) if periodic.namespace else self._jobs
        if periodic.kind is None:
            return space.dispatch(job, id=id, delay=delay, **periodic.options)
        return space.dispatch_kind(periodic.kind, job, id=id, delay=delay, **periodic.options)

    def _note_missed(self, periodic: PeriodicJob, after: datetime, until: datetime) -> None:
        past = list(islice(periodic.between(after, until), _COUNTED))
        missed = [due for due in past if periodic.id(due) not in self._done]
        if missed:
            _log.warning(
                "periodic job %s has missed %s%d due times from %s on: there was no way to "
                "dispatch them half a minute ahead, and they are not made up for",
                periodic.name,
                "at least " if len(past) == _COUNTED else "",
                len(missed),
                missed[0],
            )
