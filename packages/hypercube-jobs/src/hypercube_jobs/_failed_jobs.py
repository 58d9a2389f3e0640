"""Jobs among the dead letters."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from hypercube_jobs._errors import NotSupported
from hypercube_jobs._failure import Failure, first_line
from hypercube_jobs._record import Record
from hypercube_jobs._text import one_line
from hypercube_queue import (
    DeadLetter,
    DeadLetterStore,
    InvalidArgument,
    Queue,
    Redriver,
    StatsProvider,
    capability,
)
from hypercube_queue.checks import checked_count

#: How many dead letters one call moves.
_PAGE = 1_000
#: How many are read at first, and at most, and how many bytes they should have together. No
#: driver can be asked for bytes, so a page is as long as those before it say.
_FIRST_READ = 8
_LONGEST_READ = 128
_READ_BYTES = 4 * 1024 * 1024
#: The longest page that a caller can ask for.
_MAX_LIMIT = 10_000


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
    #: None unless it was asked for: payloads can be large, and may hold secrets.
    payload: bytes | None = field(default=None, repr=False)
    #: Where it stands in the list that it is from; `before` takes it.
    cursor: str = field(repr=False)


def failed_jobs(
    queue: Queue, queue_name: str | None, limit: int, before: str | None, *, payloads: bool
) -> list[FailedJob]:
    """A page of the failed jobs of a queue, or of all queues, newest first."""
    _store(queue)
    checked_count("limit", limit, at_most=_MAX_LIMIT)
    if queue_name is not None:
        return list(islice(_of_queue(queue, queue_name, before, payloads=payloads), limit))
    cursors = {} if before is None else _cursors(before)
    page = []
    for job in islice(every(queue, queue_names(queue), cursors, payloads=payloads), limit):
        cursors[job.queue] = job.cursor
        page.append(replace(job, cursor=json.dumps(cursors)))
    return page


def every(
    queue: Queue,
    names: list[str],
    before: Mapping[str, str] | None = None,
    *,
    payloads: bool = False,
) -> Iterator[FailedJob]:
    """The failed jobs of these queues, newest first, read as they are asked for.

    `before` has the cursor of the last one that is known of a queue.
    """
    each = [_of_queue(queue, name, (before or {}).get(name), payloads=payloads) for name in names]
    return heapq.merge(*each, key=lambda job: job.died_at, reverse=True)


def queue_names(queue: Queue, *, where: str = 'queue="default"') -> list[str]:
    """All queues. Raises NotSupported where the driver cannot list them."""
    provider = capability(queue, StatsProvider)
    if provider is None:
        raise NotSupported(f"this queue's driver cannot list its queues; name one, as {where}")
    return provider.queues()


def retry(queue: Queue, names: list[str], ids: tuple[str, ...]) -> int:
    """Make these ready again; how many there were."""
    store = _store(queue)
    return sum(store.redrive_ids(name, *ids) for name in names)


def retry_all(queue: Queue, queue_name: str) -> int:
    """Make all ready again that are dead now; how many there were."""
    redriver = _redriver(queue)
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


def forget(queue: Queue, names: list[str], ids: tuple[str, ...]) -> int:
    """Remove these for good; how many there were."""
    store = _store(queue)
    return sum(store.forget(name, *ids) for name in names)


def forget_all(queue: Queue, queue_name: str) -> int:
    """Remove all that are dead now for good; how many there were."""
    store = _store(queue)
    forgotten = 0
    # Page by page behind the newest, so that those that die meanwhile stay.
    for page in _pages(store, queue_name, None):
        ids = [letter.message.id for letter in page if letter.message is not None]
        forgotten += store.forget(queue_name, *ids)
    return forgotten


def _of_queue(
    queue: Queue, queue_name: str, before: str | None, *, payloads: bool
) -> Iterator[FailedJob]:
    for page in _pages(_store(queue), queue_name, before):
        # One by one from the end, so that what was read is not kept.
        page.reverse()
        while page:
            yield _failed_job(page.pop(), queue_name, payload=payloads)


def _pages(
    store: DeadLetterStore, queue_name: str, before: str | None
) -> Iterator[list[DeadLetter]]:
    limit = _FIRST_READ
    while page := store.dead_letters(queue_name, limit, before):
        before = page[-1].cursor
        mean_bytes = sum(map(_size, page)) / len(page)
        yield page
        fitting = int(_READ_BYTES / max(mean_bytes, 1.0))
        limit = max(1, min(fitting, 2 * limit, _LONGEST_READ))


def _size(letter: DeadLetter) -> int:
    if letter.message is None:
        return len(letter.raw or b"")
    return len(letter.message.payload) + len(letter.message.extra)


def _cursors(before: str) -> dict[str, str]:
    try:
        cursors = json.loads(before)
    except (TypeError, ValueError):
        cursors = None
    if not isinstance(cursors, dict) or not all(isinstance(each, str) for each in cursors.values()):
        raise InvalidArgument(
            "before is no cursor of a list of all queues; it takes that of a FailedJob which the "
            "same call without a queue gave"
        )
    return cursors


def _redriver(queue: Queue) -> Redriver:
    redriver = capability(queue, Redriver)
    if redriver is None:
        raise NotSupported("this queue's driver cannot redrive; use the broker's own tools")
    return redriver


def _store(queue: Queue) -> DeadLetterStore:
    store = capability(queue, DeadLetterStore)
    if store is None:
        raise NotSupported(
            "this queue's driver cannot look into its dead letters; jobs.retry_all(queue) brings "
            "all of them back, and the broker's own tools show them"
        )
    return store


def _failed_job(letter: DeadLetter, queue_name: str, *, payload: bool) -> FailedJob:
    message = letter.message
    record = Record.read(b"" if message is None else message.extra)
    failure = record.failure
    reason = one_line(letter.reason)
    if failure is not None and not reason:
        line = first_line(failure.text)
        reason = f"{failure.type}: {line}" if line else failure.type
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
        payload=None
        if not payload
        else (letter.raw or b"")
        if message is None
        else message.payload,
        cursor=letter.cursor,
    )
