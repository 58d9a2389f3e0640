"""Owning a delivery for a time, and losing it."""

from __future__ import annotations

from hypercube_queue import Message
from hypercube_queue_conformance._marks import rule, when
from hypercube_queue_conformance._trial import NOTHING, QUEUE, Trial


class Leases:
    @rule("POP-5")
    def test_pop_5_a_delivered_message_is_not_delivered_to_another(self, trial: Trial) -> None:
        """Neither the same driver object nor another one gets it while the lease is alive."""
        trial.deliver(3)
        for queue in (trial.queue, trial.other):
            assert queue.pop(QUEUE, 10, wait=NOTHING) == []

    @rule("POP-5")
    def test_pop_5_one_pop_never_returns_a_message_twice(self, trial: Trial) -> None:
        """The deliveries of a pop are deliveries of different messages."""
        trial.push(50)
        received = trial.receive(50)
        assert len({each.id for each in received}) == 50

    @rule("POP-6")
    @when(leases=True)
    def test_pop_6_a_message_comes_back_when_its_lease_ends(self, trial: Trial) -> None:
        """Not before the visibility timeout of the message, and with the next attempt number."""
        pushed = Message(QUEUE, b"payload", extra=b"extra", visibility_timeout=trial.lease)
        trial.queue.push(pushed)
        trial.visible("unrelated")  # connected and warm, so that the clock starts at the pop
        popped_at = trial.time()
        first = trial.receive_one()
        again, came_at = trial.wait_for_one()
        assert came_at - popped_at >= trial.lease
        assert (again.id, again.payload, again.extra) == (first.id, b"payload", b"extra")
        if trial.guarantees.exact_attempts:
            assert (first.attempt, again.attempt) == (1, 2)

    @rule("POP-6")
    @when(leases=True)
    def test_pop_6_without_a_time_of_its_own_the_driver_s_default_counts(
        self, trial: Trial
    ) -> None:
        """The driver object's visibility_timeout ends the lease of a message that names none."""
        popped_at = trial.time()
        trial.deliver_one(queue=trial.hasty)
        _, came_at = trial.wait_for_one()
        assert came_at - popped_at >= trial.lease

    @rule("POP-6")
    @when(leases=True)
    def test_pop_6_the_message_s_own_time_wins_over_the_default(self, trial: Trial) -> None:
        """A long visibility timeout of the message outlives the driver object's short one."""
        trial.queue.push(
            Message(QUEUE, b"long", visibility_timeout=trial.long_lease),
            Message(QUEUE, b"short", visibility_timeout=trial.lease),
        )
        trial.receive(2, queue=trial.hasty)
        trial.let_pass(trial.lease)
        assert trial.receive_one().payload == b"short"
        assert trial.visible() == []

    @rule("POP-6")
    @when(leases=True)
    def test_pop_6_each_lease_ends_for_itself(self, trial: Trial) -> None:
        """What was settled stays settled when the leases of its batch end."""
        first, second, _third = trial.deliver(3, queue=trial.hasty)
        trial.hasty.ack(first)
        trial.hasty.dead_letter(second)
        trial.let_pass(trial.lease)
        assert trial.receive_one().payload == b"2"
        assert trial.visible() == []

    @rule("POP-6")
    @when(leases=True)
    def test_pop_6_a_message_comes_back_however_often_it_is_lost(self, trial: Trial) -> None:
        """No number of lost deliveries makes a message disappear."""
        trial.push()
        for _ in range(3):
            trial.receive_one(queue=trial.hasty)
            trial.let_pass(trial.lease)
        assert trial.visible() == [b"0"]

    @rule("POP-6")
    @when(leases=False)
    def test_pop_6_without_leases_a_message_comes_back_when_its_connection_ends(
        self, trial: Trial
    ) -> None:
        """What a driver object had not settled when it was closed is delivered again."""
        holder = trial.open()
        first = trial.deliver_one(queue=holder)
        trial.queue.ack(*trial.deliver(1))
        holder.close()
        again = trial.receive_one()
        assert again.id == first.id
        if trial.guarantees.exact_attempts:
            assert again.attempt == 2

    @rule("POP-6", "GUA-1")
    @when(leases=False)
    def test_pop_6_without_leases_a_held_message_does_not_come_back_by_itself(
        self, trial: Trial
    ) -> None:
        """A driver that says it has no leases ends none."""
        trial.queue.push(Message(QUEUE, visibility_timeout=trial.lease))
        trial.receive_one()
        trial.let_pass(trial.lease)
        assert trial.visible() == []
