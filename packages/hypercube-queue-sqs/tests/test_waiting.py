"""Long polls: how long they are, and how a call leaves one."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from tools.strict_sqs import StrictSQS

from hypercube_queue import BackendError, Message, QueueClosed
from hypercube_queue_sqs import SQSQueue

NOW = timedelta(0)
SECOND = timedelta(seconds=1)


def waits(strict: StrictSQS) -> list[int]:
    return [each["WaitTimeSeconds"] for each in strict.requests("ReceiveMessage")]


def test_a_wait_is_as_many_polls_as_it_takes(queue: SQSQueue, strict: StrictSQS) -> None:
    """SQS waits for twenty seconds at most, so a longer wait is several polls."""
    strict.faults.poll_second = 0.01
    assert queue.pop("work", wait=timedelta(seconds=0.5)) == []
    strict.forget_requests()
    threading.Timer(1, lambda: queue.push(Message("work"))).start()
    assert len(queue.pop("work", wait=timedelta(seconds=45))) == 1
    assert waits(strict)[:2] == [20, 20]
    assert max(waits(strict)) == 20


@pytest.mark.parametrize(("wait", "first"), [(0, 1), (0.2, 1), (1, 1), (1.5, 2), (19.5, 20)])
def test_a_poll_waits_in_whole_seconds_and_never_not_at_all(
    queue: SQSQueue, strict: StrictSQS, wait: float, first: int
) -> None:
    """A short poll would ask some of SQS's servers only."""
    queue.push(Message("work"))
    assert len(queue.pop("work", wait=timedelta(seconds=wait))) == 1
    assert waits(strict) == [first]


def test_a_short_poll_is_asked_only_where_something_has_come(
    queue: SQSQueue, strict: StrictSQS
) -> None:
    """A pop of many begins with one long poll, and an idle one is nothing else."""
    assert queue.pop("work", 1000, wait=SECOND / 10) == []
    assert set(waits(strict)) == {1}
    queue.push(*(Message("work") for _ in range(40)))
    strict.forget_requests()
    assert len(queue.pop("work", 40)) == 40
    assert waits(strict)[0] == 20
    assert set(waits(strict)[1:]) == {0}


def test_a_pop_of_many_stops_asking_when_little_comes(queue: SQSQueue, strict: StrictSQS) -> None:
    """Three messages are no reason to ask eight times for more."""
    queue.push(*(Message("work") for _ in range(3)))
    assert len(queue.pop("work", 1000)) == 3
    assert len(waits(strict)) == 1


def test_what_a_closed_pop_would_have_got_is_handed_back(
    queue: SQSQueue, strict: StrictSQS, url: str, open_: Callable[[str], SQSQueue]
) -> None:
    """Its poll goes on at SQS, and takes what comes; others have it at once."""
    strict.faults.poll_second = 1.0
    other = open_(url)
    queue.pop("work", wait=NOW)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            queue.pop("work")
        except QueueClosed as error:
            raised.append(error)

    popping = threading.Thread(target=wait)
    popping.start()
    time.sleep(0.3)
    begun = time.monotonic()
    queue.close()
    popping.join(5)
    assert time.monotonic() - begun < 5
    assert len(raised) == 1

    other.push(Message("work", b"0"))
    [delivery] = other.pop("work", wait=timedelta(seconds=10))
    assert time.monotonic() - begun < 5
    assert delivery.attempt == 2
    other.ack(delivery)


def test_an_interrupted_pop_hands_back_what_comes(
    queue: SQSQueue, strict: StrictSQS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does one whose caller was interrupted just as the answer came."""
    queue.push(Message("work", b"0"))
    from hypercube_queue_sqs._threads import Task

    result = Task.result

    def interrupted(self: Task[object], end: object) -> object:
        result(self, end)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Task, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.pop("work")
    [delivery] = queue.pop("work", wait=timedelta(seconds=10))
    assert delivery.attempt == 2


def test_a_silent_service_holds_nobody_up(
    strict: StrictSQS, url: str, open_: Callable[[str], SQSQueue]
) -> None:
    """Calls end within their time, with an unknown outcome; then the same object works."""
    queue = open_(f"{url}&operation_timeout=1")
    queue.push(Message("work", b"0"), Message("work", b"1"))
    [delivery, _] = queue.pop("work", 2)
    strict.faults.slow("", 4, times=4)
    for call in (
        lambda: queue.push(Message("work")),
        lambda: queue.ack(delivery),
        lambda: queue.pop("work", wait=NOW),
        lambda: queue.redrive("work", 1),
    ):
        begun = time.monotonic()
        with pytest.raises((BackendError, ExceptionGroup)) as caught:  # type: ignore[type-var]
            call()
        assert time.monotonic() - begun < 3
        errors = getattr(caught.value, "exceptions", (caught.value,))
        assert [each.outcome_unknown for each in errors] == [True]
    time.sleep(1)
    queue.push(Message("other", b"works"))
    assert [each.payload for each in queue.pop("other")] == [b"works"]


def test_many_pops_wait_beside_each_other_and_hold_up_no_push(
    strict: StrictSQS, url: str, open_: Callable[[str], SQSQueue]
) -> None:
    """Polls take none of the connections that requests are made over."""
    strict.faults.poll_second = 1.0
    queue = open_(f"{url}&connections=1")
    queue.pop("work", wait=NOW)
    came: list[Message] = []
    waiting = [threading.Thread(target=lambda: came.extend(queue.pop("work"))) for _ in range(12)]
    for each in waiting:
        each.start()
    time.sleep(0.5)
    begun = time.monotonic()
    queue.push(*(Message("work") for _ in range(12)))
    for each in waiting:
        each.join(10)
    assert time.monotonic() - begun < 5
    assert len(came) == 12


def test_a_queue_that_was_closed_or_forgotten_leaves_no_threads(
    strict: StrictSQS, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor connections, whose warnings would be errors here."""
    monkeypatch.setattr("hypercube_queue_sqs._threads._IDLE_SECONDS", 0.2)
    from hypercube_queue import open_queue

    before = _threads()
    with open_queue(url) as queue:
        queue.push(Message("work"))
        queue.pop("work")
    forgotten = open_queue(url)
    forgotten.push(Message("work"))
    del forgotten
    gc.collect()
    end = time.monotonic() + 10
    while _threads() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert _threads() <= before


def _threads() -> int:
    return sum(each.name.startswith("hypercube-sqs") for each in threading.enumerate())


def test_the_first_poll_without_an_answer_ends_a_long_wait(
    strict: StrictSQS,
    url: str,
    open_: Callable[[str], SQSQueue],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the pop was to wait, a service that is silent is told of."""
    monkeypatch.setattr("hypercube_queue_sqs._receiving.LONGEST_POLL", SECOND)
    queue = open_(f"{url}&operation_timeout=1")
    assert queue.pop("work", wait=NOW) == []
    strict.forget_requests()
    strict.faults.slow("ReceiveMessage", 6, times=100)
    with pytest.raises(BackendError, match="no answer in time") as caught:
        queue.pop("work", wait=timedelta(seconds=40))
    assert caught.value.outcome_unknown
    assert waits(strict) == [1]
