"""Jobs among the dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from hypercube_jobs._errors import NotSupported
from hypercube_jobs._failure import Failure
from hypercube_jobs._record import Record
from hypercube_queue import (
    DeadLetter,
    DeadLetterStore,
    Queue,
    Redriver,
    StatsProvider,
    capability,
)

#: How many dead letters one call moves or reads.
_PAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A job that is not tried again unless somebody says so."""

    #: Empty where the stored message cannot be read.
    id: str
    kind: str
    #: Empty but for the jobs of `jobs.under(namespace)`.
    namespace: str = ""
    queue: str
    #: The number of the attempt that failed last; 0 if it is not known.
    attempt: int
    #: In UTC, by the backend's clock.
    died_at: datetime
    #: One line: the error's type and the first line of its text, or why the driver set the
    #: message aside.
    reason: str
    failure: Failure | None
    dispatched_at: datetime | None
    payload: bytes = field(repr=False)
    #: Where it stands in the list; `before` takes it.
    cursor: str = field(repr=False)


def failed_jobs(queue: Queue, queue_name: str, limit: int, before: str | None) -> list[FailedJob]:
    """A page of the dead letters of a queue, newest first."""
    return [
        _failed_job(letter, queue_name)
        for letter in _store(queue).dead_letters(queue_name, limit, before)
    ]


def retry(queue: Queue, queue_name: str, ids: tuple[str, ...]) -> int:
    """Make these ready again; how many there were."""
    return _store(queue).redrive_ids(queue_name, *ids)


def retry_all(queue: Queue, queue_name: str) -> int:
    """Make all ready again that are dead now; how many there were."""
    redriver = capability(queue, Redriver)
    if redriver is None:
        raise NotSupported("this queue's driver cannot redrive; use the broker's own tools")
    # Jobs that die again meanwhile must not keep this going for ever.
    stats = capability(queue, StatsProvider)
    left = None if stats is None else stats.stats(queue_name).dead
    moved = 0
    while left is None or moved < left:
        page = redriver.redrive(queue_name, _PAGE if left is None else min(_PAGE, left - moved))
        moved += page
        if not page:
            break
    return moved


def forget(queue: Queue, queue_name: str, ids: tuple[str, ...]) -> int:
    """Remove these for good; how many there were."""
    return _store(queue).forget(queue_name, *ids)


def forget_all(queue: Queue, queue_name: str) -> int:
    """Remove all that are dead now for good; how many there were."""
    store = _store(queue)
    forgotten, before = 0, None
    # Page by page behind the newest, so that those that die meanwhile stay.
    while page := store.dead_letters(queue_name, _PAGE, before):
        before = page[-1].cursor
        ids = [letter.message.id for letter in page if letter.message is not None]
        forgotten += store.forget(queue_name, *ids)
    return forgotten


def _store(queue: Queue) -> DeadLetterStore:
    store = capability(queue, DeadLetterStore)
    if store is None:
        raise NotSupported(
            "this queue's driver cannot look into its dead letters; jobs.retry_all() brings all of "
            "them back, and the broker's own tools show them"
        )
    return store


def _failed_job(letter: DeadLetter, queue_name: str) -> FailedJob:
    message = letter.message
    record = Record.read(b"" if message is None else message.extra)
    failure = record.failure
    reason = letter.reason
    if failure is not None and not reason:
        lines = failure.text.splitlines()
        reason = f"{failure.type}: {lines[0]}" if lines else failure.type
    return FailedJob(
        id="" if message is None else message.id,
        kind="" if message is None else message.job_name,
        namespace="" if message is None else message.namespace,
        queue=queue_name,
        attempt=0 if failure is None else failure.attempt,
        died_at=letter.died_at,
        reason=reason or "no reason was recorded",
        failure=failure,
        dispatched_at=record.dispatched_at,
        payload=(letter.raw or b"") if message is None else message.payload,
        cursor=letter.cursor,
    )
