"""`hypercube schedule`."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated

import typer

from hypercube_jobs._clock import utc_now
from hypercube_jobs._command._host import hosted
from hypercube_jobs._command._logging import (
    LogLevel,
    LogLevelOption,
    log_to_stderr,
    set_log_level,
)
from hypercube_jobs._command._output import show_json, show_moment, show_table
from hypercube_jobs._command._source import AppNotLoaded, JSONOption, load_jobs
from hypercube_jobs._errors import WorkerFailed
from hypercube_jobs._failure import type_name
from hypercube_jobs._jobs import Jobs
from hypercube_jobs._scheduler import Scheduler
from hypercube_jobs.worker._service_thread import service_thread
from hypercube_queue import QueueClosed

_log = logging.getLogger("hypercube_jobs.scheduler")

SingleOption = Annotated[
    bool,
    typer.Option(
        "--single-scheduler",
        help="There is no other scheduler; for queues whose ids are not unique.",
    ),
]


def schedule(
    app: Annotated[
        str,
        typer.Argument(metavar="MODULE:ATTRIBUTE", help="A Jobs object, as in shop.jobs:jobs."),
    ],
    *,
    list: Annotated[
        bool, typer.Option("--list", "-l", help="Only show what is scheduled, and when it is due.")
    ] = False,
    single_scheduler: SingleOption = False,
    log_level: LogLevelOption = LogLevel.info,
    json: JSONOption = False,
) -> None:
    """Dispatch the periodic jobs of an application until SIGTERM or Ctrl-C."""
    set_log_level(log_level)
    jobs = load_jobs(app)
    log_to_stderr(log_level)
    with jobs.queue:
        if list or json:
            _show(jobs, json=json)
            return
        with hosted(jobs, app):
            scheduler = scheduler_of(jobs, app, single_scheduler=single_scheduler)
            with _stopped_by_signals(scheduler):
                scheduler.run()


def scheduler_of(jobs: Jobs, app: str, *, single_scheduler: bool) -> Scheduler:
    """The scheduler of an application. Raises AppNotLoaded where there is nothing to schedule."""
    periodic = jobs.periodic()
    if not periodic:
        raise AppNotLoaded(f"{app} has no periodic job; let its module import those that do")
    scheduler = Scheduler(jobs, single_scheduler=single_scheduler)
    _log.info("scheduling %s", ", ".join(each.name for each in periodic))
    return scheduler


@contextmanager
def scheduling(scheduler: Scheduler | None, stop: Callable[[], None]) -> Iterator[None]:
    """Run it, if there is one, in a thread of its own.

    If it dies, `stop` is called, and WorkerFailed raised at the end: a worker that goes on
    without it would hide that nothing is scheduled any more.
    """
    if scheduler is None:
        yield
        return
    deaths: list[BaseException] = []

    def run() -> None:
        with suppress(QueueClosed):  # the worker ends with it, and says so
            scheduler.run()

    def failed(thread: str, error: BaseException) -> None:
        _log.critical("%s has died; the worker stops", thread, exc_info=error)
        deaths.append(error)
        stop()

    service_thread("hypercube-scheduler", run, failed).start()
    try:
        yield
    finally:
        scheduler.stop()
    if deaths:
        raise WorkerFailed(f"the scheduler has died of {type_name(deaths[0])}") from deaths[0]


@contextmanager
def _stopped_by_signals(scheduler: Scheduler) -> Iterator[None]:
    def stop(number: int, _frame: FrameType | None) -> None:
        _log.info("%s: stopping", signal.Signals(number).name)
        scheduler.stop()

    former = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _show(jobs: Jobs, *, json: bool) -> None:
    now = utc_now()
    rows = [(each.name, str(each.when), each.after(now)) for each in jobs.periodic()]
    if json:
        show_json(
            [
                {"name": name, "when": when, "next": due.isoformat() if due else None}
                for name, when, due in rows
            ]
        )
    elif rows:
        table = [(name, when, show_moment(due) if due else "never") for name, when, due in rows]
        show_table(("name", "when", "next due (UTC)"), table)
    else:
        typer.echo("nothing is scheduled")
