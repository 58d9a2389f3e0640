"""A typed application: what a type checker must know about each thing that it uses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from hypercube_jobs import (
    Attempt,
    DispatchResult,
    Exponential,
    Jobs,
    PermanentError,
    current_attempt,
)
from hypercube_jobs.worker import Worker
from hypercube_queue import (
    BatchError,
    DeadLetter,
    DeadLetterStore,
    ItemFailure,
    Message,
    NotFound,
    Queue,
    QueueStats,
    StatsProvider,
    VisibilityExtender,
    capability,
    open_queue,
)


@dataclass
class SendInvoice:
    """An order to be paid."""

    order: int


def use_queue(queue: Queue) -> None:
    """The contract."""
    queue.push(Message("raw", b"payload", delay=timedelta(0)))
    messages = queue.pop("raw", 10, wait=timedelta(seconds=1))
    assert_type(messages, list[Message])
    queue.ack(*messages)
    try:
        queue.ack(*messages)
    except BatchError as error:
        assert_type(error.failed, tuple[ItemFailure, ...])
        assert isinstance(error.failed[0].error, NotFound)
    assert_type(queue.guarantees.max_delay, timedelta)
    assert_type(capability(queue, VisibilityExtender), VisibilityExtender | None)


def count(queue: Queue) -> int:
    """Dead letters, where the driver can tell."""
    store = capability(queue, DeadLetterStore)
    stats = capability(queue, StatsProvider)
    assert store is not None
    assert stats is not None
    letters = store.dead_letters("billing", 10)
    assert_type(letters, list[DeadLetter])
    assert_type(stats.stats("billing"), QueueStats)
    return len(letters)


def main() -> None:
    """Send three invoices; a fourth cannot be sent."""
    sent: list[int] = []
    with open_queue("memory://") as queue:
        use_queue(queue)
        jobs = Jobs(queue)

        @jobs.handler("send_invoice", retries=2, backoff=Exponential(timedelta(seconds=1)))
        def send(job: SendInvoice) -> None:
            attempt = current_attempt()
            assert_type(attempt, Attempt | None)
            if job.order < 0:
                raise PermanentError("there is no such order")
            sent.append(job.order)

        for order in (1, 2, 3, -1):
            result = jobs.dispatch(SendInvoice(order), queue="billing")
            assert_type(result, DispatchResult)
            assert_type(result.created, bool | None)
        Worker(jobs, queues=["billing"], stop_when_empty=True).run()
        print(f"{len(sent)} invoices sent, {count(queue)} dead")


if __name__ == "__main__":
    main()
