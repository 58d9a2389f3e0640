"""Threads for requests, since a caller has to be able to leave one that nobody answers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from hypercube_queue import BackendError, QueueError
from hypercube_queue.driver import Deadline

T = TypeVar("T")

#: Seconds after which a thread that has nothing to do ends.
_IDLE_SECONDS = 10.0


class Task(Generic[T]):
    """A call in another thread, and a caller that waits for its result until it leaves.

    The call runs on when its caller is gone. A result that nobody takes is passed to
    `unclaimed`, in the same thread; if the call will never begin, `unbegun` is called.
    """

    def __init__(
        self,
        call: Callable[[], T],
        unclaimed: Callable[[T], object] | None = None,
        unbegun: Callable[[], object] | None = None,
    ) -> None:
        self._call = call
        self._unclaimed = unclaimed
        self._unbegun = unbegun
        #: Pending until the call has ended, so that cancelling it means having left first.
        self._outcome: Future[T] = Future()
        self._beginning = threading.Lock()
        self._begun = False

    def result(self, end: Deadline) -> T:
        """The result; TimeoutError when the time is over, CancelledError when it was left."""
        return self._outcome.result(end.seconds_left())

    def leave(self) -> bool:
        """Nobody waits any more. True if the call will never begin."""
        with self._beginning:
            never = self._outcome.cancel() and not self._begun
        if never and self._unbegun is not None:
            self._unbegun()
        return never

    def unclaimed_result(self) -> T | None:
        """What the call returned, where it ended just before it was left."""
        if self._outcome.cancelled() or self._outcome.exception() is not None:
            return None
        return self._outcome.result()

    def run(self) -> None:
        """What the thread does."""
        with self._beginning:
            if self._outcome.cancelled():
                return
            self._begun = True
        try:
            result = self._call()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            if self._outcome.set_running_or_notify_cancel():
                self._outcome.set_exception(error)
            return
        if self._outcome.set_running_or_notify_cancel():
            self._outcome.set_result(result)
        elif self._unclaimed is not None:
            self._unclaimed(result)


def outcomes(tasks: Sequence[Task[T]], end: Deadline, place: str) -> Iterator[T | QueueError]:
    """What became of each, in order; who does not wait for all of them leaves the rest."""
    try:
        for task in tasks:
            try:
                yield task.result(end)
            except QueueError as error:
                yield error
            except TimeoutError as late:
                never = task.leave()
                what = "the time was over before it was sent" if never else "no answer in time"
                gone = BackendError(f"{place}: {what}", outcome_unknown=not never)
                gone.__cause__ = late
                yield gone
    finally:
        for task in tasks:
            task.leave()


class Threads:
    """Runs calls, at most `limit` at a time; without a limit each at once.

    Daemons, since an interpreter that ends must not wait for a poll.
    """

    def __init__(self, name: str, limit: int | None) -> None:
        self._name = name
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: deque[Task[Any]] = deque()
        self._count = 0
        self._idle = 0
        self._ended: Callable[[], None] | None = None

    def run(
        self,
        call: Callable[[], T],
        unclaimed: Callable[[T], object] | None = None,
        unbegun: Callable[[], object] | None = None,
    ) -> Task[T]:
        """Begin a call."""
        task = Task(call, unclaimed, unbegun)
        with self._changed:
            self._waiting.append(task)
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif self._limit is None or self._count < self._limit:
                self._count += 1
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        return task

    def close(self, ended: Callable[[], None]) -> None:
        """End the threads when they have done what they are at; then call `ended`."""
        with self._changed:
            self._ended = ended
            self._changed.notify_all()
            over = not self._count
        if over:
            ended()

    def _serve(self) -> None:
        while (task := self._next()) is not None:
            task.run()
            # Nothing of it must be kept while this thread waits.
            del task

    def _next(self) -> Task[Any] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(
                lambda: self._waiting or self._ended is not None, timeout=_IDLE_SECONDS
            )
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._count -= 1
            ended = None if self._count else self._ended
        if ended is not None:
            ended()
        return None
