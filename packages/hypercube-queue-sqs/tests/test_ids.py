"""Ids that are taken: pending until the message is stored, and free again afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import boto3
import pytest
from tools.strict_sqs import StrictSQS

from hypercube_queue import AlreadyExists, BackendError, BatchError, InvalidArgument, Message
from hypercube_queue_sqs import IDState, IDStore, ProcessIDStore, SQSQueue

NOW = timedelta(0)
MINUTE = timedelta(minutes=1)


def failed(call: Callable[..., None], *messages: Message) -> list[type]:
    try:
        call(*messages)
    except BatchError as error:
        return [type(each.error) for each in error.failed]
    return []


@pytest.mark.parametrize("fault", ["drop", "forget_answer", "fail_entries", "omit_entries"])
def test_a_push_that_failed_can_be_repeated_at_once(
    queue: SQSQueue, strict: StrictSQS, fault: str
) -> None:
    """What is pending never refuses, whether the outcome is known or not."""
    queue.push(Message("work"))
    getattr(strict.faults, fault)("SendMessageBatch")
    message = Message("work", id="same")
    assert failed(queue.push, message) == [BackendError]
    queue.push(message)
    assert failed(queue.push, message) == [AlreadyExists]


def test_a_producer_that_crashed_in_between_refuses_nobody_for_long(
    strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """Its reservation is pending, so the repeated push waits for its end, and then stores."""
    store = ProcessIDStore()
    queue = SQSQueue(
        boto3.client(
            "sqs",
            region_name="eu-west-1",
            endpoint_url=strict.endpoint,
            aws_access_key_id="x",
            aws_secret_access_key="x",
        ),
        ids=store,
        ensure_queues=True,
        operation_timeout=timedelta(seconds=5),
    )
    queue.push(Message("work", id="first"))
    [(arn, _)] = [key for key in store._taken if key[1] == "first"]
    assert store.reserve(arn, ["same"], "crashed", timedelta(seconds=1)) == {"same": "reserved"}
    begun = time.monotonic()
    queue.push(Message("work", id="same"))
    assert 0.5 < time.monotonic() - begun < 4
    assert failed(queue.push, Message("work", id="same")) == [AlreadyExists]

    store.reserve(arn, ["other"], "slow", MINUTE)
    [kind] = failed(queue.push, Message("work", id="other"))
    assert kind is BackendError
    queue.close()
    queue._clients.get().sqs.close()


def test_of_two_pushes_at_once_one_waits_for_the_other(queue: SQSQueue, strict: StrictSQS) -> None:
    """And is told that the id is taken, once it is."""
    queue.push(Message("work"))
    strict.faults.slow("SendMessageBatch", 0.5)
    outcomes: list[list[type]] = []
    threads = [
        threading.Thread(
            target=lambda: outcomes.append(failed(queue.push, Message("work", id="x")))
        )
        for _ in range(3)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(map(len, outcomes)) == [0, 1, 1]


def test_an_ack_frees_the_id_and_a_retry_does_not(queue: SQSQueue) -> None:
    """Nor does a dead letter, nor its redrive."""
    queue.push(Message("work", id="same"))
    queue.retry(*queue.pop("work"))
    assert failed(queue.push, Message("work", id="same")) == [AlreadyExists]
    queue.dead_letter(*queue.pop("work"))
    assert failed(queue.push, Message("work", id="same")) == [AlreadyExists]
    assert queue.redrive("work", 1) == 1
    assert failed(queue.push, Message("work", id="same")) == [AlreadyExists]
    queue.ack(*queue.pop("work"))
    queue.push(Message("work", id="same"))


def test_an_id_that_was_acknowledged_before_its_push_returned_stays_free() -> None:
    """A quick worker is faster than the producer's own confirmation."""
    store = ProcessIDStore()
    store.reserve("queue", ["x"], "push 1", MINUTE)
    store.release("queue", ["x"])
    store.confirm("queue", ["x"], "push 1", MINUTE)
    assert store.reserve("queue", ["x"], "push 2", MINUTE) == {"x": "reserved"}


def test_a_reservation_of_another_push_is_not_cancelled() -> None:
    """Nor one that is confirmed."""
    store = ProcessIDStore()
    store.reserve("queue", ["x", "y"], "push 1", MINUTE)
    store.confirm("queue", ["y"], "push 1", MINUTE)
    store.cancel("queue", ["x"], "push 2")
    store.cancel("queue", ["y"], "push 1")
    assert store.reserve("queue", ["x", "y"], "push 2", MINUTE) == {"x": "pending", "y": "stored"}


def test_the_process_forgets_ids_after_a_while_and_beyond_a_number() -> None:
    """Another process may have acknowledged them, and memory is finite."""
    store = ProcessIDStore(keep_for=timedelta(milliseconds=50), capacity=3)
    ids = [str(n) for n in range(5)]
    store.reserve("queue", ids, "push 1", MINUTE)
    store.confirm("queue", ids, "push 1", MINUTE)
    assert len(store._taken) == 3
    assert store.reserve("queue", ["4"], "push 2", MINUTE) == {"4": "stored"}
    time.sleep(0.06)
    assert store.reserve("queue", ["4"], "push 2", MINUTE) == {"4": "reserved"}
    assert len(store._taken) == 1


class Recording:
    """An IDStore of somebody else's."""

    def __init__(self) -> None:
        self.kept: list[timedelta] = []
        self.fails = False

    def reserve(
        self, queue: str, ids: Sequence[str], holder: str, pending_for: timedelta
    ) -> Mapping[str, IDState]:
        if self.fails:
            raise BackendError("the store cannot be reached")
        return dict.fromkeys(ids, "reserved")

    def confirm(self, queue: str, ids: Sequence[str], holder: str, keep_for: timedelta) -> None:
        self.kept.append(keep_for)

    def cancel(self, queue: str, ids: Sequence[str], holder: str) -> None: ...

    def release(self, queue: str, ids: Sequence[str]) -> None:
        if self.fails:
            raise BackendError("the store cannot be reached")


def _queue(strict: StrictSQS, store: object) -> SQSQueue:
    client = boto3.client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url=strict.endpoint,
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    return SQSQueue(client, ids=store, ensure_queues=True)  # type: ignore[arg-type]


def test_nothing_is_reserved_beyond_the_queue_s_retention(
    strict: StrictSQS, client: object
) -> None:
    """The queue's own, which SQS may have been told."""
    store = Recording()
    assert isinstance(store, IDStore)
    with _queue(strict, store) as queue:
        client.create_queue(  # type: ignore[attr-defined]
            QueueName="brief", Attributes={"MessageRetentionPeriod": "3600"}
        )
        queue.push(Message("brief"), Message("long"))
    assert sorted(store.kept) == [timedelta(hours=1), timedelta(days=14)]


def test_a_store_that_fails_fails_the_push_and_not_the_ack(
    strict: StrictSQS, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was sent; and what was removed is removed."""
    store = Recording()
    with _queue(strict, store) as queue:
        queue.push(Message("work"))
        [delivery] = queue.pop("work")
        store.fails = True
        strict.forget_requests()
        assert failed(queue.push, Message("work"), Message("work")) == [BackendError] * 2
        assert strict.requests() == []
        queue.ack(delivery)
    assert "could not be freed" in caplog.text


def test_without_a_store_ids_are_unique_within_a_push_only(
    url: str, open_: Callable[..., SQSQueue]
) -> None:
    """And it says so."""
    queue = open_(f"{url}&ids=none")
    assert queue.guarantees.unique_ids == "none"
    queue.push(Message("work", id="same"))
    queue.push(Message("work", id="same"))
    assert failed(queue.push, *[Message("work", id="other")] * 2) == [AlreadyExists]


def test_what_is_no_store_is_refused(strict: StrictSQS) -> None:
    """When the queue is made."""
    with pytest.raises(InvalidArgument, match="IDStore"):
        _queue(strict, "process")
