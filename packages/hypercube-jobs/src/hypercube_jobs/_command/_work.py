"""`hypercube work`."""

from __future__ import annotations

import logging
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from hypercube_jobs._command._source import AppNotLoaded, load_jobs
from hypercube_jobs._policy import DEFAULT_QUEUE
from hypercube_jobs.worker import Worker
from hypercube_queue import InvalidArgument

_log = logging.getLogger("hypercube_jobs.worker")


class LogLevel(StrEnum):
    """How much the worker tells."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def work(
    app: Annotated[
        str,
        typer.Argument(metavar="MODULE:ATTRIBUTE", help="A Jobs object, as in shop.jobs:jobs."),
    ],
    *,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME",
            help=f"A queue to serve, the first one first. {DEFAULT_QUEUE} if none is given.",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", help="How many jobs run at once.")
    ] = 1,
    sleep: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for a job at a time.")
    ] = 1.0,
    max_jobs: Annotated[int | None, typer.Option(help="End after so many attempts.")] = None,
    stop_when_empty: Annotated[
        bool, typer.Option("--stop-when-empty", help="End when nothing is ready.")
    ] = False,
    stop_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long running jobs may go on after a signal; if not given, until they end.",
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="What to log.")] = LogLevel.info,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C, which let running jobs end; a second one does not."""
    # An application that has set up its logging at import keeps it.
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    jobs = load_jobs(app)
    queues = list(dict.fromkeys(queue or [DEFAULT_QUEUE]))
    worker = Worker(
        jobs,
        queues=queues,
        concurrency=concurrency,
        sleep=_seconds("--sleep", sleep),
        max_jobs=max_jobs,
        stop_when_empty=stop_when_empty,
        stop_timeout=None if stop_timeout is None else _seconds("--stop-timeout", stop_timeout),
    )
    if not any(kind.handler for kind in jobs.kinds()):
        # Every job would fail until its retries are used up.
        raise AppNotLoaded(f"{app} has no handler; let its module import those that do")
    _log.info("working on %s, %d at a time", ", ".join(queues), concurrency)
    with jobs.queue:
        worker.run()


def _seconds(option: str, value: float) -> timedelta:
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise InvalidArgument(f"{option} is {value}; it is a number of seconds") from None
