"""Redriver: bringing dead messages back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from hypercube_queue import DeadLetterStore, InvalidArgument, Message, Redriver, capability
from hypercube_queue_conformance._marks import needs, rule, unless, when
from hypercube_queue_conformance._trial import NOTHING, OTHER_QUEUE, QUEUE, Trial
from hypercube_queue_conformance._values import BAD_NAMES


class Redrive:
    @rule("RED-1", "RED-4")
    @needs(Redriver)
    def test_red_1_up_to_so_many_dead_messages_become_ready(self, trial: Trial) -> None:
        """No more than asked for, no more than there are, and each once."""
        trial.queue.dead_letter(*trial.deliver(5))
        redriver = trial.offers(Redriver)
        assert redriver.redrive(QUEUE, 2) == 2
        first = trial.receive(2)
        assert trial.visible() == []
        assert redriver.redrive(QUEUE, 100) == 3
        received = first + trial.receive(3)
        assert sorted(each.payload for each in received) == [b"%d" % n for n in range(5)]
        assert redriver.redrive(QUEUE, 100) == 0

    @rule("RED-1")
    @needs(Redriver)
    @when(ordered_redrive=True)
    def test_red_1_the_oldest_death_is_redriven_first(self, trial: Trial) -> None:
        """In order of death, which need not be the order of the pushes."""
        zero, one, two, three = trial.deliver(4)
        for delivery in (two, zero, three, one):
            trial.queue.dead_letter(delivery)
        order = []
        for _ in range(4):
            assert trial.offers(Redriver).redrive(QUEUE, 1) == 1
            order.append(trial.receive_one().payload)
        assert order == [b"2", b"0", b"3", b"1"]

    @rule("RED-1")
    @needs(Redriver)
    @when(ordered_redrive=True)
    def test_red_1_dying_again_is_a_new_death(self, trial: Trial) -> None:
        """A message that died twice stands where its last death puts it."""
        first, second = trial.deliver(2)
        trial.queue.dead_letter(first)
        trial.queue.dead_letter(second)
        redriver = trial.offers(Redriver)
        assert redriver.redrive(QUEUE, 1) == 1
        trial.queue.dead_letter(trial.receive_one())
        assert redriver.redrive(QUEUE, 1) == 1
        assert trial.receive_one().payload == second.payload

    @rule("RED-1")
    @needs(Redriver)
    def test_red_1_only_the_dead_of_the_queue_are_redriven(self, trial: Trial) -> None:
        """Other queues, and messages in other states, stay as they are."""
        trial.push(1)
        held = trial.receive_one()
        trial.queue.push(Message(QUEUE, b"delayed", delay=trial.long_delay))
        trial.push(1, OTHER_QUEUE)
        trial.queue.dead_letter(trial.receive_one(OTHER_QUEUE))
        assert trial.offers(Redriver).redrive(QUEUE, 10) == 0
        assert trial.visible() == []
        assert trial.visible(OTHER_QUEUE) == []
        trial.queue.ack(held)

    @rule("RED-2")
    @needs(Redriver)
    def test_red_2_identity_routing_and_contents_stay(self, trial: Trial) -> None:
        """Only the attempt is another one."""
        pushed = Message(
            QUEUE,
            b"\x00payload",
            "kind",
            "space",
            "id ",
            b"extra\xff",
            visibility_timeout=trial.long_lease,
        )
        trial.queue.push(pushed)
        trial.queue.dead_letter(trial.receive_one())
        trial.offers(Redriver).redrive(QUEUE, 1)
        assert replace(trial.receive_one(), attempt=0) == pushed

    @rule("RED-2", "PUSH-4")
    @needs(Redriver)
    @unless(unique_ids="none")
    def test_red_2_a_redriven_message_is_still_the_only_one_of_its_id(self, trial: Trial) -> None:
        """Once it is acknowledged the id is free, and not before."""
        trial.queue.push(Message(QUEUE, b"0", id="same"))
        trial.queue.dead_letter(trial.receive_one())
        trial.offers(Redriver).redrive(QUEUE, 1)
        trial.queue.ack(trial.receive_one())
        trial.queue.push(Message(QUEUE, b"1", id="same"))
        assert trial.visible() == [b"1"]

    @rule("RED-3")
    @needs(Redriver)
    def test_red_3_a_redriven_message_starts_at_attempt_one(self, trial: Trial) -> None:
        """However often it was delivered before it died."""
        delivery = trial.deliver_one()
        for _ in range(3):
            trial.queue.retry(delivery)
            delivery = trial.receive_one()
        trial.queue.dead_letter(delivery)
        trial.offers(Redriver).redrive(QUEUE, 1)
        again = trial.receive_one()
        assert again.attempt == 1
        trial.queue.retry(again)
        assert trial.receive_one().attempt == 2

    @rule("RED-4")
    @needs(Redriver)
    def test_red_4_an_unknown_queue_has_nothing_to_redrive(self, trial: Trial) -> None:
        """The number returned is zero."""
        assert trial.offers(Redriver).redrive("unknown", 10) == 0

    @rule("RED-4")
    @needs(Redriver)
    def test_red_4_concurrent_redrives_count_each_message_once(self, trial: Trial) -> None:
        """The numbers returned add up to what became ready."""
        trial.queue.dead_letter(*trial.deliver(60))
        calls = [
            partial(trial.offers(Redriver, queue).redrive, QUEUE, 20)
            for queue in (trial.queue, trial.other) * 2
        ]
        assert sum(trial.start_together(*calls)) == 60
        assert len({each.id for each in trial.receive(60)}) == 60
        assert trial.queue.pop(QUEUE, wait=NOTHING) == []

    @rule("RED-5")
    @needs(Redriver)
    @pytest.mark.parametrize("bad", [0, -1, True, 1.0, "1", None], ids=repr)
    def test_red_5_a_bad_count_is_refused(self, trial: Trial, bad: object) -> None:
        """InvalidArgument, and nothing moves."""
        trial.queue.dead_letter(trial.deliver_one())
        with pytest.raises(InvalidArgument, match="count"):
            trial.offers(Redriver).redrive(QUEUE, bad)  # type: ignore[arg-type]
        assert trial.visible() == []

    @rule("RED-5")
    @needs(Redriver)
    @pytest.mark.parametrize("bad", [*BAD_NAMES, ""], ids=lambda value: ascii(value)[:24])
    def test_red_5_a_bad_queue_name_is_refused(self, trial: Trial, bad: object) -> None:
        """InvalidArgument, as in pop."""
        with pytest.raises(InvalidArgument, match="queue_name"):
            trial.offers(Redriver).redrive(bad, 1)  # type: ignore[arg-type]

    @rule("RED-6", "POP-8")
    @needs(Redriver, "insert_unreadable")
    def test_red_6_unreadable_messages_are_passed_over_and_not_counted(self, trial: Trial) -> None:
        """They stay among the dead, whoever dies after them."""
        trial.harness.insert_unreadable(QUEUE)
        assert trial.visible() == []
        trial.queue.dead_letter(trial.deliver_one())
        assert trial.offers(Redriver).redrive(QUEUE, 10) == 1
        assert trial.visible() == [b"0"]
        if capability(trial.queue, DeadLetterStore):
            letters = trial.offers(DeadLetterStore).dead_letters(QUEUE, 10)
            assert [letter.message for letter in letters] == [None]
