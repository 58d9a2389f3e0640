"""Opening, closing, forking, and what the years do to a message."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from hypercube_queue import (
    CAPABILITIES,
    BackendError,
    BatchError,
    Guarantees,
    InvalidArgument,
    Message,
    NotFound,
    Queue,
    QueueClosed,
    capability,
    open_queue,
)
from hypercube_queue_conformance._marks import lacks, needs, rule, unless, when
from hypercube_queue_conformance._processes import in_forked_child
from hypercube_queue_conformance._trial import NOTHING, QUEUE, Trial, failed

#: "Within about a second", and room for a machine that is busy with other things.
_CLOSING_SECONDS = 1.0 + 1.5


class Lifecycle:
    @rule("LIFE-1")
    @needs("open_unreachable")
    def test_life_1_opening_a_queue_contacts_nobody(self, trial: Trial) -> None:
        """A queue over a backend that does not answer can be made, asked and closed."""
        queue = trial.harness.open_unreachable()
        assert isinstance(queue.guarantees, Guarantees)
        queue.close()

    @rule("LIFE-1")
    @pytest.mark.parametrize(
        ("option", "bad"),
        [
            ("poll_timeout", timedelta(microseconds=-1)),
            ("visibility_timeout", NOTHING),
            ("visibility_timeout", timedelta(seconds=-1)),
        ],
        ids=str,
    )
    def test_life_1_a_bad_option_is_refused_by_name(
        self, trial: Trial, option: str, bad: timedelta
    ) -> None:
        """InvalidArgument that says which option it is, when the object is made."""
        with pytest.raises(InvalidArgument, match=option):
            trial.open(**{option: bad})

    @rule("LIFE-1")
    def test_life_1_a_closed_queue_refuses_every_call(self, trial: Trial) -> None:
        """QueueClosed from every operation and capability, even with an empty batch."""
        queue = trial.open()
        queue.close()
        message = Message(QUEUE)
        calls: list[Callable[[], object]] = [
            lambda: queue.pop(QUEUE, wait=NOTHING),
            lambda: queue.pop("", 0),
        ]
        for operation in (queue.push, queue.ack, queue.retry, queue.dead_letter):
            calls += [operation, partial(operation, message)]
        calls += _capability_calls(queue)
        for call in calls:
            with pytest.raises(QueueClosed):
                call()

    @rule("LIFE-1")
    def test_life_1_closing_twice_is_closing_once(self, trial: Trial) -> None:
        """Close is idempotent, from several threads, too."""
        queue = trial.open()
        queue.push(Message(QUEUE))
        trial.start_together(queue.close, queue.close, queue.close)
        queue.close()

    @rule("LIFE-1")
    def test_life_1_a_queue_is_a_context_manager_that_closes_it(self, trial: Trial) -> None:
        """With gives the queue itself, and closes it however the block ends."""
        queue = trial.open()
        with queue as entered:
            assert entered is queue
            queue.push(Message(QUEUE))
        with pytest.raises(QueueClosed):
            queue.push()
        with pytest.raises(ZeroDivisionError), trial.open() as failing:
            raise ZeroDivisionError
        with pytest.raises(QueueClosed):
            failing.push()

    @rule("LIFE-1")
    def test_life_1_close_wakes_waiting_pops(self, trial: Trial) -> None:
        """Those of the closed object raise QueueClosed within about a second."""
        queue = trial.open()
        popping = [trial.start_pop(queue=queue) for _ in range(3)]
        begun = time.monotonic()
        queue.close()
        for future in popping:
            assert isinstance(future.exception(trial.patience.total_seconds()), QueueClosed)
        assert time.monotonic() - begun <= _CLOSING_SECONDS * trial.harness.pace

    @rule("LIFE-1")
    def test_life_1_closing_one_object_leaves_the_others_alone(self, trial: Trial) -> None:
        """Another object on the same namespace goes on, and so does a pop that waits there."""
        queue = trial.open()
        queue.push(Message(QUEUE, b"kept"))
        popping = trial.start_pop(queue_name="elsewhere", queue=trial.other)
        queue.close()
        trial.other.push(Message("elsewhere", b"new"))
        assert [each.payload for each in trial.result(popping)] == [b"new"]
        assert trial.visible() == [b"kept"]

    @rule("LIFE-1", "POP-7")
    def test_life_1_a_pop_that_is_closed_takes_nothing_with_it(self, trial: Trial) -> None:
        """Messages pushed around a close are delivered to others, if not to the closed one."""
        for number in range(5):
            queue = trial.open()
            popping = trial.start(queue.pop, QUEUE, wait=trial.patience)
            pushing = trial.start(trial.other.push, Message(QUEUE, b"%d" % number))
            closing = trial.start(queue.close)
            for future in (pushing, closing):
                trial.result(future)
            error = popping.exception(trial.patience.total_seconds())
            if error is not None:
                assert isinstance(error, QueueClosed)
                assert trial.receive_one().payload == b"%d" % number

    @rule("LIFE-1")
    @needs("borrow")
    def test_life_1_a_client_that_was_passed_in_stays_open(self, trial: Trial) -> None:
        """Closing the queue leaves the caller's client working."""
        borrowed = trial.harness.borrow()
        borrowed.queue.push(Message(QUEUE, b"0"))
        borrowed.queue.close()
        assert borrowed.client_works()
        assert trial.visible() == [b"0"]

    @rule("LIFE-2")
    @needs("restart")
    def test_life_2_the_same_object_works_again_after_a_restart(self, trial: Trial) -> None:
        """Calls that fail meanwhile raise BackendError; then everything works, without help."""
        trial.push(1)
        trial.harness.restart()
        end = time.monotonic() + trial.patience.total_seconds()
        works = False
        while not works and time.monotonic() < end:
            works = _works(trial.queue)
        assert works

    @rule("LIFE-2", "POP-7")
    @needs("restart")
    def test_life_2_a_waiting_pop_is_not_deaf_after_a_restart(self, trial: Trial) -> None:
        """It raises BackendError, or goes on waiting and notices the next push."""
        popping = trial.start_pop()
        trial.harness.restart()
        end = time.monotonic() + trial.patience.total_seconds()
        while not _works(trial.other) and time.monotonic() < end:
            pass
        trial.other.push(Message(QUEUE, b"0"))
        error = popping.exception(2 * trial.patience.total_seconds())
        if error is None:
            assert [each.payload for each in popping.result()] == [b"0"]
        else:
            assert isinstance(error, BackendError)
            assert trial.receive_one().payload == b"0"

    @rule("LIFE-3")
    @needs("url")
    def test_life_3_open_queue_finds_the_driver(self, trial: Trial) -> None:
        """A URL leads to the same namespace, through an object of the same type."""
        queue = trial.adopt(open_queue(trial.harness.url()))
        assert type(queue) is type(trial.queue)
        queue.push(Message(QUEUE, b"by URL"))
        assert trial.visible() == [b"by URL"]

    @rule("LIFE-3")
    @needs("url")
    def test_life_3_the_common_options_can_be_in_the_url(self, trial: Trial) -> None:
        """poll_timeout and visibility_timeout, in seconds."""
        seconds = trial.lease.total_seconds()
        url = _with_option(trial.harness.url(), f"poll_timeout=0.05&visibility_timeout={seconds}")
        queue = trial.adopt(open_queue(url))
        begun = time.monotonic()
        assert queue.pop(QUEUE) == []
        assert time.monotonic() - begun < trial.patience.total_seconds()
        if trial.guarantees.leases:
            stale = trial.deliver_one(queue=queue)
            trial.let_pass(trial.lease)
            assert failed(queue.ack, stale) == [(0, NotFound)]

    @rule("LIFE-3")
    @needs("url")
    @pytest.mark.parametrize(
        ("option", "named"),
        [
            ("no_such_option=1", "no_such_option"),
            ("poll_timeout=soon", "poll_timeout"),
            ("poll_timeout=-1", "poll_timeout"),
            ("visibility_timeout=0", "visibility_timeout"),
            ("visibility_timeout=nan", "visibility_timeout"),
        ],
    )
    def test_life_3_a_bad_option_is_refused_by_name(
        self, trial: Trial, option: str, named: str
    ) -> None:
        """InvalidArgument that says which option it is, before anything is opened."""
        with pytest.raises(InvalidArgument, match=named):
            open_queue(_with_option(trial.harness.url(), option))

    @rule("LIFE-3")
    def test_life_3_an_unknown_scheme_says_so(self, trial: Trial) -> None:
        """InvalidArgument that names the scheme."""
        with pytest.raises(InvalidArgument, match="nosuchscheme"):
            open_queue("nosuchscheme://place")

    @rule("LIFE-4")
    @needs("opener")
    def test_life_4_an_inherited_queue_works_in_a_forked_child(self, trial: Trial) -> None:
        """The child has connections of its own, and the parent's go on working."""
        queue = trial.adopt(trial.harness.opener()())
        queue.push(Message(QUEUE, b"before"))

        def in_child() -> list[bytes]:
            queue.push(Message(QUEUE, b"from the child"))
            [delivery] = queue.pop("mine", wait=trial.patience)
            queue.ack(delivery)
            return [delivery.payload]

        queue.push(Message("mine", b"for the child"))
        assert in_forked_child(in_child) == "[b'for the child']"
        queue.push(Message(QUEUE, b"after"))
        received = sorted(each.payload for each in trial.receive(3, queue=queue))
        assert received == [b"after", b"before", b"from the child"]
        assert queue.pop("mine", wait=NOTHING) == []

    @rule("LIFE-4")
    @needs("opener")
    def test_life_4_a_fork_leaves_deliveries_and_waiters_of_the_parent_alone(
        self, trial: Trial
    ) -> None:
        """What the parent popped is the parent's to settle, and its waiting pops stay awake."""
        queue = trial.adopt(trial.harness.opener()())
        delivery = trial.deliver_one(queue=queue)
        popping = trial.start_pop(queue_name="elsewhere", queue=queue)
        assert in_forked_child(lambda: queue.pop(QUEUE, wait=NOTHING)) == "[]"
        queue.ack(delivery)
        trial.queue.push(Message("elsewhere", b"0"))
        assert [each.payload for each in trial.result(popping)] == [b"0"]

    @rule("LIFE-4")
    @lacks("opener")
    def test_life_4_a_store_of_one_process_says_that_it_was_forked(self, trial: Trial) -> None:
        """QueueClosed that names the fork, and the parent goes on working."""
        trial.push(1)
        for call in (
            lambda: trial.queue.push(Message(QUEUE)),
            lambda: trial.queue.pop(QUEUE, wait=NOTHING),
        ):
            answer = in_forked_child(call)
            assert answer.startswith("QueueClosed: ")
            assert "fork" in answer
        assert trial.visible() == [b"0"]

    @rule("LIFE-4")
    @needs("borrow")
    def test_life_4_a_borrowed_client_is_not_used_in_a_forked_child(self, trial: Trial) -> None:
        """BackendError in the child, and the parent goes on working."""
        queue = trial.adopt(trial.harness.borrow().queue)
        queue.push(Message(QUEUE, b"0"))
        answer = in_forked_child(lambda: queue.pop(QUEUE, wait=NOTHING))
        assert answer.startswith("BackendError: ")
        assert [each.payload for each in trial.receive(1, queue=queue)] == [b"0"]

    @rule("LIFE-5")
    def test_life_5_messages_do_not_expire(self, trial: Trial) -> None:
        """Ready, delayed, in flight and dead ones are still there after a long time."""
        trial.push(3)
        ready, held, dead = trial.receive(3, queue=trial.hasty)
        trial.hasty.retry(ready)
        trial.hasty.dead_letter(dead)
        trial.queue.push(Message(QUEUE, b"delayed", delay=trial.delay))
        for _ in range(4):
            trial.let_pass(_a_long_time(trial))
        if not trial.guarantees.leases:
            trial.hasty.retry(held)
        assert trial.visible() == sorted([ready.payload, held.payload, b"delayed"])
        if trial.guarantees.unique_ids != "none":
            assert len(failed(trial.queue.push, Message(QUEUE, id=dead.id))) == 1

    @rule("LIFE-6")
    def test_life_6_a_message_can_be_returned_any_number_of_times(self, trial: Trial) -> None:
        """No limit of the backend's drops or dead-letters it behind the worker's back."""
        trial.push(1)
        for _ in range(40):
            trial.queue.retry(trial.receive_one())
        delivery = trial.receive_one()
        assert delivery.payload == b"0"
        if trial.guarantees.exact_attempts:
            assert delivery.attempt == 41

    @rule("LIFE-6")
    @unless(durable=False)
    @when(leases=False)
    def test_life_6_a_message_can_be_lost_any_number_of_times(self, trial: Trial) -> None:
        """Connections that end do not use a message up either."""
        trial.push(1)
        for _ in range(25):
            with trial.open() as queue:
                trial.receive_one(queue=queue)
        assert trial.receive_one().payload == b"0"


def _a_long_time(trial: Trial) -> timedelta:
    """As long as a test can wait; decades, where the clock can be moved."""
    return timedelta(days=3650) if trial.harness.injected_clock else trial.lease


def _works(queue: Queue) -> bool:
    """Whether a round through the queue works; anything but BackendError is an error."""
    try:
        queue.push(Message("probe"))
        deliveries = queue.pop("probe", wait=NOTHING)
        queue.ack(*deliveries)
    except BackendError:
        return False
    except BatchError as error:
        if error.split(BackendError)[1] is not None:
            raise
        return False
    return bool(deliveries)


def _with_option(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"


def _capability_calls(queue: Queue) -> list[Callable[[], object]]:
    """A call of each capability that the queue has."""
    message = Message(QUEUE)
    arguments: dict[str, tuple[object, ...]] = {
        "extend_visibility": (timedelta(seconds=1), message),
        "redrive": (QUEUE, 1),
        "queues": (),
        "stats": (QUEUE,),
        "dead_letters": (QUEUE, 1),
        "redrive_ids": (QUEUE, "id"),
        "forget": (QUEUE, "id"),
        "release": (message,),
        "push_within": (object(), message),
        "shares_database": (object(),),
    }
    return [
        partial(getattr(queue, name), *arguments[name])
        for protocol in CAPABILITIES
        if capability(queue, protocol) is not None
        for name in vars(protocol)
        if name in arguments
    ]
