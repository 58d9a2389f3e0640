"""Queues are the operator's: what is missing or set up strangely is said."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tools.strict_sqs import StrictSQS
from tools.strict_sqs.errors import Refused

from hypercube_queue import BackendError, BatchError, InvalidArgument, Message
from hypercube_queue_sqs import SQSQueue

NOW = timedelta(0)
README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def owned(strict: StrictSQS, prefix: str) -> str:
    """The URL of queues that nobody creates on the way."""
    return f"sqs://testing:testing@eu-west-1?endpoint={strict.endpoint}&prefix={prefix}"


def test_a_missing_queue_is_an_error_that_names_it_and_the_action(
    owned: str, open_: Callable[[str], SQSQueue], prefix: str, strict: StrictSQS
) -> None:
    """In push, pop and redrive; nothing is created, and other queues of the push go on."""
    queue = open_(owned)
    strict.account.perform("CreateQueue", {"QueueName": f"{prefix}there"}, ())
    with pytest.raises(BatchError) as caught:
        queue.push(Message("work"), Message("there", b"1"))
    [failure] = caught.value.failed
    assert failure.index == 0
    assert isinstance(failure.error, BackendError)
    assert not failure.error.outcome_unknown
    for text in (f"{prefix}work", "GetQueueUrl", "ensure_queues=true", "eu-west-1"):
        assert text in str(failure.error)
    with pytest.raises(BackendError, match=f"GetQueueUrl on '{prefix}work'"):
        queue.pop("work")
    with pytest.raises(BackendError, match=f"'{prefix}work'"):
        queue.redrive("work", 1)
    assert [each.payload for each in queue.pop("there", wait=NOW)] == [b"1"]
    assert strict.requests("CreateQueue") == []


def test_queues_are_created_on_request_with_their_dead_letters(
    queue: SQSQueue, client: Any, prefix: str
) -> None:
    """They keep messages as long as SQS can, and take the largest it can."""
    queue.push(Message("work"))
    for name in ("work", "work-dead"):
        url = client.get_queue_url(QueueName=prefix + name)["QueueUrl"]
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert found["MessageRetentionPeriod"] == "1209600"
        assert found["MaximumMessageSize"] == "1048576"


def test_a_queue_that_was_just_created_may_not_be_known_everywhere(
    queue: SQSQueue, strict: StrictSQS
) -> None:
    """AWS asks for a second of patience; it is had here."""
    missing = Refused("QueueDoesNotExist", "The specified queue does not exist.")
    strict.faults.refuse("GetQueueAttributes", missing, times=2)
    queue.push(Message("work", b"0"))
    assert len(queue.pop("work")) == 1


def test_a_queue_that_exists_is_used_as_it_is(queue: SQSQueue, client: Any, prefix: str) -> None:
    """Whatever its attributes: SQS would refuse to create it with others."""
    client.create_queue(QueueName=f"{prefix}work", Attributes={"VisibilityTimeout": "7"})
    queue.push(Message("work"))
    assert len(queue.pop("work")) == 1


def test_a_deleted_queue_is_found_out(
    owned: str, open_: Callable[[str], SQSQueue], client: Any, prefix: str
) -> None:
    """The call that meets it fails, the next one asks for the queue again."""
    queue = open_(owned)
    url = client.create_queue(QueueName=f"{prefix}work")["QueueUrl"]
    queue.push(Message("work"))
    client.delete_queue(QueueUrl=url)
    for _ in range(2):
        with pytest.raises(BatchError) as caught:
            queue.push(Message("work"))
        assert "QueueDoesNotExist" in str(caught.value)
    with pytest.raises(BackendError, match="QueueDoesNotExist"):
        queue.pop("work")


def test_a_name_that_was_just_deleted_is_not_to_be_had(
    queue: SQSQueue, client: Any, prefix: str
) -> None:
    """SQS says for how long, and so does the error."""
    url = client.create_queue(QueueName=f"{prefix}work")["QueueUrl"]
    client.delete_queue(QueueUrl=url)
    with pytest.raises(BackendError, match=r"QueueDeletedRecently.* 60 seconds"):
        queue.pop("work")


def test_fifo_queues_are_refused(
    queue: SQSQueue, client: Any, prefix: str, strict: StrictSQS
) -> None:
    """By name before anything is sent, and by what they are."""
    with pytest.raises(BatchError) as caught:
        queue.push(Message("orders.fifo"))
    assert isinstance(caught.value.failed[0].error, InvalidArgument)
    with pytest.raises(InvalidArgument, match="fifo"):
        queue.pop("orders.fifo")
    assert strict.requests() == []
    strict.account.perform("CreateQueue", {"QueueName": f"{prefix}work"}, ())
    strict.account.queue(f"{prefix}work").attributes["FifoQueue"] = "true"
    with pytest.raises(InvalidArgument, match="is a FIFO queue"):
        queue.pop("work")


def test_a_queue_s_own_delay_and_wait_change_nothing(
    owned: str,
    open_: Callable[[str], SQSQueue],
    client: Any,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
    strict: StrictSQS,
) -> None:
    """Each request says its own; a delay is warned of, for others do not."""
    attributes = {"DelaySeconds": "600", "ReceiveMessageWaitTimeSeconds": "20"}
    client.create_queue(QueueName=f"{prefix}work", Attributes=attributes)
    queue = open_(owned)
    with caplog.at_level(logging.WARNING, "hypercube_queue_sqs"):
        queue.push(Message("work", b"0"))
        queue.retry(*queue.pop("work", wait=NOW))
        assert [each.payload for each in queue.pop("work", wait=NOW)] == [b"0"]
    assert len(caplog.records) == 1
    assert "600 s" in caplog.text
    assert {each["WaitTimeSeconds"] for each in strict.requests("ReceiveMessage")} == {1}


@pytest.mark.parametrize(("receives", "warned"), [(3, True), (99, True), (100, False)])
def test_a_redrive_policy_that_acts_too_soon_is_warned_of_once(
    owned: str,
    open_: Callable[[str], SQSQueue],
    client: Any,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
    receives: int,
    warned: bool,
) -> None:
    """It would bury messages behind the worker's back (LIFE-6)."""
    policy = {"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:1:other", "maxReceiveCount": receives}
    attributes = {"RedrivePolicy": json.dumps(policy)}
    client.create_queue(QueueName=f"{prefix}work", Attributes=attributes)
    queue = open_(owned)
    with caplog.at_level(logging.WARNING, "hypercube_queue_sqs"):
        for _ in range(3):
            queue.push(Message("work"))
            queue.pop("work", wait=NOW)
    assert [f"{receives} times" in record.getMessage() for record in caplog.records] == (
        [True] if warned else []
    )


def test_a_refused_action_is_named(queue: SQSQueue, strict: StrictSQS) -> None:
    """With AWS's own words, and where to look."""
    queue.push(Message("work"))
    denied = Refused("AccessDenied", "User x may not perform: sqs:SendMessage", status=403)
    strict.faults.refuse("SendMessageBatch", denied)
    with pytest.raises(BatchError) as caught:
        queue.push(Message("work"))
    error = caught.value.failed[0].error
    assert isinstance(error, BackendError)
    assert not error.outcome_unknown
    assert "SendMessageBatch" in str(error)
    assert "may not perform: sqs:SendMessage" in str(error)
    assert "grant" in str(error)


def test_the_policy_of_the_readme_names_every_action_that_is_sent(
    owned: str, open_: Callable[[str], SQSQueue], client: Any, prefix: str, strict: StrictSQS
) -> None:
    """And no other."""
    for name in ("work", "work-dead"):
        client.create_queue(QueueName=prefix + name)
    strict.forget_requests()
    queue = open_(owned)
    queue.push(Message("work", visibility_timeout=timedelta(seconds=99)), Message("work"))
    [delivery] = queue.pop("work")
    queue.extend_visibility(timedelta(seconds=9), delivery)
    queue.dead_letter(delivery)
    queue.ack(*queue.pop("work"))
    assert queue.redrive("work", 1) == 1
    queue.retry(*queue.pop("work"))

    # AWS asks for the permission of the single action.
    sent = {action.removesuffix("Batch") for action, _ in strict._asked}
    policy = json.loads(README.read_text().split("```json")[1].split("```")[0])
    granted = {
        action.removeprefix("sqs:")
        for statement in policy["Statement"]
        for action in statement["Action"]
    }
    assert granted == sent
