# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "hypercube-jobs",
#   "hypercube-queue-sql",
#   "markdown-it-py>=3",
#   "rich>=13.9",
# ]
# ///
"""Check the links of all Markdown files in a folder: one job for each file.

    python check_links.py [FOLDER] [--db FILE] [--external] [--strict]

The queue and the results are in one SQLite file. The check may be killed at any moment and
started again: it goes on where it was, and counts every file once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from link_check import (
    Report,
    Run,
    Runs,
    Unreachable,
    as_path,
    as_text,
    is_local,
    is_web_address,
    markdown_files,
    read_document,
    repository_root,
    retry_command,
    why_broken,
    why_unwanted,
)

from hypercube_jobs import (
    Exponential,
    Jobs,
    NotSupported,
    PermanentError,
    Worker,
    current_attempt,
)
from hypercube_queue import Queue, QueueError, StatsProvider, capability, open_queue

REPOSITORY = Path(__file__).resolve().parents[3]
#: Files that are checked at a time.
CONCURRENCY = 8
#: How long a file waits when a check was killed in the middle of it.
LEASE = timedelta(seconds=5)
#: How long the worker waits for a job at a time, and so what the end may take.
SLEEP = timedelta(milliseconds=200)
#: How often the state of things is looked at.
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    folder: Path
    db: Path
    external: bool
    strict: bool


@dataclass
class CheckFile:
    """Check the links of one file. Paths are such as `as_text` makes."""

    run: str
    folder: str
    path: str
    external: bool


class BrokenLinks(PermanentError):
    """A file has broken links, and trying again would not mend them."""


def make_jobs(queue: Queue, runs: Runs) -> Jobs:
    """The one kind of job there is, and its handler."""
    jobs = Jobs(queue)

    @jobs.handler(
        "check_file",
        retries=5,
        backoff=Exponential(timedelta(milliseconds=500), cap=timedelta(seconds=10), jitter=0.2),
        timeout=timedelta(minutes=5),
    )
    def check_file(job: CheckFile) -> None:
        links, problems = problems_of(job, runs)
        # Before the queue learns it: a check that is killed in between finds the job in the
        # queue and comes to the same result, in the same row.
        runs.record(job.run, job.path, links, problems)
        if problems:
            raise BrokenLinks(f"{job.path}: {'; '.join(problems)}")

    return jobs


def problems_of(job: CheckFile, runs: Runs) -> tuple[int, list[str]]:
    """How many links of the file were checked, and what is wrong with it.

    Raises Unreachable if an address may answer later and there is another attempt.
    """
    folder = Path(as_path(job.folder))
    file = folder / as_path(job.path)
    root = repository_root(folder)
    checked = 0
    problems: list[str] = []
    unreachable: list[str] = []
    try:
        document = read_document(file)
    except OSError as error:
        return 0, [f"the file cannot be read: {error.strerror}"]
    for link in document.links:
        problem = None
        if is_local(link.target):
            problem = why_broken(link.target, file, root)
        elif job.external and is_web_address(link.target):
            try:
                problem = why_unwanted_once(job.run, link.target, runs)
            except Unreachable as error:
                problem = str(error)
                unreachable.append(f"{link.target}: {problem}")
        else:
            continue
        checked += 1
        if problem:
            problems.append(" ".join(f"line {link.line}: {link.target}: {problem}".split()))
    attempt = current_attempt()
    if unreachable and attempt is not None and not attempt.last:
        raise Unreachable(f"{job.path}: {'; '.join(unreachable)}")
    return checked, problems


def why_unwanted_once(run: str, address: str, runs: Runs) -> str | None:
    """Ask for an address, unless another file or attempt of this run got a final answer."""
    address = address.partition("#")[0]
    if known := runs.remembered(run, address):
        return known[0]
    problem = why_unwanted(address)
    runs.remember(run, address, problem)
    return problem


@dataclass(frozen=True, slots=True)
class Left:
    """Jobs that are neither done nor dead, and those among them that wait for a retry."""

    total: int
    delayed: int


def begin_or_resume(folder: Path, jobs: Jobs, runs: Runs, report: Report, *, external: bool) -> Run:
    """The unfinished run over the folder, or a new one, with its jobs in the queue."""
    latest = runs.latest(as_text(str(folder)))
    if latest is not None:
        run, finished = latest
        if not finished or files_left(jobs.queue, run):
            report.say(f"resuming the run of {folder}")
            if run.external != external:
                report.say(f"it was started {'with' if run.external else 'without'} --external")
            return run
        forget_dead(jobs, run)
    paths = markdown_files(folder, lambda error: report.say(f"left out: {error}"))
    report.say(f"checking the Markdown files of {folder}")

    def dispatch(connection: sqlite3.Connection, run: Run, path: str) -> None:
        job = CheckFile(run.id, run.folder, path, run.external)
        jobs.dispatch_within(connection, job, queue=run.queue)

    return runs.begin(as_text(str(folder)), paths, external=external, dispatch=dispatch)


def forget_dead(jobs: Jobs, run: Run) -> None:
    """Remove the dead jobs of a run that a new one takes the place of."""
    before = None
    while dead := jobs.failed(run.queue, before=before):
        # An unreadable message has no id to be forgotten by.
        jobs.forget(*(job.id for job in dead if job.id), queue=run.queue)
        before = dead[-1].cursor


def work(jobs: Jobs, run: Run, report: Report) -> None:
    """Check files until none is left, or until Ctrl-C."""
    worker = Worker(jobs, queues=[run.queue], concurrency=CONCURRENCY, sleep=SLEEP)
    with ThreadPoolExecutor(1) as pool, report.progress(run.files) as show:
        working = pool.submit(worker.run)
        try:
            while not working.done() and (left := files_left(jobs.queue, run)):
                show(run.files - left.total, left.delayed)
                time.sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            report.say("letting the files that are being checked end; Ctrl-C again does not")
            worker.stop()
            try:
                wait([working])
            except KeyboardInterrupt:
                worker.stop(now=True)
            raise
        finally:
            worker.stop()
        working.result()
        show(run.files, 0)


def files_left(queue: Queue, run: Run) -> Left | None:
    """How many jobs of the run are neither done nor dead; None if it is over."""
    provider = capability(queue, StatsProvider)
    if provider is None:
        raise NotSupported("this queue's driver cannot count; use a SQLite file")
    stats = provider.stats(run.queue)
    total = stats.ready + stats.delayed + stats.in_flight
    return Left(total, stats.delayed) if total else None


def record_the_rest(jobs: Jobs, run: Run, runs: Runs) -> None:
    """Give the jobs that died without a result theirs: over their time, or with the process."""
    known = runs.dead(run)
    before = None
    while page := jobs.failed(run.queue, before=before, payloads=True):
        for job in page:
            path = json.loads(job.payload or b"")["path"]
            if path not in known:
                runs.record(run.id, path, 0, [job.reason])
        before = page[-1].cursor


def check(options: Options, report: Report) -> int:
    """The whole check; its exit code."""
    url = f"sqlite:///{quote(str(options.db))}"
    queue_url = f"{url}?visibility_timeout={LEASE.total_seconds():.0f}"
    with Runs(options.db) as runs, open_queue(queue_url) as queue:
        report.say(f"queue and results are in {options.db}")
        jobs = make_jobs(queue, runs)
        run = begin_or_resume(options.folder, jobs, runs, report, external=options.external)
        work(jobs, run, report)
        record_the_rest(jobs, run, runs)
        runs.finish(run)
        tally = runs.tally(run)
        report.result(run, tally, runs.dead(run), retry_command(run, url))
        return 1 if options.strict and tally.dead else 0


def read_options(arguments: Sequence[str]) -> Options:
    """The command line. Ends the process with code 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="check_links",
        description="Check the relative links of all Markdown files in a folder.",
    )
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=REPOSITORY)
    parser.add_argument("--db", metavar="FILE", type=Path, help="the SQLite file to use")
    parser.add_argument("--external", action="store_true", help="check http and https links too")
    parser.add_argument("--strict", action="store_true", help="end with 1 if a file is dead")
    given = parser.parse_args(arguments)
    try:
        folder = given.folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        parser.error(f"the folder {given.folder} cannot be found: {error}")
    if not folder.is_dir():
        parser.error(f"{given.folder} is not a folder")
    db = default_db(folder) if given.db is None else given.db.absolute()
    try:
        if given.db is None:
            db.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"{db.parent} cannot be made: {error.strerror}; choose a place with --db FILE")
    if not db.parent.is_dir():
        parser.error(f"there is no folder {db.parent} to put {db.name} in")
    if db.is_dir():
        parser.error(f"{db} is a folder; --db takes a file")
    return Options(folder, db, given.external, given.strict)


def default_db(folder: Path) -> Path:
    """A file in the user's cache, the same each time for the same folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111  # it never fails
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()
    return cache / "hypercube" / f"check-links-{digest[:12]}.db"


def main() -> int:
    """Run the check as the command line says; the exit code."""
    options = read_options(sys.argv[1:])
    # What becomes of the files stands in the tables; of the worker only trouble is of interest.
    logging.getLogger("hypercube_jobs.worker.jobs").disabled = True
    # As Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = Report()
    try:
        return check(options, report)
    except KeyboardInterrupt:
        report.say("stopped; start the same check again and it goes on from here")
        return 130
    except (OSError, QueueError, sqlite3.Error) as error:
        sys.stderr.write(f"check_links: {options.db}: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
