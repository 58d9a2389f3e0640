"""Who owns the bytes, and what a worker may change."""

from __future__ import annotations

import array
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hypercube_queue import InvalidArgument, Message
from hypercube_queue_conformance._marks import rule, when
from hypercube_queue_conformance._trial import NOTHING, QUEUE, Trial, failed
from hypercube_queue_conformance._values import (
    BAD_BYTES,
    BAD_DURATIONS,
    NAMES,
    PAYLOADS,
    TOO_LONG,
    contents,
    names,
    visibility_timeouts,
)


class Ownership:
    @rule("OWN-1")
    def test_own_1_what_happens_to_pushed_bytes_afterwards_changes_nothing(
        self, trial: Trial
    ) -> None:
        """Push copies bytearrays and memoryviews before it returns."""
        payload, extra, viewed = bytearray(b"payload"), bytearray(b"extra"), bytearray(b"viewed")
        first = Message(QUEUE, payload, id="first", extra=extra)  # type: ignore[arg-type]
        second = Message(QUEUE, memoryview(viewed), id="second")  # type: ignore[arg-type]
        trial.queue.push(first, second)
        payload[:] = extra[:] = b"changed"
        viewed[:] = b"change"  # of the same size, as long as it is looked at
        received = {each.id: each for each in trial.receive(2)}
        assert received["first"].payload == b"payload"
        assert received["first"].extra == b"extra"
        assert received["second"].payload == b"viewed"

    @rule("OWN-1")
    def test_own_1_any_bytes_like_object_is_taken_for_the_bytes_it_shows(
        self, trial: Trial
    ) -> None:
        """A memoryview stands for the bytes it shows, whatever its steps and item format."""
        numbers = array.array("I", [1, 2, 3])
        trial.queue.push(
            Message(QUEUE, memoryview(b"0123456789")[::3], id="steps"),  # type: ignore[arg-type]
            Message(QUEUE, memoryview(numbers), id="format"),  # type: ignore[arg-type]
            Message(QUEUE, bytearray(), id="empty", extra=memoryview(b"")),  # type: ignore[arg-type]
        )
        received = {each.id: each.payload for each in trial.receive(3)}
        assert received == {"steps": b"0369", "format": numbers.tobytes(), "empty": b""}

    @rule("OWN-1", "SET-3")
    def test_own_1_what_happens_to_retried_bytes_afterwards_changes_nothing(
        self, trial: Trial
    ) -> None:
        """Retry takes bytes-like objects, and copies them before it returns."""
        delivery = trial.deliver_one()
        payload, extra = bytearray(b"payload"), bytearray(b"extra")
        delivery.payload, delivery.extra = payload, extra  # type: ignore[assignment]
        trial.queue.retry(delivery)
        payload[:] = extra[:] = b"changed"
        again = trial.receive_one()
        assert (again.payload, again.extra) == (b"payload", b"extra")

    @rule("OWN-1")
    def test_own_1_a_message_can_be_used_again_after_its_push(self, trial: Trial) -> None:
        """Nothing that the caller does to a pushed Message reaches the stored one."""
        message = Message(QUEUE, b"first", "kind", "space", extra=b"extra")
        trial.queue.push(message)
        stored = replace(message)
        message.queue_name, message.id, message.payload = "elsewhere", "", b"second"
        message.job_name = message.namespace = "changed"
        received = trial.receive_one()
        assert replace(received, attempt=0) == stored

    @rule("OWN-2")
    def test_own_2_a_delivery_is_a_new_message_with_bytes_of_its_own(self, trial: Trial) -> None:
        """A delivery is never the pushed object, and its contents are bytes."""
        message = Message(QUEUE, bytearray(b"payload"), extra=memoryview(b"extra"))  # type: ignore[arg-type]
        trial.queue.push(message)
        received = trial.receive_one()
        assert received is not message
        assert type(received) is Message
        assert (type(received.payload), type(received.extra)) == (bytes, bytes)

    @rule("OWN-2")
    @when(leases=True)
    def test_own_2_a_delivery_shares_nothing_with_the_one_before(self, trial: Trial) -> None:
        """What a worker did to a delivery that it never settled is not seen by the next one."""
        trial.queue.push(Message(QUEUE, b"payload", "kind", extra=b"extra"))
        lost = trial.receive_one(queue=trial.hasty)
        lost.payload = lost.extra = b"changed"
        lost.job_name, lost.attempt, lost.delay = "changed", 99, trial.long_delay
        trial.let_pass(trial.lease)
        again = trial.receive_one()
        assert again is not lost
        assert (again.payload, again.extra, again.job_name) == (b"payload", b"extra", "kind")
        assert again.delay == NOTHING

    @rule("OWN-3")
    @pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
    def test_own_3_bytes_come_back_as_they_were(self, trial: Trial, payload: bytes) -> None:
        """Nothing on the way parses, decodes, strips or shortens payload or extra."""
        trial.queue.push(Message(QUEUE, payload, extra=payload))
        received = trial.receive_one()
        assert (received.payload, received.extra) == (payload, payload)

    @rule("OWN-3")
    def test_own_3_names_are_compared_byte_for_byte(self, trial: Trial) -> None:
        """Ids that a store might fold, pad or normalise are different ids, and come back."""
        trial.queue.push(*(Message(QUEUE, name.encode(), name, name, id=name) for name in NAMES))
        received = trial.receive(len(NAMES))
        assert sorted(each.id for each in received) == sorted(NAMES)
        for each in received:
            assert (each.payload.decode(), each.job_name, each.namespace) == (each.id,) * 3

    @rule("OWN-3")
    def test_own_3_queues_are_told_apart_byte_for_byte(self, trial: Trial) -> None:
        """Queue names that a store might fold, pad or normalise are different queues."""
        accepted = [name for name in NAMES if trial.guarantees.accepts_queue_name(name)]
        trial.queue.push(*(Message(name, name.encode(), id="same") for name in accepted))
        for name in accepted:
            received = trial.receive_one(name)
            assert (received.queue_name, received.payload) == (name, name.encode())
            assert trial.visible(name) == []

    @rule("OWN-3")
    def test_own_3_every_field_comes_back_exactly(self, trial: Trial) -> None:
        """Contents, names and visibility timeouts round-trip, to the byte and microsecond."""

        @settings(
            max_examples=40,
            phases=(Phase.generate, Phase.shrink),
            deadline=None,
            database=None,
            derandomize=True,
        )
        @given(
            message=st.builds(
                Message,
                queue_name=st.just(QUEUE),
                payload=contents,
                job_name=names,
                namespace=names,
                id=names,
                extra=contents,
                visibility_timeout=visibility_timeouts(trial.guarantees),
            )
        )
        def check(message: Message) -> None:
            trial.queue.push(message)
            received = trial.receive_one()
            trial.queue.ack(received)
            assert replace(received, attempt=0) == message

        check()

    @rule("OWN-4")
    def test_own_4_changes_to_other_fields_corrupt_nothing(self, trial: Trial) -> None:
        """The stored identity and routing win over what a worker wrote into the message."""
        pushed = Message(
            QUEUE, b"payload", "kind", "space", "id", visibility_timeout=trial.long_lease
        )
        trial.queue.push(pushed)
        delivery = trial.receive_one()
        _scramble(delivery)
        trial.queue.retry(delivery)
        again = trial.receive_one()
        assert replace(again, attempt=0) == pushed
        assert trial.visible("elsewhere") == []
        _scramble(again)
        trial.queue.ack(again)
        trial.queue.push(pushed)  # so its id is free, and no other one was touched
        last = trial.receive_one()
        _scramble(last)
        trial.queue.dead_letter(last)
        assert trial.visible("elsewhere") == []
        assert trial.visible() == []

    @rule("OWN-4")
    @pytest.mark.parametrize("bad", BAD_BYTES, ids=repr)
    @pytest.mark.parametrize("verb", ["retry", "dead_letter"])
    @pytest.mark.parametrize("field", ["payload", "extra"])
    def test_own_4_invalid_contents_leave_the_delivery_owned(
        self, trial: Trial, verb: str, field: str, bad: object
    ) -> None:
        """Contents that are no bytes are InvalidArgument, and the delivery can still be settled."""
        delivery = trial.deliver_one()
        kept = getattr(delivery, field)
        setattr(delivery, field, bad)
        assert failed(getattr(trial.queue, verb), delivery) == [(0, InvalidArgument)]
        setattr(delivery, field, kept)
        trial.queue.ack(delivery)

    @rule("OWN-4", "SET-3")
    @pytest.mark.parametrize("bad", [*BAD_DURATIONS, None, TOO_LONG], ids=repr)
    def test_own_4_an_invalid_delay_leaves_the_delivery_owned(
        self, trial: Trial, bad: object
    ) -> None:
        """A delay that is none, negative or too long is InvalidArgument, never clamped."""
        delivery = trial.deliver_one()
        delivery.delay = bad  # type: ignore[assignment]
        assert failed(trial.queue.retry, delivery) == [(0, InvalidArgument)]
        delivery.delay = NOTHING
        trial.queue.ack(delivery)

    @rule("OWN-4")
    def test_own_4_an_ack_does_not_look_at_what_the_worker_changed(self, trial: Trial) -> None:
        """An ack stores nothing, so contents that could not be stored are no matter."""
        delivery = trial.deliver_one()
        delivery.payload = delivery.extra = delivery.delay = None  # type: ignore[assignment]
        trial.queue.ack(delivery)
        assert trial.visible() == []


def _scramble(delivery: Message) -> None:
    delivery.queue_name = "elsewhere"
    delivery.id = delivery.job_name = delivery.namespace = "changed"
    delivery.visibility_timeout = timedelta(microseconds=1)
    delivery.attempt = 99
