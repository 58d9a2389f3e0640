"""The strict SQS does what AWS documents where emulators do something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from tools.strict_sqs import StrictSQS, strict_process


@pytest.fixture
def strict() -> Iterator[StrictSQS]:
    """With polls ten times as fast as time."""
    with StrictSQS() as server:
        server.faults.poll_second = 0.1
        yield server


@pytest.fixture
def client(strict: StrictSQS) -> Iterator[Any]:
    made = _client(strict.endpoint)
    yield made
    made.close()


@pytest.fixture
def queue(client: Any) -> str:
    """The URL of a new queue."""
    return str(client.create_queue(QueueName="queue")["QueueUrl"])


def _client(endpoint: str) -> Any:
    return boto3.client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url=endpoint,
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}, parameter_validation=False),
    )


def _refused(call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


def _one(client: Any, queue: str, **more: Any) -> dict[str, Any]:
    [found] = client.receive_message(QueueUrl=queue, WaitTimeSeconds=10, **more)["Messages"]
    return dict(found)


def _hidden(client: Any, queue: str) -> int:
    name = "ApproximateNumberOfMessagesNotVisible"
    attributes = client.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])["Attributes"]
    return int(attributes[name])


def _count(client: Any, queue: str) -> int:
    return len(
        client.receive_message(QueueUrl=queue, WaitTimeSeconds=1, MaxNumberOfMessages=10).get(
            "Messages", ()
        )
    )


def test_a_stale_delete_succeeds_and_does_nothing(client: Any, queue: str) -> None:
    """After a redelivery; emulators remove the message, or complain."""
    client.send_message(QueueUrl=queue, MessageBody="x")
    stale = _one(client, queue, VisibilityTimeout=0)["ReceiptHandle"]
    current = _one(client, queue)["ReceiptHandle"]
    client.delete_message(QueueUrl=queue, ReceiptHandle=stale)
    client.change_message_visibility(QueueUrl=queue, ReceiptHandle=current, VisibilityTimeout=0)
    again = _one(client, queue)
    assert again["Body"] == "x"
    client.delete_message(QueueUrl=queue, ReceiptHandle=again["ReceiptHandle"])
    client.delete_message(QueueUrl=queue, ReceiptHandle=again["ReceiptHandle"])
    assert _count(client, queue) == 0


def test_a_delete_after_the_lease_and_before_a_redelivery_removes(client: Any, queue: str) -> None:
    """The handle is still that of the last delivery."""
    client.send_message(QueueUrl=queue, MessageBody="x")
    handle = _one(client, queue, VisibilityTimeout=0)["ReceiptHandle"]
    client.delete_message(QueueUrl=queue, ReceiptHandle=handle)
    assert _count(client, queue) == 0


def test_a_lease_is_changed_only_while_it_lasts(client: Any, queue: str) -> None:
    """Three codes: ended, delivered again, and no handle at all; twelve hours are the most."""
    change = client.change_message_visibility
    client.send_message(QueueUrl=queue, MessageBody="x")
    stale = _one(client, queue, VisibilityTimeout=0)["ReceiptHandle"]
    arguments = {"QueueUrl": queue, "VisibilityTimeout": 9}
    code = _refused(change, ReceiptHandle=stale, **arguments)
    assert code == "AWS.SimpleQueueService.MessageNotInflight"
    current = _one(client, queue)["ReceiptHandle"]
    assert _refused(change, ReceiptHandle=stale, **arguments) == "InvalidParameterValue"
    assert _refused(change, ReceiptHandle="x", **arguments) == "ReceiptHandleIsInvalid"
    change(ReceiptHandle=current, **arguments)
    time.sleep(0.05)
    assert (
        _refused(change, QueueUrl=queue, ReceiptHandle=current, VisibilityTimeout=43_200)
        == "InvalidParameterValue"
    )


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([("a", "x")] * 2, "BatchEntryIdsNotDistinct"),
        ([("a b", "x")], "InvalidBatchEntryId"),
        ([(str(n), "x") for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([("a", "x" * 600_000), ("b", "x" * 600_000)], "BatchRequestTooLong"),
    ],
)
def test_a_batch_that_is_none_fails_whole(
    client: Any, queue: str, entries: list[tuple[str, str]], code: str
) -> None:
    """Nothing of it is stored."""
    batch = [{"Id": id, "MessageBody": body} for id, body in entries]
    found = _refused(client.send_message_batch, QueueUrl=queue, Entries=batch)
    assert found == f"AWS.SimpleQueueService.{code}"
    assert _count(client, queue) == 0


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "a bell \x07"}, "InvalidMessageContents"),
        ({"MessageBody": "\uffff"}, "InvalidMessageContents"),
        ({"MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageBody": "x" * 1025}, "InvalidParameterValue"),
        (
            {
                "MessageBody": "x",
                "MessageAttributes": {
                    f"a{n}": {"DataType": "String", "StringValue": "x"} for n in range(11)
                },
            },
            "InvalidParameterValue",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_entry_that_is_not_taken_fails_alone(
    client: Any, queue: str, entry: dict[str, Any], code: str
) -> None:
    """With 200, beside one that succeeds."""
    client.set_queue_attributes(QueueUrl=queue, Attributes={"MaximumMessageSize": "1024"})
    entries = [{"Id": "good", "MessageBody": "x"}, {"Id": "bad", **entry}]
    answer = client.send_message_batch(QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["good"]
    assert [(each["Id"], each["Code"]) for each in answer["Failed"]] == [("bad", code)]
    assert _count(client, queue) == 1


def test_queues_are_made_and_gone_as_at_aws(client: Any, queue: str) -> None:
    """Same name with other attributes, unknown names, bad names, and names just deleted."""
    create = client.create_queue
    assert create(QueueName="queue")["QueueUrl"] == queue
    attributes = {"DelaySeconds": "5"}
    assert _refused(create, QueueName="queue", Attributes=attributes) == "QueueAlreadyExists"
    assert _refused(create, QueueName="a b") == "InvalidParameterValue"
    assert _refused(create, QueueName="x.fifo") == "InvalidParameterValue"
    missing = "AWS.SimpleQueueService.NonExistentQueue"
    assert _refused(client.get_queue_url, QueueName="unknown") == missing
    client.delete_queue(QueueUrl=queue)
    assert _refused(client.send_message, QueueUrl=queue, MessageBody="x") == missing
    code = _refused(create, QueueName="queue")
    assert code == "AWS.SimpleQueueService.QueueDeletedRecently"


def test_what_is_in_flight_is_limited(client: Any, queue: str, strict: StrictSQS) -> None:
    """An error for a short poll, nothing for a long one."""
    strict.account.queue("queue").most_in_flight = 1
    for _ in range(2):
        client.send_message(QueueUrl=queue, MessageBody="x")
    _one(client, queue)
    assert _count(client, queue) == 0
    assert _refused(client.receive_message, QueueUrl=queue) == "OverLimit"


def test_a_short_poll_misses_messages_and_a_long_one_does_not(
    client: Any, queue: str, strict: StrictSQS
) -> None:
    """It asks some of the servers only."""
    strict.faults.sampling = True
    for _ in range(40):
        client.send_message(QueueUrl=queue, MessageBody="x")
    found = [
        len(client.receive_message(QueueUrl=queue, VisibilityTimeout=0).get("Messages", ()))
        for _ in range(5)
    ]
    assert max(found) <= 1
    came = 0
    while got := _count(client, queue):
        came += got
    assert came == 40


def test_a_poll_of_a_client_that_is_gone_takes_what_comes(
    client: Any, queue: str, strict: StrictSQS
) -> None:
    """And hides it for as long as the client had asked for."""
    strict.faults.poll_second = 1.0
    impatient = boto3.client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url=strict.endpoint,
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=0.3),
    )
    with pytest.raises(BotoCoreError):
        impatient.receive_message(QueueUrl=queue, WaitTimeSeconds=20, VisibilityTimeout=2)
    impatient.close()
    while not strict.requests("ReceiveMessage"):
        time.sleep(0.01)
    client.send_message(QueueUrl=queue, MessageBody="x")
    begun = time.monotonic()
    while not _hidden(client, queue):
        assert time.monotonic() - begun < 10
    assert _one(client, queue)["Body"] == "x"
    assert time.monotonic() - begun > 1.5


def test_a_poll_notices_what_becomes_visible(client: Any, queue: str) -> None:
    """A push, a delay that is over, and a lease that ended or was given up."""
    threading.Timer(
        0.3, lambda: client.send_message(QueueUrl=queue, MessageBody="x", DelaySeconds=1)
    ).start()
    begun = time.monotonic()
    while not (found := client.receive_message(QueueUrl=queue, WaitTimeSeconds=20)).get("Messages"):
        assert time.monotonic() - begun < 10
    assert time.monotonic() - begun >= 1.3
    handle = found["Messages"][0]["ReceiptHandle"]
    threading.Timer(
        0.3,
        lambda: client.change_message_visibility(
            QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0
        ),
    ).start()
    again = _one(client, queue, MessageSystemAttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}


def test_faults_come_as_ordered(client: Any, queue: str, strict: StrictSQS) -> None:
    """Each for so many requests, with or without the effect."""
    send = client.send_message
    strict.faults.throttle("SendMessage")
    assert _refused(send, QueueUrl=queue, MessageBody="throttled") == "RequestThrottled"
    strict.faults.drop("SendMessage")
    with pytest.raises(BotoCoreError):
        send(QueueUrl=queue, MessageBody="dropped")
    strict.faults.forget_answer("SendMessage")
    with pytest.raises(BotoCoreError):
        send(QueueUrl=queue, MessageBody="forgotten")
    strict.faults.omit_entries("SendMessageBatch", [0])
    strict.faults.fail_entries("SendMessageBatch", [1])
    answer = client.send_message_batch(
        QueueUrl=queue, Entries=[{"Id": str(n), "MessageBody": str(n)} for n in range(3)]
    )
    assert [each["Id"] for each in answer["Successful"]] == ["2"]
    assert [each["Id"] for each in answer["Failed"]] == ["1"]
    bodies = {_one(client, queue)["Body"] for _ in range(2)}
    assert bodies == {"forgotten", "2"}
    assert _count(client, queue) == 0


def test_it_runs_in_a_process_of_its_own() -> None:
    """Until the block ends."""
    with strict_process("--delay", "0.2") as endpoint:
        client = _client(endpoint)
        begun = time.monotonic()
        client.create_queue(QueueName="queue")
        assert time.monotonic() - begun >= 0.2
        client.close()
