"""Many messages in one call: what fails fails alone, and under its own index."""

from __future__ import annotations

import pytest

from hypercube_queue import AlreadyExists, BatchError, InvalidArgument, Message, NotFound
from hypercube_queue_conformance._marks import rule, unless
from hypercube_queue_conformance._trial import QUEUE, Trial, error_type, failed, failures
from hypercube_queue_conformance._values import Foreign

VERBS = ("ack", "retry", "dead_letter")
#: Past every number of items that a driver may send in one request, and at its edges.
_BIG = 1100
_CHOSEN = (0, 1, 9, 10, 99, 100, 127, 255, 256, 511, 512, 999, 1000, 1099)


class Batches:
    @rule("ERR-1")
    def test_err_1_a_failed_push_stops_no_valid_one(self, trial: Trial) -> None:
        """Every kind of failure in one batch, each for its item, and all others stored."""
        batch: list[object] = [
            Message(QUEUE, b"0"),
            None,
            Message(QUEUE, b"2", id="same"),
            Message("", b"3"),
            Message(QUEUE, b"4", id="same"),
            Foreign(),
            Message(QUEUE, b"6"),
        ]
        assert failed(trial.queue.push, *batch) == [
            (1, InvalidArgument),
            (3, InvalidArgument),
            (4, AlreadyExists),
            (5, InvalidArgument),
        ]
        assert trial.visible() == [b"0", b"2", b"6"]

    @rule("ERR-1")
    @pytest.mark.parametrize("verb", VERBS)
    def test_err_1_a_failed_settlement_stops_no_valid_one(self, trial: Trial, verb: str) -> None:
        """None, a foreign object, a stale delivery and one of another object, each for itself."""
        trial.push(5)
        first, second, stale = trial.receive(3)
        trial.queue.ack(stale)
        [foreign] = trial.receive(1, queue=trial.other)
        batch: list[object] = [None, first, stale, Foreign(), second, foreign]
        assert failed(getattr(trial.queue, verb), *batch) == [
            (0, InvalidArgument),
            (2, NotFound),
            (3, InvalidArgument),
            (5, NotFound),
        ]
        trial.other.ack(foreign)
        settled = [first.payload, second.payload] if verb == "retry" else []
        assert len(trial.visible()) == 1 + len(settled)

    @rule("ERR-1")
    @pytest.mark.parametrize("operation", ["push", *VERBS])
    def test_err_1_one_failed_item_is_a_batch_error_too(self, trial: Trial, operation: str) -> None:
        """A caller never has to distinguish a batch of one."""
        with pytest.raises(BatchError) as caught:
            getattr(trial.queue, operation)(None)
        assert len(caught.value.failed) == 1

    @rule("ERR-1")
    def test_err_1_a_batch_in_which_everything_fails_lists_everything(self, trial: Trial) -> None:
        """Nothing succeeded, and no failure hides another."""
        assert failed(trial.queue.push, *[None] * 30) == [(n, InvalidArgument) for n in range(30)]
        assert failed(trial.queue.ack, *[Message(QUEUE)] * 30) == [(n, NotFound) for n in range(30)]

    @rule("ERR-2")
    def test_err_2_the_index_of_a_failed_push_is_its_position(self, trial: Trial) -> None:
        """In a batch larger than one request, ascending, with the very object passed."""
        batch: list[object] = [Message(QUEUE, b"%d" % n) for n in range(_BIG)]
        for index in _CHOSEN:
            batch[index] = Message(QUEUE, None)  # type: ignore[arg-type]
        found = failures(trial.queue.push, *batch)
        assert [failure.index for failure in found] == list(_CHOSEN)
        assert all(failure.message is batch[failure.index] for failure in found)
        received = trial.receive(_BIG - len(_CHOSEN))
        assert {int(each.payload) for each in received} == set(range(_BIG)) - set(_CHOSEN)

    @rule("ERR-2", "PUSH-4")
    @unless(unique_ids="none")
    def test_err_2_the_index_of_an_existing_id_is_its_position(self, trial: Trial) -> None:
        """What only the backend can know has its index, too."""
        trial.queue.push(*(Message(QUEUE, b"old", id=str(n)) for n in _CHOSEN))
        batch = [Message(QUEUE, b"new", id=str(n)) for n in range(_BIG)]
        assert failed(trial.queue.push, *batch) == [(n, AlreadyExists) for n in _CHOSEN]
        payloads = [each.payload for each in trial.receive(_BIG)]
        assert payloads.count(b"old") == len(_CHOSEN)

    @rule("ERR-2", "SET-2")
    @pytest.mark.parametrize("verb", VERBS)
    def test_err_2_the_index_of_a_failed_settlement_is_its_position(
        self, trial: Trial, verb: str
    ) -> None:
        """Stale deliveries among a large batch are the ones that are reported."""
        deliveries = trial.deliver(_BIG)
        trial.queue.ack(*(deliveries[index] for index in _CHOSEN))
        found = failures(getattr(trial.queue, verb), *deliveries)
        assert [failure.index for failure in found] == list(_CHOSEN)
        assert {error_type(failure.error) for failure in found} == {NotFound}
        assert all(failure.message is deliveries[failure.index] for failure in found)
        if verb == "retry":
            assert len(trial.receive(_BIG - len(_CHOSEN))) == _BIG - len(_CHOSEN)
        assert trial.visible() == []

    @rule("ERR-2")
    def test_err_2_one_batch_may_settle_deliveries_of_several_queues(self, trial: Trial) -> None:
        """The index is the position among all, whatever their queues."""
        names = ["work", "other", "third"]
        trial.queue.push(*(Message(names[n % 3], b"%d" % n) for n in range(9)))
        deliveries = [each for name in names for each in trial.receive(3, name)]
        trial.queue.ack(deliveries[1], deliveries[4])
        assert failed(trial.queue.ack, *deliveries) == [(1, NotFound), (4, NotFound)]
        assert [trial.visible(name) for name in names] == [[], [], []]
