"""VisibilityExtender: owning a delivery for longer, or shorter."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hypercube_queue import InvalidArgument, Message, NotFound, VisibilityExtender
from hypercube_queue_conformance._marks import needs, rule, when
from hypercube_queue_conformance._trial import NOTHING, QUEUE, Trial, failed
from hypercube_queue_conformance._values import BAD_DURATIONS


class Visibility:
    @rule("EXT-1", "CAP-1")
    @needs(VisibilityExtender)
    def test_ext_1_the_default_lease_can_be_asked_for(self, trial: Trial) -> None:
        """Who keeps deliveries knows when to extend those that name no time of their own."""
        assert trial.offers(VisibilityExtender, trial.hasty).visibility_timeout == trial.lease

    @rule("EXT-1")
    @needs(VisibilityExtender)
    def test_ext_1_an_extended_delivery_outlives_its_first_lease(self, trial: Trial) -> None:
        """It is still owned when its first lease would have ended, and can be settled."""
        delivery = trial.deliver_one(queue=trial.hasty)
        trial.offers(VisibilityExtender, trial.hasty).extend_visibility(trial.long_lease, delivery)
        trial.let_pass(trial.lease)
        assert trial.visible() == []
        trial.hasty.ack(delivery)

    @rule("EXT-1")
    @needs(VisibilityExtender)
    def test_ext_1_an_extension_counts_from_now_and_adds_to_nothing(self, trial: Trial) -> None:
        """A shorter extension ends a longer lease sooner, and not before it is over."""
        trial.queue.push(Message(QUEUE, visibility_timeout=trial.long_lease))
        delivery = trial.receive_one()
        extended_at = trial.time()
        trial.offers(VisibilityExtender).extend_visibility(trial.lease, delivery)
        again, came_at = trial.wait_for_one()
        assert came_at - extended_at >= trial.lease
        assert again.attempt == 2

    @rule("EXT-1")
    @needs(VisibilityExtender)
    def test_ext_1_the_last_extension_counts(self, trial: Trial) -> None:
        """A delivery can be extended any number of times."""
        delivery = trial.deliver_one()
        extender = trial.offers(VisibilityExtender)
        for extension in (trial.long_lease, trial.lease, trial.long_lease):
            extender.extend_visibility(extension, delivery)
        trial.let_pass(trial.lease)
        assert trial.visible() == []
        extender.extend_visibility(trial.lease, delivery)
        trial.let_pass(trial.lease)
        assert trial.visible() == [b"0"]

    @rule("EXT-1", "SET-3")
    @needs(VisibilityExtender)
    def test_ext_1_an_extension_changes_nothing_but_the_deadline(self, trial: Trial) -> None:
        """Contents, attempt and the message's own visibility timeout stay as they are."""
        trial.queue.push(Message(QUEUE, b"0", visibility_timeout=trial.long_lease / 2))
        delivery = trial.receive_one()
        delivery.payload = b"changed"
        trial.offers(VisibilityExtender).extend_visibility(trial.lease, delivery)
        trial.let_pass(trial.lease)
        again = trial.receive_one()
        assert (again.payload, again.visibility_timeout) == (b"0", trial.long_lease / 2)

    @rule("EXT-2")
    @needs(VisibilityExtender)
    def test_ext_2_extending_a_stale_delivery_is_not_found(self, trial: Trial) -> None:
        """Settled, made up or of another object: nothing is extended."""
        acked, retried, dead = trial.deliver(3)
        trial.queue.ack(acked)
        trial.queue.retry(retried)
        trial.queue.dead_letter(dead)
        foreign = trial.receive_one(queue=trial.other)
        stale = [acked, retried, dead, foreign, Message(QUEUE, id=retried.id)]
        extender = trial.offers(VisibilityExtender)
        assert failed(extender.extend_visibility, trial.lease, *stale) == [
            (index, NotFound) for index in range(5)
        ]
        trial.other.ack(foreign)

    @rule("EXT-2")
    @needs(VisibilityExtender)
    @when(stale_settlement="strict")
    def test_ext_2_an_expired_delivery_cannot_be_extended(self, trial: Trial) -> None:
        """Neither when nobody popped the message again, nor when somebody did."""
        delivery = trial.deliver_one(queue=trial.hasty)
        trial.let_pass(trial.lease)
        extender = trial.offers(VisibilityExtender, trial.hasty)
        assert failed(extender.extend_visibility, trial.long_lease, delivery) == [(0, NotFound)]
        current = trial.receive_one()
        assert failed(extender.extend_visibility, trial.lease, delivery) == [(0, NotFound)]
        trial.let_pass(trial.lease)
        trial.queue.retry(current)
        assert trial.visible() == [b"0"]

    @rule("EXT-3")
    @needs(VisibilityExtender)
    @pytest.mark.parametrize("bad", [NOTHING, None, *BAD_DURATIONS], ids=repr)
    def test_ext_3_a_bad_extension_leaves_the_delivery_owned(
        self, trial: Trial, bad: object
    ) -> None:
        """InvalidArgument for the item, and its deadline stays."""
        delivery = trial.deliver_one()
        extender = trial.offers(VisibilityExtender)
        assert failed(extender.extend_visibility, bad, delivery) == [(0, InvalidArgument)]
        assert trial.visible() == []
        trial.queue.ack(delivery)

    @rule("EXT-3", "GUA-1")
    @needs(VisibilityExtender)
    def test_ext_3_an_extension_over_the_limit_is_refused(self, trial: Trial) -> None:
        """max_visibility counts from the pop, so a little later even its whole is too much."""
        delivery = trial.deliver_one()
        trial.advance(timedelta(milliseconds=2))
        extender = trial.offers(VisibilityExtender)
        limit = trial.guarantees.max_visibility
        for extension in (limit + timedelta(microseconds=1), limit):
            assert failed(extender.extend_visibility, extension, delivery) == [(0, InvalidArgument)]
        trial.queue.ack(delivery)

    @rule("EXT-1", "ERR-1", "ERR-2")
    @needs(VisibilityExtender)
    def test_ext_1_an_extension_is_a_batch_like_a_settlement(self, trial: Trial) -> None:
        """What is stale or foreign fails for itself, and the others are extended."""
        first, stale, second = trial.deliver(3, queue=trial.hasty)
        trial.hasty.ack(stale)
        extender = trial.offers(VisibilityExtender, trial.hasty)
        batch = [first, None, stale, second, first]
        assert failed(extender.extend_visibility, trial.long_lease, *batch) == [
            (1, InvalidArgument),
            (2, NotFound),
            (4, NotFound),
        ]
        trial.let_pass(trial.lease)
        assert trial.visible() == []
        trial.hasty.ack(first, second)
