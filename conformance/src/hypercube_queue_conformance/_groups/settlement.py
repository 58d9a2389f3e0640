"""Ack, retry and dead-letter: what they do, and to whom they are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from hypercube_queue import (
    DeadLetterStore,
    Message,
    NotFound,
    Redriver,
    Releaser,
    StatsProvider,
)
from hypercube_queue_conformance._marks import needs, rule, unless, when
from hypercube_queue_conformance._trial import NOTHING, OTHER_QUEUE, QUEUE, Trial, failed
from hypercube_queue_conformance._values import Foreign

VERBS = ("ack", "retry", "dead_letter")


class Settlement:
    @rule("SET-1")
    def test_set_1_an_acked_message_is_gone(self, trial: Trial) -> None:
        """It is delivered to nobody, and no other message is touched."""
        acked, kept = trial.deliver(2)
        trial.queue.ack(acked)
        trial.queue.retry(kept)
        assert trial.visible() == [kept.payload]

    @rule("SET-1", "STA-1")
    @needs(StatsProvider)
    def test_set_1_an_acked_message_is_in_no_state(self, trial: Trial) -> None:
        """Neither ready, nor in flight, nor dead."""
        trial.queue.ack(*trial.deliver(3))
        stats = trial.offers(StatsProvider).stats(QUEUE)
        assert (stats.ready, stats.delayed, stats.in_flight, stats.dead) == (0, 0, 0, 0)

    @rule("SET-1")
    @when(leases=True, ack_final=True)
    def test_set_1_an_acked_message_does_not_come_back_when_its_lease_would_end(
        self, trial: Trial
    ) -> None:
        """An ack is for good."""
        trial.hasty.ack(*trial.deliver(3, queue=trial.hasty))
        trial.let_pass(trial.lease)
        assert trial.visible() == []

    # Stale settlements, by how the delivery came to be stale

    @rule("SET-2")
    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("before", VERBS)
    def test_set_2_a_settled_delivery_cannot_be_settled_again(
        self, trial: Trial, before: str, verb: str
    ) -> None:
        """NotFound, and what the first settlement did stays done."""
        delivery = trial.deliver_one()
        getattr(trial.queue, before)(delivery)
        _spoil(delivery)
        assert failed(getattr(trial.queue, verb), delivery) == [(0, NotFound)]
        assert trial.visible() == ([b"0"] if before == "retry" else [])

    @rule("SET-2", "SET-4")
    @needs(Redriver)
    @pytest.mark.parametrize("verb", VERBS)
    def test_set_2_a_dead_lettered_delivery_settles_nothing_after_a_redrive(
        self, trial: Trial, verb: str
    ) -> None:
        """NotFound, while the message is dead and once it is ready again."""
        delivery = trial.deliver_one()
        trial.queue.dead_letter(delivery)
        _spoil(delivery)
        assert failed(getattr(trial.queue, verb), delivery) == [(0, NotFound)]
        assert trial.offers(Redriver).redrive(QUEUE, 1) == 1
        assert failed(getattr(trial.queue, verb), delivery) == [(0, NotFound)]
        assert trial.visible() == [b"0"]

    @rule("SET-2")
    @when(leases=True)
    def test_set_2_an_expired_delivery_settles_nothing(self, trial: Trial) -> None:
        """NotFound by every verb, although nobody has popped the message again."""
        deliveries = trial.deliver(3, queue=trial.hasty)
        trial.let_pass(trial.lease)
        for verb, delivery in zip(VERBS, deliveries, strict=True):
            _spoil(delivery)
            assert failed(getattr(trial.hasty, verb), delivery) == [(0, NotFound)]
        assert trial.visible() == [b"0", b"1", b"2"]

    @rule("SET-2")
    @when(leases=True)
    def test_set_2_a_delivery_settles_nothing_once_the_same_object_popped_again(
        self, trial: Trial
    ) -> None:
        """NotFound by every verb, and the current deliveries can still be settled."""
        trial.push(3)
        queue = trial.open(visibility_timeout=4 * trial.lease)
        old = {each.id: each for each in trial.receive(3, queue=queue)}
        trial.let_pass(4 * trial.lease)
        current = trial.receive(3, queue=queue)
        for verb, delivery in zip(VERBS, current, strict=True):
            stale = old[delivery.id]
            _spoil(stale)
            assert failed(getattr(queue, verb), stale) == [(0, NotFound)]
        queue.retry(*current)
        assert trial.visible() == [b"0", b"1", b"2"]

    @rule("SET-2")
    @when(leases=True, stale_settlement="strict")
    def test_set_2_a_delivery_settles_nothing_once_another_object_popped_again(
        self, trial: Trial
    ) -> None:
        """NotFound by every verb; the current deliveries, elsewhere, are left alone."""
        old = {each.id: each for each in trial.deliver(3, queue=trial.hasty)}
        trial.let_pass(trial.lease)
        current = trial.receive(3, queue=trial.other)
        for verb, delivery in zip(VERBS, current, strict=True):
            stale = old[delivery.id]
            _spoil(stale)
            assert failed(getattr(trial.hasty, verb), stale) == [(0, NotFound)]
        assert trial.visible() == []
        trial.other.retry(*current)
        assert trial.visible() == [b"0", b"1", b"2"]

    @rule("SET-2")
    @pytest.mark.parametrize("verb", VERBS)
    def test_set_2_a_retried_delivery_does_not_settle_the_next_one(
        self, trial: Trial, verb: str
    ) -> None:
        """NotFound while the message is in flight again, and its delivery is left alone."""
        stale = trial.deliver_one()
        trial.queue.retry(stale)
        current = trial.receive_one()
        _spoil(stale)
        assert failed(getattr(trial.queue, verb), stale) == [(0, NotFound)]
        trial.queue.retry(current)
        assert trial.visible() == [b"0"]

    @rule("SET-2", "ERR-2")
    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("place", [0, 1])
    def test_set_2_an_old_delivery_does_not_pass_as_the_present_one_beside_it(
        self, trial: Trial, verb: str, place: int
    ) -> None:
        """Both in one batch, in either order: the old one is NotFound, the other is settled."""
        stale = trial.deliver_one()
        trial.queue.retry(stale)
        current = trial.receive_one()
        _spoil(stale)
        batch = [current]
        batch.insert(place, stale)
        assert failed(getattr(trial.queue, verb), *batch) == [(place, NotFound)]
        assert failed(getattr(trial.queue, verb), current) == [(0, NotFound)]
        assert trial.visible() == ([b"0"] if verb == "retry" else [])

    @rule("SET-2")
    @pytest.mark.parametrize("verb", VERBS)
    def test_set_2_an_acked_delivery_does_not_settle_a_new_message_of_its_id(
        self, trial: Trial, verb: str
    ) -> None:
        """NotFound, however much the new message resembles the old one."""
        trial.queue.push(Message(QUEUE, b"0", id="same"))
        stale = trial.receive_one()
        trial.queue.ack(stale)
        trial.queue.push(Message(QUEUE, b"0", id="same"))
        current = trial.receive_one()
        _spoil(stale)
        assert failed(getattr(trial.queue, verb), stale) == [(0, NotFound)]
        trial.queue.retry(current)
        assert trial.visible() == [b"0"]

    @rule("SET-2")
    @pytest.mark.parametrize("verb", VERBS)
    def test_set_2_a_delivery_is_settled_through_the_object_that_popped_it(
        self, trial: Trial, verb: str
    ) -> None:
        """NotFound through another driver object, and the delivery is still owned."""
        delivery = trial.deliver_one()
        assert failed(getattr(trial.other, verb), delivery) == [(0, NotFound)]
        getattr(trial.queue, verb)(delivery)

    @rule("SET-2")
    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize("driver_data", [None, "text", Foreign()], ids=repr)
    def test_set_2_a_message_that_was_never_delivered_settles_nothing(
        self, trial: Trial, verb: str, driver_data: object
    ) -> None:
        """NotFound, although a message of this id is there."""
        trial.push(1)
        [pushed] = trial.push(1, OTHER_QUEUE)
        made_up = Message(OTHER_QUEUE, id=pushed.id, driver_data=driver_data)
        assert failed(getattr(trial.queue, verb), made_up) == [(0, NotFound)]
        assert trial.visible(OTHER_QUEUE) == [b"0"]
        delivery = trial.receive_one()
        forged = replace(delivery, driver_data=driver_data)
        assert failed(getattr(trial.queue, verb), forged) == [(0, NotFound)]
        trial.queue.ack(delivery)

    @rule("SET-2", "REL-1")
    @needs(Releaser)
    @pytest.mark.parametrize("verb", VERBS)
    def test_set_2_a_released_delivery_settles_nothing(self, trial: Trial, verb: str) -> None:
        """NotFound, before the message is delivered again and afterwards."""
        delivery = trial.deliver_one()
        trial.offers(Releaser).release(delivery)
        _spoil(delivery)
        assert failed(getattr(trial.queue, verb), delivery) == [(0, NotFound)]
        current = trial.receive_one()
        assert failed(getattr(trial.queue, verb), delivery) == [(0, NotFound)]
        trial.queue.retry(current)
        assert trial.visible() == [b"0"]

    @rule("SET-2")
    def test_set_2_of_concurrent_settlements_exactly_one_wins(self, trial: Trial) -> None:
        """However many threads settle one delivery at once, one succeeds and one thing is done."""

        def settle(verb: str, delivery: Message) -> Callable[[], str | None]:
            def run() -> str | None:
                return None if failed(getattr(trial.queue, verb), delivery) else verb

            return run

        for _ in range(10):
            delivery = trial.deliver_one()
            calls = [settle(verb, copy.copy(delivery)) for verb in VERBS * 2]
            winners = [verb for verb in trial.start_together(*calls) if verb]
            assert len(winners) == 1
            assert len(trial.visible()) == (1 if winners == ["retry"] else 0)

    # Retry

    @rule("SET-3", "OWN-4")
    def test_set_3_a_retry_stores_the_contents_of_the_delivery(self, trial: Trial) -> None:
        """What a worker wrote into payload and extra is what the next delivery has."""
        delivery = trial.deliver_one()
        delivery.payload, delivery.extra = b"new payload", b"new extra"
        trial.queue.retry(delivery)
        again = trial.receive_one()
        assert (again.payload, again.extra) == (b"new payload", b"new extra")

    @rule("SET-3")
    def test_set_3_a_retried_message_is_visible_at_once_without_a_delay(self, trial: Trial) -> None:
        """Its attempt count stays, so the next delivery counts one more."""
        trial.queue.retry(trial.deliver_one())
        again = trial.receive_one()
        if trial.guarantees.exact_attempts:
            assert again.attempt == 2

    @rule("SET-3")
    def test_set_3_a_retried_message_is_visible_after_its_delay(self, trial: Trial) -> None:
        """Not before; the delay is that of the delivery, not of the push."""
        delivery = trial.deliver_one()
        delivery.delay = trial.delay
        retried_at = trial.time()
        trial.queue.retry(delivery)
        _, came_at = trial.wait_for_one()
        assert came_at - retried_at >= trial.delay

    @rule("SET-3")
    def test_set_3_a_retried_message_waits_out_a_long_delay(self, trial: Trial) -> None:
        """The end of the old lease does not bring it back early."""
        trial.push()
        [delivery] = trial.receive(1, queue=trial.hasty)
        delivery.delay = trial.long_delay
        trial.hasty.retry(delivery)
        trial.let_pass(trial.lease)
        assert trial.visible() == []

    @rule("SET-3")
    def test_set_3_the_longest_delay_is_accepted_and_a_longer_one_is_not(
        self, trial: Trial
    ) -> None:
        """Nothing is clamped: over the limit is InvalidArgument, and the delivery is owned."""
        delivery = trial.deliver_one()
        delivery.delay = trial.guarantees.max_delay + timedelta(microseconds=1)
        assert [index for index, _ in failed(trial.queue.retry, delivery)] == [0]
        delivery.delay = trial.guarantees.max_delay
        trial.queue.retry(delivery)
        assert trial.visible() == []

    # Dead-letter

    @rule("SET-4")
    def test_set_4_a_dead_lettered_message_is_delivered_to_nobody(self, trial: Trial) -> None:
        """Neither at once, nor when its lease would have ended, nor after its delay."""
        trial.push(2)
        deliveries = trial.receive(2, queue=trial.hasty)
        for delivery in deliveries:
            delivery.delay = trial.delay
        trial.hasty.dead_letter(*deliveries)
        assert trial.visible() == []
        trial.let_pass(max(trial.lease, trial.delay))
        assert trial.visible() == []

    @rule("SET-4", "OWN-4")
    @needs(DeadLetterStore)
    def test_set_4_a_dead_lettered_message_keeps_contents_and_attempts(self, trial: Trial) -> None:
        """Present payload and extra are stored, beside the count of its deliveries."""
        pushed = Message(QUEUE, b"0", "kind", "space", "id", visibility_timeout=trial.long_lease)
        trial.queue.push(pushed)
        trial.queue.retry(trial.receive_one())
        delivery = trial.receive_one()
        delivery.payload, delivery.extra = b"new payload", b"new extra"
        trial.queue.dead_letter(delivery)
        [letter] = trial.offers(DeadLetterStore).dead_letters(QUEUE, 10)
        assert letter.message == replace(
            pushed, payload=b"new payload", extra=b"new extra", attempt=2
        )
        assert letter.raw is None

    @rule("SET-4", "RED-2", "OWN-4")
    @needs(Redriver)
    def test_set_4_what_a_worker_wrote_before_dead_lettering_survives(self, trial: Trial) -> None:
        """A redriven message has the payload and extra that it was dead-lettered with."""
        delivery = trial.deliver_one()
        delivery.payload, delivery.extra = bytearray(b"new"), b"why it failed"  # type: ignore[assignment]
        trial.queue.dead_letter(delivery)
        trial.offers(Redriver).redrive(QUEUE, 1)
        again = trial.receive_one()
        assert (again.payload, again.extra) == (b"new", b"why it failed")

    # Batches of settlements

    @rule("SET-5")
    @pytest.mark.parametrize("verb", VERBS)
    def test_set_5_the_same_delivery_twice_in_a_batch_is_settled_once(
        self, trial: Trial, verb: str
    ) -> None:
        """The first settles it, and the second is NotFound, also where it is a copied message."""
        first, second = trial.deliver(2)
        batch = [first, second, first, copy.copy(first), replace(second)]
        assert failed(getattr(trial.queue, verb), *batch) == [
            (2, NotFound),
            (3, NotFound),
            (4, NotFound),
        ]
        assert trial.visible() == ([b"0", b"1"] if verb == "retry" else [])

    @rule("SET-6")
    @unless(unique_ids="none")
    def test_set_6_an_update_leaves_one_copy(self, trial: Trial) -> None:
        """After retries with new contents there is one message of the id, with the newest."""
        delivery = trial.deliver_one()
        for number in range(1, 6):
            delivery.payload = b"%d" % number
            trial.queue.retry(delivery)
            delivery = trial.receive_one()
        assert trial.visible() == []
        trial.queue.retry(delivery)
        assert trial.visible() == [b"5"]

    @rule("SET-7")
    def test_set_7_a_settlement_is_in_effect_when_it_returns(self, trial: Trial) -> None:
        """Another driver object sees at once what was retried, and nothing of the rest."""
        acked, retried, dead = trial.deliver(3)
        trial.queue.ack(acked)
        trial.queue.retry(retried)
        trial.queue.dead_letter(dead)
        received = trial.receive(1, queue=trial.other)
        assert [each.id for each in received] == [retried.id]
        assert trial.other.pop(QUEUE, wait=NOTHING) == []

    @rule("SET-7", "LIFE-2")
    @needs("restart")
    @when(durable=True)
    def test_set_7_what_returned_survives_a_restart(self, trial: Trial) -> None:
        """Pushed, retried and dead-lettered messages are there, and acked ones are not."""
        acked, retried, dead = trial.deliver(3)
        trial.queue.ack(acked)
        retried.payload = b"retried"
        trial.queue.retry(retried)
        trial.queue.dead_letter(dead)
        trial.queue.push(Message(QUEUE, b"pushed"))
        trial.harness.restart()
        fresh = trial.open()
        assert sorted(each.payload for each in trial.receive(2, queue=fresh)) == [
            b"pushed",
            b"retried",
        ]
        assert fresh.pop(QUEUE, wait=NOTHING) == []


def _spoil(delivery: Message) -> None:
    """Change what a stale settlement must not store."""
    delivery.payload = delivery.extra = b"spoilt by a stale settlement"
