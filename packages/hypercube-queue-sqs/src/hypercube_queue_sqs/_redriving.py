"""Bringing dead letters back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from hypercube_queue import QueueError
from hypercube_queue.driver import (
    Deadline,
    UnreadableEnvelope,
    chunked,
    to_microseconds,
)
from hypercube_queue_sqs._directory import Directory
from hypercube_queue_sqs._options import Options
from hypercube_queue_sqs._service import Service
from hypercube_queue_sqs._threads import Threads, outcomes
from hypercube_queue_sqs._wire import (
    MAX_ENTRIES,
    MAX_REQUEST_BYTES,
    body_bytes,
    opened,
    revived,
    whole_seconds,
)

#: Seconds of the poll that finds out whether anything is left.
_SURE = 1
#: What is left to be done when the call is over.
_LEAVING = timedelta(seconds=10)


@dataclass(slots=True)
class _Moved:
    """What became of one request's dead letters."""

    count: int = 0
    #: Handles of those that nobody can read.
    unreadable: list[str] = field(default_factory=list)
    error: QueueError | None = None


class Redriving:
    """Moves dead letters, several requests at once."""

    def __init__(
        self,
        service: Service,
        directory: Directory,
        threads: Threads,
        options: Options,
    ) -> None:
        self._service = service
        self._directory = directory
        self._threads = threads
        self._connections = options.connections
        self._hidden_for = whole_seconds(
            min(to_microseconds(options.operation_timeout), 43_200 * 1_000_000)
        )

    def redrive(self, queue_name: str, count: int, end: Deadline) -> int:
        """Move up to `count`; how many surely moved. Raises QueueError if none did."""
        moved = _Moved()
        wait = _SURE
        try:
            while moved.count < count and moved.error is None:
                left = count - moved.count
                requests = 1 if wait else min(self._connections, -(-left // MAX_ENTRIES))
                sizes = [min(MAX_ENTRIES, left - n * MAX_ENTRIES) for n in range(requests)]
                found = self._round(queue_name, sizes, wait, moved, end)
                if not found and wait:
                    break
                # A short poll that brings little may have missed much, so a long one decides.
                wait = 0 if 2 * found >= sum(sizes) else _SURE
        finally:
            self._show(queue_name, moved.unreadable)
        if moved.error is not None and not moved.count:
            raise moved.error
        return moved.count

    def _round(
        self, queue_name: str, sizes: Sequence[int], wait: int, moved: _Moved, end: Deadline
    ) -> int:
        """One request of each size; how many messages they found."""
        tasks = [
            self._threads.run(partial(self._move, queue_name, size, wait, end)) for size in sizes
        ]
        found = 0
        for outcome in outcomes(tasks, end, self._service.place):
            if isinstance(outcome, QueueError):
                moved.error = moved.error or outcome
                continue
            found += outcome.count + len(outcome.unreadable)
            moved.count += outcome.count
            moved.unreadable += outcome.unreadable
            moved.error = moved.error or outcome.error
        return found

    def _move(self, queue_name: str, most: int, wait: int, end: Deadline) -> _Moved:
        place = self._directory.work(queue_name, end)
        dead = self._directory.dead(queue_name, end)
        moved = _Moved()
        readable = []
        for each in self._service.receive(dead, most, self._hidden_for, wait, end):
            try:
                readable.append((each["ReceiptHandle"], revived(opened(each))))
            except UnreadableEnvelope:
                moved.unreadable.append(each["ReceiptHandle"])
        for chunk in chunked(
            readable,
            MAX_ENTRIES,
            max_bytes=MAX_REQUEST_BYTES,
            size=lambda each: body_bytes(each[1]),
        ):
            fates = self._service.send(place.url, [entry for _, entry in chunk], end)
            gone = [handle for (handle, _), fate in zip(chunk, fates, strict=True) if fate is None]
            kept = [handle for (handle, _), fate in zip(chunk, fates, strict=True) if fate]
            if gone:
                # Where this fails they come twice; moved they are in any case.
                self._service.delete(dead, gone, end)
            if kept:
                self._service.change_visibility(dead, [(handle, 0) for handle in kept], end)
            moved.count += len(gone)
            moved.error = moved.error or next((fate for fate in fates if fate), None)
        return moved

    def _show(self, queue_name: str, handles: Sequence[str]) -> None:
        """They were hidden so that others could be found behind them."""
        for chunk in chunked(handles, MAX_ENTRIES):
            self._threads.run(partial(self._show_chunk, queue_name, chunk))

    def _show_chunk(self, queue_name: str, handles: Sequence[str]) -> None:
        end = Deadline(_LEAVING)
        dead = self._directory.dead(queue_name, end)
        self._service.change_visibility(dead, [(handle, 0) for handle in handles], end)
