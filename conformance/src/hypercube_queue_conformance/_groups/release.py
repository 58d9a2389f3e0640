"""Releaser: giving deliveries back unused."""

from __future__ import annotations

from hypercube_queue import InvalidArgument, Message, NotFound, Releaser, StatsProvider
from hypercube_queue_conformance._marks import needs, rule, when
from hypercube_queue_conformance._trial import QUEUE, Trial, failed


class Release:
    @rule("REL-1", "POP-2")
    @needs(Releaser)
    def test_rel_1_a_released_delivery_did_not_count(self, trial: Trial) -> None:
        """The message is visible at once, and its next delivery has the same attempt number."""
        releaser = trial.offers(Releaser)
        delivery = trial.deliver_one()
        for _ in range(3):
            releaser.release(delivery)
            delivery = trial.receive_one()
            assert delivery.attempt == 1
        trial.queue.retry(delivery)
        delivery = trial.receive_one()
        releaser.release(delivery)
        assert trial.receive_one().attempt == 2

    @rule("REL-1")
    @needs(Releaser)
    def test_rel_1_nothing_is_stored(self, trial: Trial) -> None:
        """What the worker changed, the delay included, is forgotten."""
        trial.queue.push(Message(QUEUE, b"payload", extra=b"extra"))
        delivery = trial.receive_one()
        delivery.payload = delivery.extra = b"changed"
        delivery.delay = trial.long_delay
        trial.offers(Releaser).release(delivery)
        again = trial.receive_one()
        assert (again.payload, again.extra) == (b"payload", b"extra")

    @rule("REL-1", "OWN-4")
    @needs(Releaser)
    def test_rel_1_contents_are_not_looked_at(self, trial: Trial) -> None:
        """A release stores nothing, so contents that could not be stored are no matter."""
        delivery = trial.deliver_one()
        delivery.payload = delivery.delay = None  # type: ignore[assignment]
        trial.offers(Releaser).release(delivery)
        assert trial.visible() == [b"0"]

    @rule("REL-1", "POP-10")
    @needs(Releaser)
    @when(ordering="fifo")
    def test_rel_1_a_released_message_has_its_old_place(self, trial: Trial) -> None:
        """Before all that were behind it, in whatever order they are released."""
        trial.push(6)
        deliveries = trial.receive(4)
        releaser = trial.offers(Releaser)
        releaser.release(deliveries[2], deliveries[0])
        releaser.release(deliveries[3], deliveries[1])
        assert [int(each.payload) for each in trial.receive(6)] == [0, 1, 2, 3, 4, 5]

    @rule("REL-1")
    @needs(Releaser, StatsProvider)
    def test_rel_1_a_released_message_is_ready(self, trial: Trial) -> None:
        """It is in flight no more."""
        trial.offers(Releaser).release(*trial.deliver(3))
        stats = trial.offers(StatsProvider).stats(QUEUE)
        assert (stats.ready, stats.in_flight) == (3, 0)

    @rule("REL-1", "SET-2", "ERR-1")
    @needs(Releaser)
    def test_rel_1_a_release_is_a_batch_like_a_settlement(self, trial: Trial) -> None:
        """What is stale or foreign fails for itself, and the others are given back."""
        first, stale, second = trial.deliver(3)
        trial.queue.ack(stale)
        batch = [first, None, stale, second, first, Message(QUEUE)]
        assert failed(trial.offers(Releaser).release, *batch) == [
            (1, InvalidArgument),
            (2, NotFound),
            (4, NotFound),
            (5, NotFound),
        ]
        assert trial.visible() == [b"0", b"2"]

    @rule("REL-1", "SET-2")
    @needs(Releaser)
    def test_rel_1_a_stale_delivery_releases_nothing(self, trial: Trial) -> None:
        """Expired, settled, or of another object: the current delivery is left alone."""
        stale = trial.deliver_one(queue=trial.hasty)
        releaser = trial.offers(Releaser, trial.hasty)
        trial.let_pass(trial.lease)
        assert failed(releaser.release, stale) == [(0, NotFound)]
        current = trial.receive_one()
        assert failed(releaser.release, stale) == [(0, NotFound)]
        assert failed(releaser.release, current) == [(0, NotFound)]
        assert current.attempt == 2
        assert trial.visible() == []
        trial.queue.ack(current)
        assert failed(trial.offers(Releaser).release, current) == [(0, NotFound)]
        assert trial.visible() == []
