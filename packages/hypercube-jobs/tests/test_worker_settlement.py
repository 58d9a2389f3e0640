"""How deliveries are given back, in good times and bad."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Constant, PermanentError
from hypercube_queue import (
    BackendError,
    BatchError,
    CapacityExceeded,
    InvalidArgument,
    ItemFailure,
    Message,
    QueueError,
)
from hypercube_queue_memory import MemoryQueue

GONE = (0, 0, 0, 0)


@dataclass
class Note:
    """The job of these tests."""

    text: str


class Troubled(MemoryQueue):
    """Settlements go through `before` and `after`, which may raise."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.calls: list[tuple[str, int]] = []
        self.before: Callable[[str, tuple[Message, ...]], None] = lambda operation, some: None
        self.after: Callable[[str, tuple[Message, ...]], None] = lambda operation, some: None

    def ack(self, *messages: Message) -> None:
        self._settle("ack", messages)

    def retry(self, *messages: Message) -> None:
        self._settle("retry", messages)

    def dead_letter(self, *messages: Message) -> None:
        self._settle("dead_letter", messages)

    def _settle(self, operation: str, messages: tuple[Message, ...]) -> None:
        self.calls.append((operation, len(messages)))
        self.before(operation, messages)
        getattr(MemoryQueue, operation)(self, *messages)
        self.after(operation, messages)


@pytest.fixture
def queue(box: Any) -> Troubled:
    troubled = Troubled()
    box.on(troubled)
    box.jobs.declare("note", Note, retries=0)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        if job.text == "fail":
            raise PermanentError("no")
        if job.text == "retry":
            raise ValueError("no")

    return troubled


def failing(times: int, error: Callable[[], QueueError]) -> Callable[..., None]:
    """Raises so often, and then no more."""
    left = [times]

    def step(operation: str, messages: tuple[Message, ...]) -> None:
        if left[0]:
            left[0] -= 1
            raise error()

    return step


def batch_error(*failures: tuple[int, Message, QueueError]) -> BatchError:
    return BatchError("some failed", [ItemFailure(*failure) for failure in failures])


def test_short_jobs_are_settled_in_batches(box: Any, queue: Troubled) -> None:
    """Of up to 256, and much fewer calls than jobs."""
    queue.push(*(box.jobs.message(Note("x")) for _ in range(5_000)))
    box.drain()

    assert sum(size for _, size in queue.calls) == 5_000
    assert max(size for _, size in queue.calls) <= 256
    assert len(queue.calls) < 500


def test_settle_after_zero_settles_singly(box: Any, queue: Troubled) -> None:
    """For backends or audits that want each by itself."""
    queue.push(*(box.jobs.message(Note("x")) for _ in range(100)))
    box.drain(settle_after=timedelta(0))

    assert queue.calls == [("ack", 1)] * 100


def test_an_idle_worker_settles_at_once(box: Any, queue: Troubled) -> None:
    """Waiting for others makes sense only while there are some."""
    box.jobs.dispatch(Note("x"))
    running = box.start(settle_after=timedelta(hours=1), sleep=timedelta(seconds=1))
    box.until(lambda: box.counts() == GONE)
    running.stop()


def test_processed_is_reported_after_the_settlement(box: Any, queue: Troubled) -> None:
    """What an observer counts is done for good."""
    order: list[str] = []
    queue.after = lambda operation, some: order.append(operation)
    box.recorder.processed = lambda event: order.append("processed")
    box.recorder.failed = lambda event: order.append("failed")
    box.jobs.dispatch(Note("x"))
    box.drain()
    box.jobs.dispatch(Note("fail"))
    box.drain()

    assert order == ["ack", "processed", "dead_letter", "failed"]


@pytest.mark.parametrize("text", ["x", "fail", "retry"])
@pytest.mark.parametrize(
    "error",
    [
        lambda: BackendError("away"),
        lambda: BackendError("away", outcome_unknown=True),
        lambda: CapacityExceeded("full"),
    ],
    ids=["not applied", "not applied, but who knows", "no space"],
)
def test_a_refused_settlement_is_repeated(
    box: Any, queue: Troubled, text: str, error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it works; the trouble is logged once."""
    queue.before = failing(3, error)
    box.jobs.dispatch(Note(text), retries=1, backoff=Constant(timedelta(hours=1)))
    box.drain()

    assert len(queue.calls) == 4
    assert box.counts() == {"x": GONE, "fail": (0, 0, 0, 1), "retry": (0, 1, 0, 0)}[text]
    assert box.recorder.steps()[1:] == ["processed" if text == "x" else "failed"]
    assert caplog.text.count("jobs cannot be settled") == 1


@pytest.mark.parametrize("text", ["x", "fail", "retry"])
def test_not_found_after_an_unknown_outcome_counts_as_done(
    box: Any, queue: Troubled, text: str
) -> None:
    """The first try had been applied."""
    queue.after = failing(1, lambda: BackendError("cut off", outcome_unknown=True))
    box.jobs.dispatch(Note(text), retries=1, backoff=Constant(timedelta(hours=1)))
    box.drain()

    assert len(queue.calls) == 2
    assert box.recorder.steps()[1:] == ["processed" if text == "x" else "failed"]


def test_not_found_means_that_the_attempt_is_lost(box: Any, queue: Troubled) -> None:
    """Its result is dropped, and observers are told; the others of its batch are done."""

    def steal(operation: str, messages: tuple[Message, ...]) -> None:
        for message in messages:
            if message.id == "stolen":
                MemoryQueue.ack(queue, message)

    queue.before = steal
    for name in ("a", "stolen", "b"):
        box.jobs.dispatch(Note("x"), id=name)
    box.drain()

    assert [event.id for event in box.recorder.of("processed")] == ["a", "b"]
    assert [event.id for event in box.recorder.of("lost")] == ["stolen"]


def test_only_the_refused_items_of_a_batch_are_repeated(box: Any, queue: Troubled) -> None:
    """The others are settled."""
    refused = []

    def refuse_every_third(operation: str, messages: tuple[Message, ...]) -> None:
        if len(refused) > 20:
            return
        bad = [index for index in range(len(messages)) if index % 3 == 0]
        refused.extend(bad)
        MemoryQueue.ack(queue, *(m for i, m in enumerate(messages) if i not in bad))
        raise batch_error(*((i, messages[i], BackendError("away")) for i in bad))

    queue.before = refuse_every_third
    for number in range(50):
        box.jobs.dispatch(Note("x"), id=str(number))
    box.drain()

    assert box.counts() == GONE
    assert sorted(int(event.id) for event in box.recorder.of("processed")) == list(range(50))
    assert box.recorder.of("lost") == []


def test_a_settlement_is_given_up_when_its_lease_has_ended(box: Any) -> None:
    """The message is somebody else's by then."""
    queue = Troubled(visibility_timeout=timedelta(seconds=0.3))
    queue.extend_visibility = None
    box.on(queue)
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: running.stop())
    queue.before = failing(10_000, lambda: BackendError("away"))
    message = box.jobs.message(Note("x"))
    message.visibility_timeout = timedelta(seconds=0.3)
    queue.push(message)
    running = box.start()
    running.end()

    assert box.recorder.steps() == ["lost"]
    box.until(lambda: box.counts() == (1, 0, 0, 0))


def test_the_lease_of_what_waits_for_its_settlement_is_extended(box: Any) -> None:
    """An outage that outlasts a lease loses nothing, while leases can be extended."""
    queue = Troubled(visibility_timeout=timedelta(seconds=0.4))
    box.on(queue)
    box.jobs.declare("note", Note)
    runs = []
    box.jobs.handler("note")(runs.append)
    queue.before = failing(4, lambda: BackendError("away"))  # 0.1 + 0.2 + 0.4 + 0.8 s
    box.jobs.dispatch(Note("x"))
    box.drain()

    assert len(runs) == 1
    assert box.recorder.steps() == ["dispatched", "processed"]


def test_an_argument_that_the_driver_refuses_does_not_keep_the_worker(
    box: Any, queue: Troubled, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the lease brings the job back."""
    queue.before = failing(1_000, lambda: InvalidArgument("no such thing"))
    box.jobs.dispatch(Note("x"), id="one")
    box.drain()

    assert "job one cannot be settled: no such thing" in caplog.text
    assert box.counts() == (0, 0, 1, 0)


def test_a_bug_in_a_driver_does_not_end_the_settling(
    box: Any, queue: Troubled, caplog: pytest.LogCaptureFixture
) -> None:
    """Other jobs are settled as ever."""
    queue.before = failing(1, lambda: ZeroDivisionError("oops"))  # type: ignore[arg-type,return-value]
    box.jobs.dispatch(Note("x"))
    box.drain()
    box.jobs.dispatch(Note("x"))
    box.drain()

    assert box.counts() == (0, 0, 1, 0)
    assert "settling job" in caplog.text
    assert len(box.recorder.of("processed")) == 1


def test_one_item_that_the_driver_fails_at_costs_no_other(
    box: Any, queue: Troubled, caplog: pytest.LogCaptureFixture
) -> None:
    """After an error that no driver should raise, each is settled by itself."""

    def poisoned(operation: str, messages: tuple[Message, ...]) -> None:
        if any(message.id == "poison" for message in messages):
            raise struct.error("argument out of range")

    queue.before = poisoned
    queue.push(*(box.jobs.message(Note("x"), id=f"id-{number}") for number in range(50)))
    queue.push(box.jobs.message(Note("x"), id="poison"))
    queue.push(*(box.jobs.message(Note("x"), id=f"id-{number}") for number in range(50, 100)))
    box.drain()

    assert box.counts() == (0, 0, 1, 0)
    assert len(box.recorder.of("processed")) == 100
    assert max(size for _, size in queue.calls) > 1, "nothing came in a batch"
    assert "settling job poison failed; it will run again" in caplog.text


def test_what_a_failed_batch_had_settled_is_not_taken_for_lost(box: Any, queue: Troubled) -> None:
    """Its error may have come after it took effect."""
    queue.after = failing(1, lambda: ZeroDivisionError("oops"))  # type: ignore[arg-type,return-value]
    queue.push(*(box.jobs.message(Note("x")) for _ in range(20)))
    box.drain()

    assert box.counts() == GONE
    assert box.recorder.of("lost") == []


def test_with_too_much_unsettled_nothing_more_is_popped(box: Any, queue: Troubled) -> None:
    """And all goes on when the backend does."""
    up = threading.Event()

    def wait(operation: str, messages: tuple[Message, ...]) -> None:
        up.wait()

    queue.before = wait
    queue.push(*(box.jobs.message(Note("x")) for _ in range(3_000)))
    running = box.start()
    box.until(lambda: box.counts()[2] >= 1_024)
    assert box.counts()[2] < 1_024 + 256 + 10
    up.set()
    box.until(lambda: box.counts() == GONE)
    running.stop()


def test_a_stop_now_does_not_wait_for_a_backend_that_is_away(box: Any, queue: Troubled) -> None:
    """What could not be settled comes back by its lease."""
    queue.before = failing(10_000, lambda: BackendError("away"))
    box.jobs.dispatch(Note("x"))
    running = box.start()
    box.until(lambda: len(queue.calls) >= 2)
    running.stop()
    running.stop(now=True)
    running.end()

    assert box.counts() == (0, 0, 1, 0)
