"""What a conformance test acts on: one namespace, its queues, and its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import TypeVar

from hypercube_queue import (
    AlreadyExists,
    BackendError,
    BatchError,
    CapacityExceeded,
    Guarantees,
    InvalidArgument,
    ItemFailure,
    Message,
    MessageTooLarge,
    NotFound,
    Queue,
    QueueClosed,
    QueueError,
    capability,
)
from hypercube_queue_conformance._harness import Harness

C = TypeVar("C")
R = TypeVar("R")

#: The queues that tests use: names that every backend accepts.
QUEUE = "work"
OTHER_QUEUE = "other"

NOTHING = timedelta(0)
#: Empty pops in a row that mean an empty queue, where one alone does not.
_SURE_AFTER = 3
#: More than any test has; only a driver that repeats itself gets here.
_SURELY_TOO_MANY = 5000
#: The error types of the contract, the most specific first.
_ERRORS: tuple[type[QueueError], ...] = (
    MessageTooLarge,
    InvalidArgument,
    AlreadyExists,
    NotFound,
    CapacityExceeded,
    BackendError,
    QueueClosed,
)


class Trial:
    """One test's namespace. It closes whatever the test opened."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        #: What the harness opened, for the referee to look at.
        self.subjects: list[Queue] = []
        self._opened: list[Queue] = []
        self._roles: dict[str, Queue] = {}
        self._opening = threading.Lock()
        self._travelled = NOTHING
        pace = harness.pace
        #: A lease that a test can wait to end. What a test wants to own has a longer one.
        self.lease = max(
            timedelta(milliseconds=250) * pace, 2 * harness.guarantees.visibility_resolution
        )
        #: A delay that a test can wait to end.
        self.delay = timedelta(milliseconds=250) * pace
        #: How long the suite waits for what must come, in real time.
        self.patience = harness.patience * pace
        #: Enough for a thread to begin to wait, in real time.
        self.moment = timedelta(milliseconds=60) * pace
        #: A lease and a delay that do not end within a test.
        self.long_lease = min(timedelta(hours=1), harness.guarantees.max_visibility)
        self.long_delay = min(timedelta(hours=1), harness.guarantees.max_delay)

    # Queues

    def open(self, **options: timedelta) -> Queue:
        """A new driver object on the namespace."""
        queue = self.harness.open(**options)
        self.subjects.append(queue)
        return self.adopt(queue)

    def adopt(self, queue: Queue) -> Queue:
        """Close this queue, too, at the end."""
        self._opened.append(queue)
        return queue

    @property
    def queue(self) -> Queue:
        """The driver object under test."""
        return self._the("queue")

    @property
    def other(self) -> Queue:
        """A second driver object, as another process would have."""
        return self._the("other")

    @property
    def hasty(self) -> Queue:
        """A driver object whose leases end soon, after `self.lease`."""
        return self._the("hasty", visibility_timeout=self.lease)

    def _the(self, role: str, **options: timedelta) -> Queue:
        # Threads of one test may be the first to ask, and must get the same object.
        with self._opening:
            if role not in self._roles:
                self._roles[role] = self.open(**options)
            return self._roles[role]

    def offers(self, protocol: Callable[..., C], queue: Queue | None = None) -> C:
        """The queue, typed as a capability that the driver declares."""
        offered = capability(self.queue if queue is None else queue, protocol)
        assert offered is not None, f"the driver declares {protocol} and has no such methods"
        return offered

    @property
    def guarantees(self) -> Guarantees:
        return self.harness.guarantees

    def close(self) -> None:
        try:
            for queue in self._opened:
                queue.close()
        finally:
            self.harness.close()

    # Messages

    def push(self, count: int = 1, queue_name: str = QUEUE) -> list[Message]:
        """Push so many messages, whose payloads are their numbers."""
        messages = [Message(queue_name, b"%d" % number) for number in range(count)]
        self.queue.push(*messages)
        return messages

    def receive(
        self, count: int = 1, queue_name: str = QUEUE, *, queue: Queue | None = None
    ) -> list[Message]:
        """Pop until so many deliveries have come, and no more than so many."""
        source = self.queue if queue is None else queue
        received: list[Message] = []
        end = time.monotonic() + self.patience.total_seconds()
        while len(received) < count and (left := end - time.monotonic()) > 0:
            wanted = min(count - len(received), 10_000)
            received += source.pop(queue_name, wanted, wait=timedelta(seconds=left))
        assert len(received) == count, (
            f"{count} messages should become visible in {queue_name!r}; "
            f"within {self.patience} came {len(received)}"
        )
        return received

    def receive_one(self, queue_name: str = QUEUE, *, queue: Queue | None = None) -> Message:
        """Pop one delivery, waiting for it."""
        return self.receive(1, queue_name, queue=queue)[0]

    def deliver(self, count: int = 1, *, queue: Queue | None = None) -> list[Message]:
        """Push so many messages and pop them."""
        self.push(count)
        return self.receive(count, queue=queue)

    def deliver_one(self, *, queue: Queue | None = None) -> Message:
        """Push a message and pop it."""
        return self.deliver(1, queue=queue)[0]

    def visible(self, queue_name: str = QUEUE) -> list[bytes]:
        """Pop what is visible this moment; the payloads, sorted."""
        return sorted(each.payload for each in self.take_visible(queue_name))

    def take_visible(self, queue_name: str = QUEUE) -> list[Message]:
        """Pop what is visible this moment, as often as it takes to be sure of all."""
        sure = self.guarantees.full_batches and self.guarantees.empty_is_certain
        taken: list[Message] = []
        empty = 0
        while empty < _SURE_AFTER and len(taken) < _SURELY_TOO_MANY:
            came = self.queue.pop(queue_name, 1000, wait=NOTHING)
            taken += came
            empty = 0 if came else empty + 1
            if sure:
                break
        return taken

    # Time

    def advance(self, duration: timedelta) -> None:
        """Let this much time pass for the backend."""
        self.harness.advance(duration)
        self._travelled += duration

    def let_pass(self, duration: timedelta) -> None:
        """Let time pass until a lease of this duration, begun by now, has surely ended."""
        slack = timedelta(milliseconds=50) * self.harness.pace
        self.advance(duration + self.guarantees.visibility_resolution + slack)

    def time(self) -> timedelta:
        """A clock that runs as fast as the backend's."""
        if self.harness.injected_clock:
            return self._travelled
        return timedelta(seconds=time.monotonic())

    def wait_for_one(self, queue_name: str = QUEUE) -> tuple[Message, timedelta]:
        """Look again and again until one is visible; the delivery and the time it came."""
        step = timedelta(milliseconds=10) * self.harness.pace
        end = self.time() + self.patience + self.guarantees.delay_lateness(self.delay)
        while self.time() < end:
            if came := self.queue.pop(queue_name, wait=NOTHING):
                return came[0], self.time()
            self.advance(step)
        raise AssertionError(f"nothing became visible in {queue_name!r} within {self.patience}")

    # Threads

    def start(self, call: Callable[..., R], *args: object, **kwargs: object) -> Future[R]:
        """Run a call in a thread of its own."""
        future: Future[R] = Future()

        def run() -> None:
            try:
                result = call(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, daemon=True).start()
        return future

    def start_pop(
        self, max_messages: int = 1, queue_name: str = QUEUE, *, queue: Queue | None = None
    ) -> Future[list[Message]]:
        """A pop that waits in a thread, and has surely begun to."""
        source = self.queue if queue is None else queue
        # Longer than `result` waits for it: that the wait is over must not look like a wake-up.
        popping = self.start(source.pop, queue_name, max_messages, wait=5 * self.patience)
        time.sleep(self.moment.total_seconds())
        return popping

    def start_together(self, *calls: Callable[[], R]) -> list[R]:
        """Run the calls at the same time, each in a thread; their results, in order."""
        barrier = threading.Barrier(len(calls))

        def together(call: Callable[[], R]) -> R:
            barrier.wait(self.patience.total_seconds())
            return call()

        futures = [self.start(together, call) for call in calls]
        return [self.result(future) for future in futures]

    def result(self, future: Future[R]) -> R:
        """What a thread's call returned or raised; it must end in time."""
        return future.result(2 * self.patience.total_seconds())


def failures(call: Callable[..., None], *args: object) -> tuple[ItemFailure, ...]:
    """What failed in a batch; nothing if the call returned."""
    try:
        call(*args)
    except BatchError as error:
        return error.failed
    return ()


def failed(call: Callable[..., None], *args: object) -> list[tuple[int, type[QueueError]]]:
    """Index and error type, as the contract names it, of each failed item of a batch."""
    return [(failure.index, error_type(failure.error)) for failure in failures(call, *args)]


def error_type(error: QueueError) -> type[QueueError]:
    """The type of the contract that this error is, for a driver may have subclasses."""
    return next((known for known in _ERRORS if isinstance(error, known)), type(error))
