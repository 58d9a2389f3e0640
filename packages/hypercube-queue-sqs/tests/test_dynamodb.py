"""Ids in a DynamoDB table, which several processes share; on moto."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest
from tools.backends import server
from tools.strict_sqs import StrictSQS

from hypercube_queue import (
    AlreadyExists,
    BackendError,
    BatchError,
    InvalidArgument,
    Message,
    open_queue,
)
from hypercube_queue_sqs import DynamoDBIDStore, IDStore, SQSQueue

pytestmark = pytest.mark.server("moto")

NOW = timedelta(0)
MINUTE = timedelta(minutes=1)


def failed(call: Callable[..., None], *messages: Message) -> list[type]:
    try:
        call(*messages)
    except BatchError as error:
        return [type(each.error) for each in error.failed]
    return []


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    """A client of moto's."""
    place = server("moto")
    client = boto3.client(
        "dynamodb",
        region_name="eu-west-1",
        endpoint_url=f"http://{place.host}:{place.port}",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    yield client
    client.close()


@pytest.fixture
def table(dynamodb: Any) -> str:
    """A new one, as the README makes it."""
    name = f"ids-{secrets.token_hex(4)}"
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.update_time_to_live(
        TableName=name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"},
    )
    return name


@pytest.fixture
def store(dynamodb: Any, table: str) -> DynamoDBIDStore:
    return DynamoDBIDStore(dynamodb, table)


@pytest.fixture
def shared(url: str, dynamodb: Any, table: str) -> str:
    """The URL of a queue whose ids are in that table."""
    return f"{url}&id_table={table}&id_endpoint={dynamodb.meta.endpoint_url}"


def test_an_id_is_pending_then_stored_then_free(store: DynamoDBIDStore) -> None:
    """By conditions: only the holder confirms or cancels."""
    assert isinstance(store, IDStore)
    assert store.reserve("queue", ["a", "b"], "push 1", MINUTE) == {
        "a": "reserved",
        "b": "reserved",
    }
    assert store.reserve("queue", ["a"], "push 2", MINUTE) == {"a": "pending"}
    assert store.reserve("queue", ["a"], "push 1", MINUTE) == {"a": "reserved"}
    assert store.reserve("other", ["a"], "push 2", MINUTE) == {"a": "reserved"}
    store.confirm("queue", ["a"], "push 2", MINUTE)
    store.cancel("queue", ["a", "b"], "push 2")
    assert store.reserve("queue", ["a"], "push 2", MINUTE) == {"a": "pending"}
    store.confirm("queue", ["a"], "push 1", MINUTE)
    store.cancel("queue", ["a", "b"], "push 1")
    assert store.reserve("queue", ["a", "b"], "push 2", MINUTE) == {"a": "stored", "b": "reserved"}
    store.release("queue", ["a", "b", *map(str, range(60))])
    assert store.reserve("queue", ["a"], "push 2", MINUTE) == {"a": "reserved"}


def test_an_item_that_was_freed_is_not_confirmed(
    store: DynamoDBIDStore, dynamodb: Any, table: str
) -> None:
    """The message was acknowledged before its push returned; nothing is left of it."""
    store.reserve("queue", ["a"], "push 1", MINUTE)
    store.release("queue", ["a"])
    store.confirm("queue", ["a"], "push 1", MINUTE)
    assert dynamodb.scan(TableName=table)["Items"] == []


def test_a_reservation_expires(store: DynamoDBIDStore, dynamodb: Any, table: str) -> None:
    """By its own condition, since DynamoDB removes items when it likes; in epoch seconds."""
    store.reserve("queue", ["a", "b"], "push 1", timedelta(seconds=1))
    [item, _] = dynamodb.scan(TableName=table)["Items"]
    assert 0 < float(item["expires_at"]["N"]) - time.time() <= 2
    store.confirm("queue", ["b"], "push 1", timedelta(seconds=1))
    time.sleep(3.1)
    assert store.reserve("queue", ["a", "b"], "push 2", MINUTE) == dict.fromkeys("ab", "reserved")


def test_two_queue_objects_share_what_they_know(
    shared: str, open_: Callable[[str], SQSQueue]
) -> None:
    """A push through one is refused through the other, until either has it acknowledged."""
    first, second = open_(shared), open_(shared)
    assert first.guarantees.unique_ids == "store"
    first.push(Message("work", id="same"))
    assert failed(second.push, Message("work", id="same"), Message("work", id="new")) == [
        AlreadyExists
    ]
    received = []
    while came := second.pop("work", 10, wait=NOW):
        received += came
    second.ack(*received)
    first.push(Message("work", id="same"))


def _push(url: str, ids: list[str], answers: Any) -> None:
    """Another producer."""
    with open_queue(url) as queue:
        answers.put([id for id in ids if not failed(queue.push, Message("work", id=id))])


def test_two_processes_store_each_id_once(shared: str, open_: Callable[[str], SQSQueue]) -> None:
    """However they meet, exactly one is told that it did."""
    queue = open_(shared)
    queue.pop("work", wait=NOW)
    ids = [str(n) for n in range(40)]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    producers = [
        context.Process(target=_push, args=(shared, order, answers)) for order in (ids, ids[::-1])
    ]
    for each in producers:
        each.start()
    accepted = [id for _ in producers for id in answers.get(timeout=60)]
    for each in producers:
        each.join(30)
    answers.close()
    answers.join_thread()
    assert sorted(accepted) == sorted(ids)
    received: list[str] = []
    while came := queue.pop("work", 100, wait=timedelta(seconds=1)):
        received += [each.id for each in came]
    assert sorted(received) == sorted(ids)


def _reserve_and_die(url: str) -> None:
    """A producer that is killed between reserving and sending."""
    queue = open_queue(url)
    assert isinstance(queue, SQSQueue)
    queue._pushing._send = lambda *_: os._exit(9)  # type: ignore[method-assign]
    queue.push(Message("work", b"0", id="same"))


def test_a_producer_that_crashed_before_it_sent_can_repeat_its_push(
    shared: str, open_: Callable[[str], SQSQueue]
) -> None:
    """Another process stores the message; what it reserved does not stand in the way."""
    process = multiprocessing.get_context("spawn").Process(
        target=_reserve_and_die, args=(f"{shared}&operation_timeout=3",)
    )
    process.start()
    process.join(60)
    assert process.exitcode == 9
    queue = open_(f"{shared}&operation_timeout=10")
    queue.push(Message("work", b"0", id="same"))
    assert failed(queue.push, Message("work", id="same")) == [AlreadyExists]
    assert [each.payload for each in queue.pop("work", 10)] == [b"0"]


@pytest.mark.parametrize("fault", ["forget_answer", "fail_entries"])
def test_a_push_that_failed_leaves_nothing_reserved(
    shared: str,
    open_: Callable[[str], SQSQueue],
    strict: StrictSQS,
    dynamodb: Any,
    table: str,
    fault: str,
) -> None:
    """So it can be repeated at once."""
    queue = open_(shared)
    queue.push(Message("other"))
    getattr(strict.faults, fault)("SendMessageBatch")
    message = Message("other", id="same")
    assert failed(queue.push, message) == [BackendError]
    assert len(dynamodb.scan(TableName=table)["Items"]) == 1
    queue.push(message)


def test_a_missing_table_is_an_error_that_names_it(
    url: str, open_: Callable[[str], SQSQueue], dynamodb: Any
) -> None:
    """In the push, before anything was sent."""
    queue = open_(f"{url}&id_table=nowhere&id_endpoint={dynamodb.meta.endpoint_url}")
    with pytest.raises(BatchError) as caught:
        queue.push(Message("work"))
    assert "'nowhere'" in str(caught.value)
    assert "create the table" in str(caught.value)
    error = caught.value.failed[0].error
    assert isinstance(error, BackendError)
    assert not error.outcome_unknown


def test_what_is_no_client_or_table_is_refused(dynamodb: Any) -> None:
    """When the store is made."""
    with pytest.raises(InvalidArgument, match="DynamoDB client"):
        DynamoDBIDStore("eu-west-1", "ids")
    with pytest.raises(InvalidArgument, match="table"):
        DynamoDBIDStore(dynamodb, "")
