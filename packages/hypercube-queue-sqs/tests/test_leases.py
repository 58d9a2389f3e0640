"""Whose a delivery is, and until when: the driver keeps that, since SQS takes stale handles."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tools.strict_sqs import StrictSQS
from tools.strict_sqs.errors import Refused, invalid

from hypercube_queue import BackendError, BatchError, Message, NotFound
from hypercube_queue_sqs import SQSQueue, _clock

NOW = timedelta(0)
SECOND = timedelta(seconds=1)
SETTLING = ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock that leases are counted on, as if the machine had slept."""

    def move(seconds: float) -> None:
        moved = SimpleNamespace(
            clock_gettime=lambda clock: time.clock_gettime(clock) + seconds,
            monotonic=lambda: time.monotonic() + seconds,
        )
        monkeypatch.setattr(_clock, "time", moved)

    return move


def errors(call: Callable[..., None], *args: object) -> list[type]:
    try:
        call(*args)
    except BatchError as error:
        return [type(each.error) for each in error.failed]
    return []


def test_a_poll_asks_for_the_default_lease_in_whole_seconds(
    strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """Rounded up, and by the queue object whatever the queue says."""
    open_(f"{url}&visibility_timeout=2.5").pop("work", wait=NOW)
    assert strict.requests("ReceiveMessage")[0]["VisibilityTimeout"] == 3


def test_a_message_s_own_lease_costs_a_request_and_only_where_it_differs(
    queue: SQSQueue, strict: StrictSQS
) -> None:
    """Those that name none, or the default, need none."""
    own = timedelta(minutes=5)
    queue.push(
        Message("work", b"own", visibility_timeout=own),
        Message("work", b"same", visibility_timeout=timedelta(seconds=30)),
        Message("work", b"none"),
    )
    received: list[Message] = []
    while len(received) < 3:
        received += queue.pop("work", 10, wait=SECOND)
    [request] = strict.requests("ChangeMessageVisibilityBatch")
    assert [each["VisibilityTimeout"] for each in request["Entries"]] == [300]
    assert {each.payload: each.visibility_timeout for each in received} == {
        b"own": own,
        b"same": timedelta(seconds=30),
        b"none": None,
    }


@pytest.mark.parametrize("verb", ["ack", "retry", "dead_letter", "extend_visibility"])
def test_an_expired_delivery_settles_nothing_and_nothing_is_sent(
    queue: SQSQueue, strict: StrictSQS, moved: Callable[[float], None], verb: str
) -> None:
    """NotFound, from a clock that runs while the machine sleeps."""
    queue.push(Message("work"))
    [delivery] = queue.pop("work")
    strict.forget_requests()
    moved(31)
    arguments = (SECOND, delivery) if verb == "extend_visibility" else (delivery,)
    assert errors(getattr(queue, verb), *arguments) == [NotFound]
    assert strict.requests(*SETTLING) == []


def test_a_lease_that_ends_while_others_are_served_settles_nothing(
    strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """A batch that waits for its turn is looked at again."""
    queue = open_(f"{url}&connections=1")
    queue.push(*(Message("work", visibility_timeout=2 * SECOND) for _ in range(11)))
    received: list[Message] = []
    while len(received) < 11:
        received += queue.pop("work", 11 - len(received), wait=SECOND)
    strict.faults.slow("DeleteMessageBatch", 2.5)
    assert errors(queue.ack, *received) == [NotFound]
    assert len(strict.requests("DeleteMessageBatch")) == 1


def test_an_extension_moves_the_end_of_the_lease(
    queue: SQSQueue, strict: StrictSQS, moved: Callable[[float], None]
) -> None:
    """Here and at SQS, where seconds are rounded up."""
    queue.push(Message("work"))
    [delivery] = queue.pop("work")
    queue.extend_visibility(timedelta(seconds=99.5), delivery)
    [request] = strict.requests("ChangeMessageVisibilityBatch")
    assert [each["VisibilityTimeout"] for each in request["Entries"]] == [100]
    moved(90)
    queue.extend_visibility(timedelta(seconds=5), delivery)
    moved(94)
    queue.ack(delivery)


@pytest.mark.parametrize(
    "error",
    [
        Refused("MessageNotInflight", "The message referred to isn't in flight."),
        invalid("ReceiptHandle", "x", "Message does not exist or is not available"),
        Refused("ReceiptHandleIsInvalid", "The input receipt handle is not valid."),
    ],
    ids=lambda error: error.code,
)
@pytest.mark.parametrize("verb", ["ack", "extend_visibility"])
def test_what_aws_says_to_a_stale_handle_is_not_found(
    queue: SQSQueue, strict: StrictSQS, error: Refused, verb: str
) -> None:
    """Three codes, by their older and newer names; and the delivery is stale from then on."""
    queue.push(Message("work"))
    [delivery] = queue.pop("work")
    action = "DeleteMessageBatch" if verb == "ack" else "ChangeMessageVisibilityBatch"
    strict.faults.fail_entries(action, code=error.query_code, sender_fault=True)
    arguments = (SECOND, delivery) if verb == "extend_visibility" else (delivery,)
    assert errors(getattr(queue, verb), *arguments) == [NotFound]
    strict.forget_requests()
    assert errors(queue.ack, delivery) == [NotFound]
    assert strict.requests(*SETTLING) == []


def test_a_newer_delivery_in_this_process_makes_the_older_one_stale(
    queue: SQSQueue, strict: StrictSQS
) -> None:
    """SQS may deliver a message twice; the newest delivery is the one that counts."""
    strict.faults.duplicates = 1
    queue.push(Message("work", b"0"))
    [older] = queue.pop("work")
    [newer] = queue.pop("work")
    assert (older.id, older.attempt, newer.attempt) == (newer.id, 1, 2)
    strict.forget_requests()
    assert errors(queue.ack, older) == [NotFound]
    assert strict.requests(*SETTLING) == []
    queue.ack(newer)


def test_a_removal_that_another_process_overtook_is_not_noticed(
    strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """What `stale_settlement="process"` says: it changes nothing, and seems to have worked."""
    first, second = open_(url), open_(url)
    strict.faults.duplicates = 1
    first.push(Message("work", b"0", visibility_timeout=SECOND))
    [stale] = first.pop("work")
    [current] = second.pop("work")
    first.ack(stale)
    time.sleep(1.2)
    [again] = second.pop("work", wait=timedelta(seconds=5))
    assert again.id == current.id


def test_an_acked_copy_may_reappear(queue: SQSQueue, strict: StrictSQS) -> None:
    """What `ack_final=False` says."""
    queue.push(Message("work", b"0", visibility_timeout=SECOND))
    strict.faults.resurrections = 1
    queue.ack(*queue.pop("work"))
    assert len(queue.pop("work", wait=timedelta(seconds=5))) == 1


def test_a_lease_begins_when_sqs_answers_and_not_when_the_answer_comes(
    strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """A delivery whose lease ended on the way is left for another time."""
    queue = open_(f"{url}&visibility_timeout=2")
    queue.push(Message("work"))
    strict.faults.slow("ReceiveMessage", 3.5)
    assert queue.pop("work", wait=NOW) == []
    [delivery] = queue.pop("work", wait=timedelta(seconds=5))
    assert delivery.attempt == 2
    queue.ack(delivery)


def test_an_extension_whose_outcome_is_unknown_never_lengthens_the_lease(
    queue: SQSQueue, strict: StrictSQS, moved: Callable[[float], None]
) -> None:
    """And a shortening one has to be believed."""
    queue.push(Message("work"), Message("work"))
    longer, shorter = queue.pop("work", 2)
    strict.faults.forget_answer("ChangeMessageVisibilityBatch", times=2)
    assert errors(queue.extend_visibility, timedelta(minutes=5), longer) == [BackendError]
    assert errors(queue.extend_visibility, timedelta(seconds=5), shorter) == [BackendError]
    moved(10)
    queue.ack(longer)
    assert errors(queue.ack, shorter) == [NotFound]


def test_a_message_whose_own_lease_cannot_be_had_is_not_delivered(
    strict: StrictSQS, url: str, open_: Callable[..., SQSQueue]
) -> None:
    """Its worker would believe in a longer one than SQS grants; a shorter one ends here in time."""
    queue = open_(f"{url}&visibility_timeout=2")
    queue.push(Message("work", b"long", visibility_timeout=timedelta(minutes=5)))
    strict.faults.fail_entries("ChangeMessageVisibilityBatch")
    with pytest.raises(BackendError):
        queue.pop("work", wait=NOW)
    [delivery] = queue.pop("work", wait=timedelta(seconds=5))
    assert delivery.payload == b"long"
    queue.ack(delivery)

    queue.push(Message("work", b"short", visibility_timeout=SECOND))
    strict.faults.fail_entries("ChangeMessageVisibilityBatch")
    [delivery] = queue.pop("work", wait=NOW)
    time.sleep(1.1)
    assert errors(queue.ack, delivery) == [NotFound]


def test_attempts_go_on_counting_where_a_copy_begins_anew(queue: SQSQueue) -> None:
    """SQS counts from zero again after each retry, so the count so far travels along."""
    queue.push(Message("work", visibility_timeout=SECOND))
    attempts = []
    for lost in (False, True, False, True, False):
        [delivery] = queue.pop("work", wait=timedelta(seconds=5))
        attempts.append(delivery.attempt)
        if not lost:
            queue.retry(delivery)
    assert attempts == [1, 2, 3, 4, 5]
