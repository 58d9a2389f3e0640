"""A queue that remembers what was dispatched."""

from __future__ import annotations

import asyncio
import copy
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from hypercube_jobs import _call
from hypercube_jobs._attached import AttachedQueue
from hypercube_jobs._codec import name_of
from hypercube_jobs._errors import UnknownKind
from hypercube_jobs._registry import Kind
from hypercube_jobs.worker import Worker
from hypercube_jobs.worker._process import process_with
from hypercube_queue import BatchError, InvalidArgument, Message, NotFound
from hypercube_queue_memory import MemoryQueue, MemoryStore

T = TypeVar("T")


class FakeQueue(MemoryQueue, AttachedQueue):
    """Stores jobs as the memory driver does, and remembers them: for tests.

        jobs = Jobs(FakeQueue())
        jobs.dispatch(SendInvoice(order_id=1))
        assert jobs.queue.dispatched(SendInvoice) == [SendInvoice(order_id=1)]

    Nothing runs by itself; `work` runs what is ready, and so does a Worker. Its time stands
    still but for `travel`: delays, leases and backoffs pass when the test says so.
    """

    def __init__(self) -> None:
        AttachedQueue.__init__(self)
        self._passed = timedelta(0)
        self._began = datetime.now(UTC)
        self._messages: list[Message] = []
        self._recording = threading.Lock()
        MemoryQueue.__init__(self, MemoryStore(clock=self._seconds))

    # Time

    def now(self) -> datetime:
        """Its present, which began as that of the making; it is a clock for `Jobs`."""
        return self._began + self._passed

    def travel(self, duration: timedelta) -> None:
        """Let time pass: what was due in between is due now."""
        if duration < timedelta(0):
            raise InvalidArgument(f"duration is {duration}; time does not go back")
        self._passed += duration

    # What was dispatched

    def push(self, *messages: Message) -> None:
        failed: set[int] = set()
        try:
            super().push(*messages)
        except BatchError as failures:
            failed = {failure.index for failure in failures.failed}
            raise
        finally:
            with self._recording:
                for index, message in enumerate(messages):
                    if index not in failed:
                        self._messages.append(copy.copy(message))

    def messages(self, queue: str | None = None) -> list[Message]:
        """All that were stored, as they were pushed, in that order; of one queue, if given."""
        return [
            copy.copy(message) for message in self._messages if queue in {None, message.queue_name}
        ]

    def dispatched(self, type: type[T], *, kind: str | None = None) -> list[T]:
        """The dispatched jobs of a type, decoded, in order, those of a namespace as well.

        Jobs that have run meanwhile are among them. With `kind` only those of that kind: for
        types that several kinds have. Raises UnknownKind if no kind has this type.
        """
        kinds = [each for each in self.attached.kinds() if each.type is type]
        if kind is not None:
            kinds = [each for each in kinds if each.name == kind]
        if not kinds:
            named = "" if kind is None else f" named {kind!r}"
            raise UnknownKind(f"no kind{named} is declared for {name_of(type)}")
        return [
            found.codec.decode(message.payload)
            for message in self._messages
            if (found := self._kind_of(message, kinds)) is not None
        ]

    def pending(self, queue: str | None = None) -> int:
        """How many jobs are ready, delayed or running, in one queue or in all."""
        names = self.queues() if queue is None else [queue]
        counts = [self.stats(name) for name in names]
        return sum(each.ready + each.delayed + each.in_flight for each in counts)

    def clear(self) -> None:
        """Forget what was dispatched so far. Stored jobs stay."""
        with self._recording:
            self._messages.clear()

    # Working

    def work(self, *queues: str) -> None:
        """Run what is ready, in these queues or in all, until nothing is ready any more.

        That includes jobs which those dispatch there. Failures are not raised: look at
        `jobs.failed()`, and `travel` to the next attempt.

        Handlers run one after the other in the calling thread, asynchronous ones on one event
        loop; both see the transaction that a test of Django's is in. Where an event loop
        runs in this thread already, they run in others.
        """
        if _call.loop_runs_here():
            self._work_in_threads(queues)
            return
        with asyncio.Runner() as runner:
            while ready := self._ready(queues):
                for message in self.pop(ready[0], wait=timedelta(0)):
                    # If a handler lets more time pass than its lease has, it runs again.
                    with suppress(NotFound):
                        process_with(runner, self.attached, message)

    def _work_in_threads(self, queues: tuple[str, ...]) -> None:
        while ready := self._ready(queues):
            Worker(self.attached, queues=ready, stop_when_empty=True).run()

    def _ready(self, queues: tuple[str, ...]) -> list[str]:
        return [name for name in queues or self.queues() if self.stats(name).ready]

    def _seconds(self) -> float:
        return self._passed.total_seconds()

    @staticmethod
    def _kind_of(message: Message, kinds: list[Kind]) -> Kind | None:
        for kind in kinds:
            names = {kind.name, *kind.aliases}
            if message.namespace == kind.namespace and message.job_name in names:
                return kind
        return None
