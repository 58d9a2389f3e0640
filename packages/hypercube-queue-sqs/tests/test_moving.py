"""Retry, dead_letter and redrive: the new copy is stored before the old one is removed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tools.strict_sqs import StrictSQS

from hypercube_queue import BackendError, BatchError, Message, NotFound, QueueError, open_queue
from hypercube_queue_sqs import SQSQueue

NOW = timedelta(0)
SECOND = timedelta(seconds=1)
LATER = timedelta(seconds=5)


def failed(call: Callable[..., None], *messages: Message) -> list[QueueError]:
    try:
        call(*messages)
    except BatchError as error:
        return [each.error for each in error.failed]
    return []


def actions(strict: StrictSQS) -> list[str]:
    """What was sent to settle, by name."""
    return [
        action
        for action, _ in strict._asked
        if action in ("SendMessageBatch", "DeleteMessageBatch")
    ]


@pytest.mark.parametrize("verb", ["retry", "dead_letter"])
def test_the_new_copy_is_stored_first(
    queue: SQSQueue, strict: StrictSQS, verb: str, prefix: str
) -> None:
    """And nothing is removed if it was not."""
    queue.push(Message("work", b"0"))
    [delivery] = queue.pop("work")
    strict.forget_requests()
    strict.faults.fail_entries("SendMessageBatch", code="InvalidParameterValue", sender_fault=True)
    [error] = failed(getattr(queue, verb), delivery)
    assert isinstance(error, BackendError)
    assert not error.outcome_unknown
    assert actions(strict) == ["SendMessageBatch"]

    getattr(queue, verb)(delivery)
    assert actions(strict)[1:] == ["SendMessageBatch", "DeleteMessageBatch"]
    place = strict.requests("SendMessageBatch")[-1]["QueueUrl"].rpartition("/")[2]
    assert place == (f"{prefix}work" if verb == "retry" else f"{prefix}work-dead")


@pytest.mark.parametrize("fault", ["fail_entries", "omit_entries", "drop", "forget_answer"])
@pytest.mark.parametrize("verb", ["retry", "dead_letter"])
def test_repeating_the_call_only_removes(
    queue: SQSQueue, strict: StrictSQS, verb: str, fault: str
) -> None:
    """Whatever became of the removal, a third copy is never made."""
    queue.push(Message("work", b"0"))
    [delivery] = queue.pop("work")
    getattr(strict.faults, fault)("DeleteMessageBatch")
    [error] = failed(getattr(queue, verb), delivery)
    assert isinstance(error, BackendError)
    assert error.outcome_unknown
    assert "stored anew" in str(error)

    strict.forget_requests()
    getattr(queue, verb)(delivery)
    assert actions(strict) == ["DeleteMessageBatch"]
    assert isinstance(failed(getattr(queue, verb), delivery)[0], NotFound)
    if verb == "dead_letter":
        assert queue.redrive("work", 10) == 1
    assert len(queue.pop("work", 10, wait=LATER)) == 1
    assert queue.pop("work", 10, wait=NOW) == []


@pytest.mark.parametrize("verb", ["retry", "dead_letter"])
def test_an_answer_to_the_new_copy_that_was_lost_means_a_duplicate_at_most(
    queue: SQSQueue, strict: StrictSQS, verb: str
) -> None:
    """It was stored and nobody knows; the delivery is still owned."""
    queue.push(Message("work", b"0"))
    [delivery] = queue.pop("work")
    strict.faults.forget_answer("SendMessageBatch")
    [error] = failed(getattr(queue, verb), delivery)
    assert isinstance(error, BackendError)
    assert error.outcome_unknown
    getattr(queue, verb)(delivery)
    if verb == "dead_letter":
        assert queue.redrive("work", 10) == 2
    received = []
    while came := queue.pop("work", 10, wait=SECOND):
        received += came
    assert [each.id for each in received] == [delivery.id] * 2


def _retry_and_die(url: str, verb: str) -> None:
    """A worker that is killed between the two requests."""
    queue = open_queue(url)
    deliveries = queue.pop("work", 10, wait=LATER)
    assert isinstance(queue, SQSQueue)
    queue._settling._remove = lambda *_: os._exit(9)  # type: ignore[method-assign]
    getattr(queue, verb)(*deliveries)


@pytest.mark.parametrize("verb", ["retry", "dead_letter"])
def test_a_crash_between_the_two_leaves_a_duplicate_and_never_a_loss(
    queue: SQSQueue, url: str, verb: str
) -> None:
    """The old copy comes back when its lease ends, beside the new one."""
    queue.push(*(Message("work", id=str(n), visibility_timeout=SECOND) for n in range(3)))
    process = multiprocessing.get_context("spawn").Process(target=_retry_and_die, args=(url, verb))
    process.start()
    process.join(60)
    assert process.exitcode == 9

    ids: list[str] = []
    if verb == "dead_letter":
        queue.redrive("work", 10)
    while came := queue.pop("work", 10, wait=timedelta(seconds=3)):
        ids += [each.id for each in came]
        queue.ack(*came)
    assert set(ids) == {"0", "1", "2"}
    assert len(ids) > 3


def test_without_a_dead_letter_queue_the_delivery_stays_owned(
    queue: SQSQueue, client: Any, prefix: str
) -> None:
    """BackendError that names the queue, with a known outcome (SET-4)."""
    client.create_queue(QueueName=f"{prefix}work")
    url = f"sqs://testing:testing@eu-west-1?endpoint={client.meta.endpoint_url}&prefix={prefix}"
    with open_queue(url) as strict_about_it:
        strict_about_it.push(Message("work", b"0"))
        [delivery] = strict_about_it.pop("work")
        [error] = failed(strict_about_it.dead_letter, delivery)
        assert isinstance(error, BackendError)
        assert not error.outcome_unknown
        assert f"{prefix}work-dead" in str(error)
        strict_about_it.ack(delivery)


def test_redrive_counts_what_surely_moved(queue: SQSQueue, strict: StrictSQS) -> None:
    """What failed on the way stays dead; an error after some moved is their number."""
    _bury(queue, 8)
    strict.faults.fail_entries("SendMessageBatch", [0, 3])
    assert queue.redrive("work", 8) == 6
    assert queue.redrive("work", 8) == 2


def test_redrive_raises_where_nothing_moved(queue: SQSQueue, strict: StrictSQS) -> None:
    """And all that it took is there for the next one."""
    _bury(queue, 3)
    strict.faults.fail_entries("SendMessageBatch", times=1)
    with pytest.raises(BackendError):
        queue.redrive("work", 3)
    strict.faults.refuse("ReceiveMessage", _denied())
    with pytest.raises(BackendError, match="AccessDenied"):
        queue.redrive("work", 3)
    assert queue.redrive("work", 3) == 3


def test_redrive_moves_many_at_once(queue: SQSQueue) -> None:
    """More than one round of requests, and attempts start again."""
    _bury(queue, 130)
    assert queue.redrive("work", 125) == 125
    assert queue.redrive("work", 125) == 5
    received: list[Message] = []
    while came := queue.pop("work", 200, wait=SECOND):
        received += came
    assert len({each.id for each in received}) == 130
    assert {each.attempt for each in received} == {1}


def test_a_redriven_copy_that_could_not_be_removed_comes_twice_at_most(
    queue: SQSQueue, strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """It has moved in any case."""
    hasty = open_(f"{url}&operation_timeout=2")
    _bury(hasty, 1)
    strict.faults.fail_entries("DeleteMessageBatch")
    assert hasty.redrive("work", 1) == 1
    assert len(queue.pop("work", 10, wait=NOW)) == 1


def _bury(queue: SQSQueue, count: int) -> None:
    queue.push(*(Message("work", b"%d" % n) for n in range(count)))
    left = count
    while left:
        came = queue.pop("work", left, wait=LATER)
        queue.dead_letter(*came)
        left -= len(came)


def _denied() -> Any:
    from tools.strict_sqs.errors import Refused

    return Refused("AccessDenied", "not authorized to perform: sqs:ReceiveMessage", status=403)
