"""Storing messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from hypercube_queue import (
    AlreadyExists,
    DeadLetterStore,
    InvalidArgument,
    Message,
    MessageTooLarge,
    Releaser,
    StatsProvider,
    VisibilityExtender,
)
from hypercube_queue.driver import HEADROOM_BYTES
from hypercube_queue_conformance._marks import needs, rule, unless, when
from hypercube_queue_conformance._trial import NOTHING, OTHER_QUEUE, QUEUE, Trial, failed, failures
from hypercube_queue_conformance._values import (
    BAD_BYTES,
    BAD_DURATIONS,
    BAD_NAMES,
    TOO_LONG,
    Foreign,
)

#: A message of this size is not worth storing in a test, whatever the limit.
_LARGE = 4 * 1024 * 1024


class Push:
    @rule("PUSH-1")
    def test_push_1_an_empty_batch_does_nothing(self, trial: Trial) -> None:
        """push, ack, retry and dead_letter without messages return, and change nothing."""
        trial.push(2)
        for operation in _core_operations(trial):
            operation()
        assert trial.visible() == [b"0", b"1"]

    @rule("PUSH-1")
    @needs("open_unreachable")
    def test_push_1_an_empty_batch_contacts_nobody(self, trial: Trial) -> None:
        """Without messages it does not matter that the backend cannot be reached."""
        queue = trial.adopt(trial.harness.open_unreachable())
        for operation in (queue.push, queue.ack, queue.retry, queue.dead_letter):
            operation()

    @rule("PUSH-2")
    def test_push_2_a_missing_id_is_assigned_and_written_to_the_message(self, trial: Trial) -> None:
        """Each message without an id gets one of its own, which the delivery has, too."""
        messages = trial.push(500)
        ids = {each.id for each in messages}
        assert len(ids) == 500
        assert "" not in ids
        assert {each.id for each in trial.receive(500)} == ids

    @rule("PUSH-2")
    def test_push_2_assigned_ids_are_ordered_by_time(self, trial: Trial) -> None:
        """An id that is assigned later sorts later, so that stores can append."""
        ids = []
        for _ in range(5):
            ids += [each.id for each in trial.push()]
            time.sleep(0.003)
        assert ids == sorted(ids)

    @rule("PUSH-2")
    def test_push_2_a_given_id_is_kept(self, trial: Trial) -> None:
        """An id is assigned only where there is none."""
        message = Message(QUEUE, id="mine")
        trial.queue.push(message)
        assert message.id == "mine"
        assert trial.receive_one().id == "mine"

    @rule("PUSH-2")
    @needs("open_unreachable")
    def test_push_2_the_id_is_assigned_before_anything_is_sent(self, trial: Trial) -> None:
        """A push that failed on the way can be repeated under the id that it was sent with."""
        queue = trial.adopt(trial.harness.open_unreachable())
        message = Message(QUEUE)
        assert len(failures(queue.push, message)) == 1
        assert message.id != ""

    @rule("PUSH-2")
    def test_push_2_a_push_repeated_after_the_ack_runs_again(self, trial: Trial) -> None:
        """A repeated id is a new message once the first copy is gone: at least once, no more."""
        message = Message(QUEUE, b"work")
        trial.queue.push(message)
        trial.queue.ack(trial.receive_one())
        trial.queue.push(message)
        again = trial.receive_one()
        assert (again.id, again.attempt) == (message.id, 1)

    @rule("PUSH-3")
    def test_push_3_attempt_and_driver_data_of_the_caller_are_ignored(self, trial: Trial) -> None:
        """The first delivery has attempt 1, whatever the caller wrote."""
        message = Message(QUEUE, attempt=41, driver_data=object())
        trial.queue.push(message)
        assert trial.receive_one().attempt == 1

    @rule("PUSH-3")
    def test_push_3_a_delivery_can_be_pushed_to_another_queue(self, trial: Trial) -> None:
        """A delivery pushed elsewhere is a new message there, and settled by neither push."""
        delivery = trial.deliver_one()
        copy = replace(delivery, queue_name=OTHER_QUEUE)
        trial.queue.push(copy)
        elsewhere = trial.receive_one(OTHER_QUEUE)
        assert elsewhere.attempt == 1
        trial.queue.ack(elsewhere)
        trial.queue.ack(delivery)

    @rule("PUSH-4")
    @unless(unique_ids="none")
    @pytest.mark.parametrize("state", ["ready", "delayed", "in flight", "dead"])
    def test_push_4_an_id_that_is_retained_is_refused(self, trial: Trial, state: str) -> None:
        """AlreadyExists, in every state, and the message that is there stays as it is."""
        delay = trial.delay if state == "delayed" else NOTHING
        trial.queue.push(Message(QUEUE, b"first", id="same", delay=delay))
        if state in ("in flight", "dead"):
            delivery = trial.receive_one()
            if state == "dead":
                trial.queue.dead_letter(delivery)
        second = Message(QUEUE, b"second", id="same")
        assert failed(trial.queue.push, second) == [(0, AlreadyExists)]
        assert failed(trial.other.push, second) == [(0, AlreadyExists)]
        if state == "in flight":
            trial.queue.retry(delivery)
        trial.let_pass(delay)
        if state == "dead":
            assert trial.visible() == []
        else:
            assert trial.receive_one().payload == b"first"
            assert trial.visible() == []

    @rule("PUSH-4")
    def test_push_4_of_two_equal_ids_in_one_batch_the_first_wins(self, trial: Trial) -> None:
        """The second one is AlreadyExists, and it is the first one's contents that are stored."""
        batch = [Message(QUEUE, b"%d" % n, id="same") for n in range(3)]
        batch.insert(1, Message(QUEUE, b"another", id="another"))
        assert failed(trial.queue.push, *batch) == [(2, AlreadyExists), (3, AlreadyExists)]
        assert trial.visible() == [b"0", b"another"]

    @rule("PUSH-4")
    def test_push_4_an_item_that_was_not_accepted_reserves_no_id(self, trial: Trial) -> None:
        """AlreadyExists only where the id is there: an invalid item before does not count."""
        bad = Message(QUEUE, None, id="same")  # type: ignore[arg-type]
        assert failed(trial.queue.push, bad, Message(QUEUE, b"good", id="same")) == [
            (0, InvalidArgument)
        ]
        assert trial.visible() == [b"good"]

    @rule("PUSH-4")
    def test_push_4_ids_of_other_queues_do_not_count(self, trial: Trial) -> None:
        """A message is identified by its queue and its id together."""
        trial.queue.push(Message(QUEUE, id="same"), Message(OTHER_QUEUE, id="same"))
        assert trial.receive_one(QUEUE).id == trial.receive_one(OTHER_QUEUE).id == "same"

    @rule("PUSH-4", "SET-1")
    def test_push_4_after_an_ack_the_id_is_free(self, trial: Trial) -> None:
        """Once acknowledged, a message is not retained any more."""
        for _ in range(2):
            trial.queue.push(Message(QUEUE, id="same"))
            trial.queue.ack(trial.receive_one())

    @rule("PUSH-4", "DLS-3")
    @needs(DeadLetterStore)
    def test_push_4_after_a_dead_message_is_forgotten_the_id_is_free(self, trial: Trial) -> None:
        """Forgetting is the other way for a message to be retained no more."""
        trial.queue.push(Message(QUEUE, b"first", id="same"))
        trial.queue.dead_letter(trial.receive_one())
        assert trial.offers(DeadLetterStore).forget(QUEUE, "same") == 1
        trial.queue.push(Message(QUEUE, b"second", id="same"))
        assert trial.visible() == [b"second"]

    @rule("PUSH-4", "GUA-1")
    @when(unique_ids="none")
    def test_push_4_without_unique_ids_a_repeated_push_is_a_second_message(
        self, trial: Trial
    ) -> None:
        """A driver that says it knows no ids of earlier batches refuses none."""
        for payload in (b"first", b"second"):
            trial.queue.push(Message(QUEUE, payload, id="same"))
        assert sorted(each.payload for each in trial.receive(2)) == [b"first", b"second"]

    @rule("PUSH-4")
    @unless(unique_ids="none")
    def test_push_4_equal_ids_pushed_at_once_are_accepted_once(self, trial: Trial) -> None:
        """Of many threads that push one id, exactly one stores it."""

        def push_from(number: int) -> Callable[[], int]:
            queue = trial.queue if number % 2 else trial.other
            return lambda: len(failed(queue.push, Message(QUEUE, b"%d" % number, id="same")))

        refused = trial.start_together(*(push_from(number) for number in range(8)))
        assert sorted(refused) == [0] + [1] * 7
        assert trial.visible() == [b"%d" % refused.index(0)]

    @rule("PUSH-5")
    def test_push_5_a_delayed_message_is_not_early_and_not_too_late(self, trial: Trial) -> None:
        """The delay counts from the push, and is kept within the promised lateness."""
        pushed_at = trial.time()
        trial.queue.push(Message(QUEUE, delay=trial.delay))
        stored_at = trial.time()
        _, came_at = trial.wait_for_one()
        assert came_at - pushed_at >= trial.delay
        allowed = trial.delay + trial.guarantees.delay_lateness(trial.delay)
        slack = timedelta(seconds=1) * trial.harness.pace
        assert came_at - stored_at <= allowed + slack

    @rule("PUSH-5")
    def test_push_5_a_long_delay_holds_nothing_up(self, trial: Trial) -> None:
        """A shorter delay behind a longer one comes first, and no delay comes at once."""
        trial.queue.push(
            Message(QUEUE, b"long", delay=trial.long_delay),
            Message(QUEUE, b"short", delay=trial.delay),
            Message(QUEUE, b"none"),
        )
        assert trial.receive_one().payload == b"none"
        trial.let_pass(trial.delay)
        assert trial.receive_one().payload == b"short"
        assert trial.visible() == []

    @rule("PUSH-6")
    def test_push_6_one_batch_may_name_several_queues(self, trial: Trial) -> None:
        """Each message of a batch goes to the queue it names."""
        names = [QUEUE, OTHER_QUEUE, "third"]
        trial.queue.push(*(Message(names[n % 3], b"%d" % n) for n in range(9)))
        assert trial.visible(QUEUE) == [b"0", b"3", b"6"]
        assert trial.visible(OTHER_QUEUE) == [b"1", b"4", b"7"]
        assert trial.visible("third") == [b"2", b"5", b"8"]

    @rule("PUSH-7")
    @pytest.mark.parametrize(
        ("field", "bad"),
        [
            *(("queue_name", bad) for bad in (*BAD_NAMES, "")),
            *((field, bad) for field in ("job_name", "namespace", "id") for bad in BAD_NAMES),
            *((field, bad) for field in ("payload", "extra") for bad in BAD_BYTES),
            *(("delay", bad) for bad in (*BAD_DURATIONS, None, TOO_LONG)),
            *(("visibility_timeout", bad) for bad in (*BAD_DURATIONS, NOTHING, TOO_LONG)),
        ],
        ids=lambda value: ascii(value)[:24],
    )
    def test_push_7_an_invalid_field_fails_its_item_alone(
        self, trial: Trial, field: str, bad: object
    ) -> None:
        """InvalidArgument for the item, before it or any other one is affected."""
        invalid = Message(QUEUE, b"invalid", id="" if field != "id" else "x")
        setattr(invalid, field, bad)
        given_id = invalid.id
        batch = [Message(QUEUE, b"before"), invalid, Message(QUEUE, b"behind")]
        assert failed(trial.queue.push, *batch) == [(1, InvalidArgument)]
        assert invalid.id == given_id
        assert trial.visible() == [b"before", b"behind"]

    @rule("PUSH-7")
    @pytest.mark.parametrize("foreign", [None, "text", b"bytes", Foreign()], ids=repr)
    def test_push_7_what_is_no_message_fails_alone(self, trial: Trial, foreign: object) -> None:
        """None or a foreign object is InvalidArgument for its item."""
        batch = [Message(QUEUE, b"before"), foreign, Message(QUEUE, b"behind")]
        assert failed(trial.queue.push, *batch) == [(1, InvalidArgument)]
        assert trial.visible() == [b"before", b"behind"]

    @rule("PUSH-7")
    def test_push_7_the_longest_durations_are_accepted_as_they_are(self, trial: Trial) -> None:
        """What is within the limits is taken, and nothing is clamped."""
        longest = trial.guarantees.max_visibility
        trial.queue.push(
            Message(QUEUE, b"delayed", delay=trial.guarantees.max_delay),
            Message(QUEUE, b"leased", visibility_timeout=longest),
        )
        received = trial.receive_one()
        assert (received.payload, received.visibility_timeout) == (b"leased", longest)

    @rule("PUSH-8")
    def test_push_8_a_message_of_the_greatest_size_takes_a_failure_record(
        self, trial: Trial
    ) -> None:
        """What push accepted can be retried and dead-lettered with 16 KiB more."""
        limit = trial.guarantees.max_message_bytes
        payload = bytes(_LARGE if limit is None else min(limit, _LARGE))
        trial.queue.push(Message(QUEUE, payload, id="greatest"))
        delivery = trial.receive_one()
        assert delivery.payload == payload
        delivery.extra = b"x" * HEADROOM_BYTES
        trial.queue.retry(delivery)
        delivery = trial.receive_one()
        assert (delivery.payload, delivery.extra) == (payload, b"x" * HEADROOM_BYTES)
        trial.queue.dead_letter(delivery)

    @rule("PUSH-8", "PUSH-7")
    def test_push_8_a_message_over_the_limit_is_too_large(self, trial: Trial) -> None:
        """MessageTooLarge for the item where size is limited; payload and extra count together."""
        limit = trial.guarantees.max_message_bytes
        if limit is None:
            trial.queue.push(Message(QUEUE, bytes(_LARGE), id="large"))
            assert len(trial.receive_one().payload) == _LARGE
            return
        batch = [Message(QUEUE, bytes(limit), extra=b"x"), Message(QUEUE, b"small")]
        assert failed(trial.queue.push, *batch) == [(0, MessageTooLarge)]
        assert trial.visible() == [b"small"]

    @rule("PUSH-1")
    @needs(VisibilityExtender)
    def test_push_1_an_empty_extension_does_nothing(self, trial: Trial) -> None:
        """extend_visibility without messages returns."""
        trial.offers(VisibilityExtender).extend_visibility(trial.long_lease)

    @rule("PUSH-1")
    @needs(Releaser)
    def test_push_1_an_empty_release_does_nothing(self, trial: Trial) -> None:
        """Release without messages returns."""
        trial.offers(Releaser).release()

    @rule("PUSH-7", "STA-3")
    @needs(StatsProvider)
    def test_push_7_a_refused_push_leaves_no_trace(self, trial: Trial) -> None:
        """A queue that only invalid messages were pushed to does not exist."""
        invalid = Message("untouched", b"", delay=timedelta(seconds=-1))
        assert failed(trial.queue.push, invalid) == [(0, InvalidArgument)]
        assert trial.offers(StatsProvider).queues() == []


def _core_operations(trial: Trial) -> tuple[Callable[..., None], ...]:
    queue = trial.queue
    return queue.push, queue.ack, queue.retry, queue.dead_letter
