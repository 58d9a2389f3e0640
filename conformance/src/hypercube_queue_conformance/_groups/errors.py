"""What a caller is told when something fails, and how soon."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import NoReturn

import pytest

from hypercube_queue import (
    AlreadyExists,
    AsyncQueue,
    BackendError,
    BatchError,
    InvalidArgument,
    Message,
    NotFound,
    QueueError,
    open_queue,
)
from hypercube_queue_conformance._marks import needs, rule, unless
from hypercube_queue_conformance._trial import NOTHING, OTHER_QUEUE, QUEUE, Trial, failures

#: What must not be seen anywhere.
_SECRET = "s3cr3t-Zq9"
#: What a machine that is busy with other things may add to a call.
_ALLOWANCE = timedelta(seconds=3)
#: The part of its limit that a call to a silent backend may take; twice is no limit.
_SILENCE_ALLOWANCE = 1.75


class Errors:
    @rule("ERR-3")
    def test_err_3_errors_are_also_what_python_calls_them(self, trial: Trial) -> None:
        """InvalidArgument is a ValueError, NotFound a LookupError, and all are QueueErrors."""
        [invalid] = failures(trial.queue.push, None)
        [missing] = failures(trial.queue.ack, Message(QUEUE))
        assert isinstance(invalid.error, InvalidArgument)
        assert isinstance(invalid.error, ValueError)
        assert isinstance(missing.error, NotFound)
        assert isinstance(missing.error, LookupError)
        with pytest.raises(QueueError):
            trial.queue.push(None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="max_messages"):
            trial.queue.pop(QUEUE, 0)

    @rule("ERR-3", "ERR-1")
    @unless(unique_ids="none")
    def test_err_3_a_batch_error_is_a_group_that_except_star_takes_apart(
        self, trial: Trial
    ) -> None:
        """Each handler gets the failures of its type, under their original indexes."""
        trial.queue.push(Message(QUEUE, id="same"))
        batch = [Message(QUEUE, b"good"), None, Message(QUEUE, id="same"), None]
        caught: dict[type[QueueError], list[int]] = {}
        try:
            trial.queue.push(*batch)  # type: ignore[arg-type]
        except* AlreadyExists as group:
            caught[AlreadyExists] = _indexes(group)
        except* InvalidArgument as group:
            caught[InvalidArgument] = _indexes(group)
        assert caught == {AlreadyExists: [2], InvalidArgument: [1, 3]}

    @rule("ERR-3", "ERR-2")
    @unless(unique_ids="none")
    def test_err_3_split_and_subgroup_keep_the_indexes(self, trial: Trial) -> None:
        """A BatchError divided by type is two BatchErrors that still know their items."""
        trial.queue.push(Message(QUEUE, id="same"))
        with pytest.raises(BatchError) as raised:
            trial.queue.push(None, Message(QUEUE, id="same"), None)  # type: ignore[arg-type]
        matching, rest = raised.value.split(AlreadyExists)
        assert _indexes(matching) == [1]
        assert _indexes(rest) == [0, 2]
        assert _indexes(raised.value.subgroup(InvalidArgument)) == [0, 2]

    @rule("ERR-4")
    @needs("open_unreachable")
    @pytest.mark.parametrize("count", [1, 3])
    def test_err_4_a_failed_push_has_a_backend_error_for_each_item(
        self, trial: Trial, count: int
    ) -> None:
        """Each with the client's exception as its cause, and a word on the outcome."""
        queue = trial.adopt(trial.harness.open_unreachable())
        found = failures(queue.push, *(Message(QUEUE) for _ in range(count)))
        assert [failure.index for failure in found] == list(range(count))
        assert len({id(failure.error) for failure in found}) == count
        for failure in found:
            _is_translated(failure.error)

    @rule("ERR-4")
    @needs("open_unreachable")
    def test_err_4_a_failed_pop_raises_the_backend_error_plainly(self, trial: Trial) -> None:
        """It is no BatchError, and has the client's exception as its cause."""
        queue = trial.adopt(trial.harness.open_unreachable())
        with pytest.raises(BackendError) as caught:
            queue.pop(QUEUE, wait=NOTHING)
        _is_translated(caught.value)

    @rule("ERR-5")
    def test_err_5_a_pop_ends_when_its_wait_is_over(self, trial: Trial) -> None:
        """An empty queue holds nobody longer than asked."""
        wait = timedelta(milliseconds=100)
        begun = time.monotonic()
        assert trial.queue.pop(QUEUE, wait=wait) == []
        limit = wait + _ALLOWANCE * trial.harness.pace
        assert time.monotonic() - begun < limit.total_seconds()

    @rule("ERR-5")
    @needs("open_unreachable")
    def test_err_5_every_call_ends_although_nobody_answers(self, trial: Trial) -> None:
        """A backend that does not answer fails calls, and hangs none."""
        queue = trial.adopt(trial.harness.open_unreachable())
        ended = trial.start_together(
            lambda: len(failures(queue.push, Message(QUEUE))),
            lambda: _raises_backend_error(lambda: queue.pop(QUEUE, wait=NOTHING)),
        )
        assert ended == [1, 1]

    @rule("ERR-5")
    @needs("open_silenceable")
    def test_err_5_every_call_ends_in_time_when_the_backend_falls_silent(
        self, trial: Trial
    ) -> None:
        """On connections that were made before, the waiting pop included."""
        silenceable = trial.harness.open_silenceable()
        queue = trial.adopt(silenceable.queue)
        verbs = (queue.ack, queue.retry, queue.dead_letter)
        queue.push(*(Message(QUEUE) for _ in verbs))
        deliveries = trial.receive(len(verbs), queue=queue)
        wait = timedelta(seconds=1)
        waiting = trial.start(_seconds, lambda: queue.pop(OTHER_QUEUE, wait=wait))
        time.sleep(wait.total_seconds() / 2)
        silenceable.silence()
        calls: list[Callable[[], object]] = [
            lambda: queue.pop(QUEUE, wait=NOTHING),
            lambda: _must_fail(queue.push, Message(QUEUE)),
            *(partial(_must_fail, *each) for each in zip(verbs, deliveries, strict=True)),
        ]
        took = trial.start_together(*(partial(_seconds, call) for call in calls))
        limit = silenceable.operation_timeout.total_seconds() * _SILENCE_ALLOWANCE
        assert max(took) < limit, f"the calls took {took} s"
        assert trial.result(waiting) < wait.total_seconds() + limit

    @rule("ERR-5")
    def test_err_5_an_interrupted_pop_loses_nothing(self, trial: Trial) -> None:
        """KeyboardInterrupt ends the wait; the object goes on working, and messages come."""
        trial.visible()
        previous = signal.signal(signal.SIGALRM, _interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                trial.queue.pop(QUEUE, wait=trial.patience)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        trial.push(3)
        assert sorted(each.payload for each in trial.receive(3)) == [b"0", b"1", b"2"]

    @rule("ERR-5")
    def test_err_5_a_cancelled_asynchronous_pop_loses_nothing(self, trial: Trial) -> None:
        """What arrives for a pop that was cancelled comes to somebody else, in the end."""
        options = {"visibility_timeout": trial.lease} if trial.guarantees.leases else {}

        async def scenario() -> None:
            queue = AsyncQueue(trial.open(**options))
            # It waits for long, so that it is this pop that the message arrives for.
            popping = asyncio.create_task(queue.pop(QUEUE, wait=trial.patience))
            await asyncio.sleep(trial.moment.total_seconds())
            popping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await popping
            await queue.push(Message(QUEUE, b"work"))
            await asyncio.sleep(2 * trial.moment.total_seconds())
            await asyncio.to_thread(trial.let_pass, trial.lease)
            received = await queue.pop(QUEUE, wait=trial.patience)
            assert [each.payload for each in received] == [b"work"]
            await queue.close()

        asyncio.run(scenario())

    @rule("ERR-5", "LIFE-1")
    def test_err_5_the_asynchronous_twin_keeps_the_same_rules(self, trial: Trial) -> None:
        """Push, pop, settlements and their failures, through coroutines."""

        async def scenario() -> None:
            async with AsyncQueue(trial.open()) as queue:
                await queue.push(*(Message(QUEUE, b"%d" % n) for n in range(3)))
                received: list[Message] = []
                while len(received) < 3:
                    received += await queue.pop(QUEUE, 3, wait=trial.patience)
                acked, retried, dead = received
                await queue.ack(acked)
                await queue.retry(retried)
                await queue.dead_letter(dead)
                with pytest.raises(BatchError) as caught:
                    await queue.ack(acked, dead)
                assert [failure.index for failure in caught.value.failed] == [0, 1]
                [again] = await queue.pop(QUEUE, wait=trial.patience)
                assert again.id == retried.id

        asyncio.run(scenario())

    @rule("ERR-6")
    def test_err_6_no_text_shows_a_payload(
        self, trial: Trial, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Neither error texts nor reprs nor log lines, however the call failed."""
        caplog.set_level("DEBUG")
        secret = _SECRET.encode()
        message = Message(QUEUE, secret, id="same", extra=secret)
        trial.queue.push(message)
        texts = [
            *_texts(trial.queue.push, *(Message(QUEUE, secret, id="2", extra=secret),) * 2),
            *_texts(trial.queue.push, Message(QUEUE, secret, id="bad\n", extra=secret)),
            *_texts(trial.queue.push, Message("", secret, extra=secret)),
            *_texts(trial.queue.push, Message(OTHER_QUEUE, _SECRET)),  # type: ignore[arg-type]
        ]
        delivery = trial.receive_one()
        trial.queue.ack(delivery)
        texts += _texts(trial.queue.retry, delivery)
        texts += [repr(message), repr(delivery), repr(trial.queue), str(trial.queue)]
        texts += [repr(delivery.driver_data), caplog.text]
        assert [text for text in texts if _SECRET in text] == []

    @rule("ERR-6", "LIFE-3")
    @needs("url")
    def test_err_6_no_error_shows_the_password_of_a_url(self, trial: Trial) -> None:
        """A URL that is refused is not repeated, whatever is wrong with it."""
        scheme, _, rest = trial.harness.url().partition("://")
        place = rest.partition("?")[0].rpartition("@")[2]
        for wrong in (
            f"{place}?no_such_option=1",
            f"{place}?poll_timeout=soon",
            f"{place}#fragment",
            "host:port/",
        ):
            with pytest.raises(QueueError) as caught:
                open_queue(f"{scheme}://user:{_SECRET}@{wrong}").push(Message(QUEUE))
            chain: BaseException | None = caught.value
            while chain is not None:
                assert _SECRET not in f"{chain} {chain!r}"
                chain = chain.__cause__

    @rule("ERR-6", "LIFE-1")
    @needs("open_unreachable")
    def test_err_6_an_unreachable_backend_gives_away_no_payload(
        self, trial: Trial, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The client's exception, which is the cause, shows no parameters either."""
        caplog.set_level("DEBUG")
        queue = trial.adopt(trial.harness.open_unreachable())
        texts = _texts(queue.push, Message(QUEUE, _SECRET.encode(), extra=_SECRET.encode()))
        assert [text for text in [*texts, caplog.text] if _SECRET in text] == []

    @rule("ERR-7")
    @needs("open_misconfigured")
    def test_err_7_what_only_a_person_can_repair_is_permanent(self, trial: Trial) -> None:
        """A pop and each item of a push say so, and that nothing was done."""
        queue = trial.adopt(trial.harness.open_misconfigured())
        with pytest.raises(BackendError) as caught:
            queue.pop(QUEUE, wait=NOTHING)
        _is_permanent(caught.value)
        for failure in failures(queue.push, Message(QUEUE), Message(QUEUE)):
            _is_permanent(failure.error)


def _is_permanent(error: QueueError) -> None:
    assert isinstance(error, BackendError)
    assert (error.permanent, error.outcome_unknown) == (True, False)


def _indexes(group: object) -> list[int]:
    """The indexes of what is still a BatchError after it was divided."""
    assert isinstance(group, BatchError)
    return [failure.index for failure in group.failed]


def _is_translated(error: QueueError) -> None:
    assert isinstance(error, BackendError)
    assert error.__cause__ is not None
    assert not isinstance(error.__cause__, QueueError)
    assert type(error.outcome_unknown) is bool
    assert str(error) != ""


def _seconds(call: Callable[[], object]) -> float:
    """The time that a call takes which may raise BackendError."""
    begun = time.monotonic()
    with suppress(BackendError):
        call()
    return time.monotonic() - begun


def _must_fail(verb: Callable[..., None], message: Message) -> None:
    [failure] = failures(verb, message)
    assert isinstance(failure.error, BackendError)


def _raises_backend_error(call: Callable[[], object]) -> int:
    with pytest.raises(BackendError):
        call()
    return 1


def _texts(call: Callable[..., None], *args: object) -> list[str]:
    """Everything that a failing batch shows: the error, its items, their causes."""
    try:
        call(*args)
    except BatchError as error:
        shown = [str(error), repr(error)]
        for failure in error.failed:
            chain: BaseException | None = failure.error
            while chain is not None:
                shown += [str(chain), repr(chain)]
                chain = chain.__cause__ or chain.__context__
        return shown
    raise AssertionError("the call should fail")


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
