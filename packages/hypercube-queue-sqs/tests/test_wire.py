"""What travels, and what is done with what somebody else sent."""

from __future__ import annotations

import base64
import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.strict_sqs import StrictSQS
from tools.strict_sqs.limits import MOST_BYTES

from hypercube_queue import Message
from hypercube_queue.driver import (
    MAX_ATTEMPT_BASE,
    Envelope,
    UnreadableEnvelope,
    encode_envelope,
)
from hypercube_queue_sqs import SQSQueue
from hypercube_queue_sqs._wire import opened

NOW = timedelta(0)


@pytest.fixture
def foreign(client: Any, queue: SQSQueue, prefix: str) -> Callable[..., None]:
    """Sends to the queue as another producer would."""
    queue.redrive("work", 1)  # it is there now
    url = client.get_queue_url(QueueName=f"{prefix}work")["QueueUrl"]

    def send(body: str, **more: Any) -> None:
        client.send_message(QueueUrl=url, MessageBody=body, **more)

    return send


@pytest.fixture
def dead(client: Any, prefix: str) -> Callable[[], list[dict[str, Any]]]:
    """What is among the dead letters."""

    def look() -> list[dict[str, Any]]:
        url = client.get_queue_url(QueueName=f"{prefix}work-dead")["QueueUrl"]
        answer = client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=1,
            VisibilityTimeout=0,
            MessageAttributeNames=["All"],
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    return look


def test_a_body_is_ascii_and_never_empty_and_needs_no_attributes(
    queue: SQSQueue, strict: StrictSQS
) -> None:
    """Whatever the payload: SQS refuses some characters, and empty bodies."""
    payloads = [b"", b"\x00\x07", bytes(range(256)), "\ud7ff\uffff".encode(), b"[]"]
    queue.push(*(Message("work", each, id=str(n)) for n, each in enumerate(payloads)))

    [request] = strict.requests("SendMessageBatch")
    for entry in request["Entries"]:
        assert entry["MessageBody"].isascii()
        assert "MessageAttributes" not in entry
    received = {each.id: each.payload for each in queue.pop("work", 10)}
    assert received == {str(n): each for n, each in enumerate(payloads)}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"order": 1}', "no Base64"),
        ("größer", "no Base64"),
        (base64.b64encode(b"foreign").decode(), "do not start like an envelope"),
        (base64.b64encode(b"HQ\x63" + bytes(40)).decode(), "version 99"),
        (
            base64.b64encode(encode_envelope(Envelope("", "x", b"", b"", "", "", None))).decode(),
            "invalid name",
        ),
        (
            base64.b64encode(
                encode_envelope(Envelope("q", "a\nb", b"", b"", "", "", None))
            ).decode(),
            "invalid name",
        ),
        (
            base64.b64encode(
                encode_envelope(Envelope("q", "x", b"", b"", "", "", 13 * 3600 * 1_000_000))
            ).decode(),
            "a lease of 46800000000 microseconds",
        ),
        (
            base64.b64encode(
                b"HQ\x01\xff\xff\xff\xff"
                + encode_envelope(Envelope("q", "x", b"", b"", "", "", None))[7:]
            ).decode(),
            "4294967295 earlier deliveries",
        ),
    ],
)
def test_what_cannot_be_read_is_set_aside_as_it_is(
    queue: SQSQueue,
    foreign: Callable[..., None],
    dead: Callable[[], list[dict[str, Any]]],
    caplog: pytest.LogCaptureFixture,
    body: str,
    reason: str,
) -> None:
    """In the dead-letter queue with its attributes and the reason, and others come."""
    source = {"source": {"DataType": "String", "StringValue": "elsewhere"}}
    foreign(body, MessageAttributes=source)
    queue.push(Message("work", b"ours"))

    with caplog.at_level(logging.WARNING, "hypercube_queue_sqs"):
        received = [*queue.pop("work", 10, wait=NOW), *queue.pop("work", 10, wait=NOW)]
    assert [each.payload for each in received] == [b"ours"]
    assert len(caplog.records) == 1
    assert reason in caplog.text
    [letter] = dead()
    assert letter["Body"] == body
    attributes = letter["MessageAttributes"]
    assert attributes["source"]["StringValue"] == "elsewhere"
    assert reason in attributes["hypercube.unreadable"]["StringValue"]
    assert queue.redrive("work", 10) == 0
    assert len(dead()) == 1


def test_a_body_that_leaves_no_room_for_the_reason_is_set_aside_without(
    queue: SQSQueue, foreign: Callable[..., None], dead: Callable[[], list[dict[str, Any]]]
) -> None:
    """And so is one that has ten attributes already."""
    ten = {f"a{n}": {"DataType": "String", "StringValue": "x"} for n in range(10)}
    foreign("x" * MOST_BYTES)
    foreign("short", MessageAttributes=ten)
    for _ in range(2):
        assert queue.pop("work", 10, wait=NOW) == []
    letters = sorted(dead(), key=lambda each: len(each["Body"]))
    assert [len(each["Body"]) for each in letters] == [5, MOST_BYTES]
    assert sorted(letters[0]["MessageAttributes"]) == sorted(ten)


def test_what_cannot_be_set_aside_is_held(
    queue: SQSQueue,
    foreign: Callable[..., None],
    client: Any,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
    strict: StrictSQS,
) -> None:
    """For an hour, and nobody spins on it: others come, and it is reported once."""
    client.delete_queue(QueueUrl=client.get_queue_url(QueueName=f"{prefix}work-dead")["QueueUrl"])
    foreign("foreign")
    queue.push(Message("work", b"ours"))
    with caplog.at_level(logging.WARNING, "hypercube_queue_sqs"):
        received = [each for _ in range(3) for each in queue.pop("work", 10, wait=NOW)]
    assert [each.payload for each in received] == [b"ours"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    [change] = strict.requests("ChangeMessageVisibilityBatch")
    assert [each["VisibilityTimeout"] for each in change["Entries"]] == [3600]


def test_a_message_that_was_moved_belongs_to_the_queue_it_is_in(
    queue: SQSQueue, client: Any, prefix: str
) -> None:
    """Operators move messages with AWS's tools; a retry does not move them back."""
    queue.push(Message("elsewhere", b"moved"))
    [found] = client.receive_message(
        QueueUrl=client.get_queue_url(QueueName=f"{prefix}elsewhere")["QueueUrl"]
    )["Messages"]
    queue.redrive("work", 1)
    client.send_message(
        QueueUrl=client.get_queue_url(QueueName=f"{prefix}work")["QueueUrl"],
        MessageBody=found["Body"],
    )
    [delivery] = queue.pop("work")
    assert delivery.queue_name == "work"
    queue.retry(delivery)
    assert len(queue.pop("work")) == 1


def test_a_redrive_passes_over_what_it_cannot_read(
    queue: SQSQueue, foreign: Callable[..., None]
) -> None:
    """However much of it lies before the others (RED-6)."""
    for n in range(25):
        foreign(f"foreign {n}")
    while queue.pop("work", 10, wait=NOW):
        pass
    queue.pop("work", 10, wait=NOW)
    queue.push(*(Message("work", b"%d" % n) for n in range(3)))
    received: list[Message] = []
    while len(received) < 3:
        received += queue.pop("work", 10, wait=timedelta(seconds=2))
    queue.dead_letter(*received)

    assert queue.redrive("work", 100) == 3
    assert queue.redrive("work", 100) == 0


def test_a_message_that_claims_the_most_deliveries_is_settled_with_the_others(
    queue: SQSQueue, foreign: Callable[..., None]
) -> None:
    """Its count does not fit any more, and stays where it is."""
    most = Envelope("work", "most", b"", b"", "", "", None, MAX_ATTEMPT_BASE)
    foreign(base64.b64encode(encode_envelope(most)).decode())
    queue.push(Message("work", id="ours"))
    for _ in range(2):
        held: list[Message] = []
        while len(held) < 2:
            held += queue.pop("work", 10, wait=timedelta(seconds=5))
        assert max(each.attempt for each in held) == MAX_ATTEMPT_BASE + 1
        queue.retry(*held)


@given(
    st.text(max_size=30) | st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode())
)
def test_any_body_is_an_envelope_or_unreadable(body: str) -> None:
    """Whatever SQS lets somebody send."""
    with contextlib.suppress(UnreadableEnvelope):
        opened({"Body": body})
