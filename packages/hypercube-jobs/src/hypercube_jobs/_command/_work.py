"""`hypercube work`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

import typer

from hypercube_jobs._command._current_folder import append_current_folder
from hypercube_jobs._command._host import hosted
from hypercube_jobs._command._logging import (
    LogLevel,
    LogLevelOption,
    log_to_stderr,
    set_log_level,
)
from hypercube_jobs._command._schedule import SingleOption, scheduler_of, scheduling
from hypercube_jobs._command._source import AppNotLoaded, check_shared, load_jobs, number, seconds
from hypercube_jobs._jobs import Jobs
from hypercube_jobs._policy import DEFAULT_QUEUE
from hypercube_jobs.worker import Ending, Worker
from hypercube_jobs.worker._options import MAX_CONCURRENCY
from hypercube_jobs.worker._supervised import DONE, MAX_JOBS, REPLACE, Line
from hypercube_jobs.worker._supervisor import AVAILABLE, Supervisor
from hypercube_queue import InvalidArgument, QueueError
from hypercube_queue.checks import checked_name

_log = logging.getLogger("hypercube_jobs.worker")

#: Exit code of a worker without supervisor that a handler has kept from going on.
OVERRUN = 3
#: What a worker tells its supervisor at its end.
_WORDS = {
    Ending.EMPTY: DONE,
    Ending.MAX_JOBS: MAX_JOBS,
    Ending.OVERRUN: REPLACE,
    # If the supervisor has not stopped it, somebody else has.
    Ending.STOPPED: REPLACE,
}
#: More processes than any machine has use for.
_MAX_PROCESSES = 1_000


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
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            "-p",
            metavar="N",
            min=0,
            max=_MAX_PROCESSES,
            help="Work in so many processes, each with --concurrency, and replace those that end; "
            "0 is for debuggers: work in this one.",
            show_default="1",
        ),
    ] = None,
    interrupt_threads: Annotated[
        bool,
        typer.Option(
            "--interrupt-threads",
            help="Raise an exception in threads over their time-out; by default they go on.",
        ),
    ] = False,
    supervised: Annotated[int | None, typer.Option(hidden=True)] = None,
    current_folder: Annotated[bool, typer.Option("--current-folder", hidden=True)] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Also dispatch the periodic jobs, in one process.")
    ] = False,
    single_scheduler: SingleOption = False,
    log_level: LogLevelOption = LogLevel.info,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C, which let running jobs end; a second one does not."""
    queues = list(dict.fromkeys(queue or [DEFAULT_QUEUE]))
    _check_options(queues, concurrency, max_jobs)
    pop_wait = seconds("--sleep", sleep, may_be_zero=False)
    stop_limit = None if stop_timeout is None else seconds("--stop-timeout", stop_timeout)
    if processes and not AVAILABLE:
        raise InvalidArgument("--processes works on Linux and macOS only")
    if supervised is None and processes != 0 and AVAILABLE:
        log_to_stderr(log_level, processes=bool(processes))
        options = {
            "--processes": processes,
            "--concurrency": concurrency,
            "--sleep": sleep,
            "--max-jobs": max_jobs,
            "--stop-timeout": stop_timeout,
            "--log-level": log_level.value,
        }
        # By itself `-m` would look in the current folder first.
        command = [sys.executable, "-P", "-m", "hypercube_jobs._command", "work", app]
        command += ["--current-folder"] * (not sys.flags.safe_path)
        command += [f"--queue={name}" for name in queues]
        command += [f"{name}={value}" for name, value in options.items() if value is not None]
        command += ["--stop-when-empty"] * stop_when_empty
        command += ["--interrupt-threads"] * interrupt_threads
        scheduling_too = [*command, "--schedule", *["--single-scheduler"] * single_scheduler]
        first = scheduling_too if schedule else command
        commands = [first, *[command] * ((processes or 1) - 1)]
        supervisor = Supervisor(
            [[*each, "--supervised"] for each in commands], end_after_max_jobs=processes is None
        )
        raise typer.Exit(supervisor.run())
    if current_folder:
        append_current_folder()
    set_log_level(log_level)
    jobs = load_jobs(app)
    log_to_stderr(log_level, processes=bool(processes))
    check_shared(jobs, app, "dispatch the jobs that are waited for here")
    worker = Worker(
        jobs,
        queues=queues,
        concurrency=concurrency,
        sleep=pop_wait,
        max_jobs=max_jobs,
        stop_when_empty=stop_when_empty,
        stop_timeout=stop_limit,
        interrupt_threads=interrupt_threads,
        process_ends=True,
        # Ended with this code, it is started again by whatever started it.
        end_on_overrun=processes != 0,
    )
    line = None if supervised is None else Line(supervised)

    def run() -> Ending:
        with jobs.queue, hosted(jobs, app):
            _check_kinds(jobs, app, queues)
            scheduler = None
            if schedule:
                scheduler = scheduler_of(jobs, app, single_scheduler=single_scheduler)
            _log.info("working on %s, %d at a time", ", ".join(queues), concurrency)
            with scheduling(scheduler, worker.stop):
                # Not ready before the queues are reached: it may turn out that they never can be.
                return worker.run() if line is None else worker.run(on_ready=line.ready)

    if line is None:
        ending = run()
    else:
        worker._supervised_by(line)
        ending = _run_supervised(run, line, stop_when_empty=stop_when_empty)
    code = OVERRUN if line is None and ending is Ending.OVERRUN else 0
    if worker.abandoned:
        _end_process(code)
    raise typer.Exit(code)


def _run_supervised(run: Callable[[], Ending], line: Line, *, stop_when_empty: bool) -> Ending:
    """Run, and tell the supervisor how it has ended."""
    try:
        ending = run()
    except QueueError:
        if stop_when_empty:
            line.leave(DONE)  # who waits for the end is told of it by the exit code
        raise
    line.leave(_WORDS[ending])
    return ending


def _check_options(queues: Sequence[str], concurrency: int, max_jobs: int | None) -> None:
    for name in queues:
        checked_name("--queue", name, may_be_empty=False)
    number("--concurrency", concurrency, at_least=1, at_most=MAX_CONCURRENCY)
    if max_jobs is not None:
        number("--max-jobs", max_jobs, at_least=1, at_most=sys.maxsize)


def _check_kinds(jobs: Jobs, app: str, queues: list[str]) -> None:
    """Refuse an application without handlers; warn where no kind goes to any of the queues."""
    if not any(kind.handler for kind in jobs.kinds()):
        # Every job would fail until its retries are used up.
        raise AppNotLoaded(f"{app} has no handler; let its module import those that do")
    wanted = dict.fromkeys(kind.policy.queue for kind in jobs.kinds() if kind.handler)
    if not wanted.keys() & set(queues):
        options = " ".join(f"--queue {name}" for name in wanted)
        _log.warning(
            "serving only %s, where no kind of %s goes by itself; to serve the queues of its kinds "
            "add %s",
            ", ".join(queues),
            app,
            options,
        )


def _end_process(code: int) -> NoReturn:
    """End at once, with all threads: who waited for them would give them time to run on."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
