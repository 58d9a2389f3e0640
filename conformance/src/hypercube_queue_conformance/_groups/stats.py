"""StatsProvider: counting messages."""

from __future__ import annotations

import pytest

from hypercube_queue import InvalidArgument, Message, QueueStats, StatsProvider
from hypercube_queue_conformance._marks import needs, rule
from hypercube_queue_conformance._trial import QUEUE, Trial
from hypercube_queue_conformance._values import BAD_NAMES, NAMES


class Stats:
    @rule("STA-1")
    @needs(StatsProvider)
    def test_sta_1_every_state_is_counted(self, trial: Trial) -> None:
        """Each message is in exactly one state, and both driver objects see the same."""
        deliveries = trial.deliver(6)
        trial.queue.dead_letter(*deliveries[:3])
        trial.queue.retry(deliveries[3])
        trial.push(4)
        trial.queue.push(*(Message(QUEUE, delay=trial.long_delay) for _ in range(2)))
        expected = QueueStats(QUEUE, ready=5, delayed=2, in_flight=2, dead=3)
        for queue in (trial.queue, trial.other):
            assert trial.offers(StatsProvider, queue).stats(QUEUE) == expected

    @rule("STA-1")
    @needs(StatsProvider)
    def test_sta_1_an_expired_lease_and_a_due_delay_count_as_ready(self, trial: Trial) -> None:
        """Also when nobody has popped since."""
        trial.push(2)
        trial.receive(2, queue=trial.hasty)
        trial.queue.push(Message(QUEUE, delay=trial.delay))
        stats = trial.offers(StatsProvider)
        trial.let_pass(max(trial.lease, trial.delay))
        assert stats.stats(QUEUE) == QueueStats(QUEUE, 3, 0, 0, 0)

    @rule("STA-1", "SET-3")
    @needs(StatsProvider)
    def test_sta_1_a_message_retried_with_a_delay_counts_as_delayed(self, trial: Trial) -> None:
        """It is in flight no more, and not ready yet."""
        delivery = trial.deliver_one()
        delivery.delay = trial.long_delay
        trial.queue.retry(delivery)
        assert trial.offers(StatsProvider).stats(QUEUE) == QueueStats(QUEUE, 0, 1, 0, 0)

    @rule("STA-2")
    @needs(StatsProvider)
    def test_sta_2_an_unknown_queue_has_zeros(self, trial: Trial) -> None:
        """Asking for a queue does not make it one."""
        stats = trial.offers(StatsProvider)
        assert stats.stats("unknown") == QueueStats("unknown", 0, 0, 0, 0)
        assert stats.queues() == []

    @rule("STA-2")
    @needs(StatsProvider)
    @pytest.mark.parametrize("bad", [*BAD_NAMES, ""], ids=lambda value: ascii(value)[:24])
    def test_sta_2_a_bad_queue_name_is_refused(self, trial: Trial, bad: object) -> None:
        """InvalidArgument, as in pop."""
        with pytest.raises(InvalidArgument, match="queue_name"):
            trial.offers(StatsProvider).stats(bad)  # type: ignore[arg-type]

    @rule("STA-3")
    @needs(StatsProvider)
    def test_sta_3_queues_are_listed_sorted_while_they_retain_anything(self, trial: Trial) -> None:
        """In any state; a queue that was emptied or only asked for is not listed."""
        stats = trial.offers(StatsProvider)
        trial.queue.push(
            *(Message(name) for name in ("flight", "dead", "ready", "gone")),
            Message("delayed", delay=trial.long_delay),
        )
        trial.receive_one("flight")
        trial.queue.dead_letter(trial.receive_one("dead"))
        trial.queue.ack(trial.receive_one("gone"))
        trial.visible("asked")
        assert stats.queues() == ["dead", "delayed", "flight", "ready"]
        trial.queue.ack(trial.receive_one("ready"))
        assert trial.offers(StatsProvider, trial.other).queues() == ["dead", "delayed", "flight"]

    @rule("STA-3", "OWN-3")
    @needs(StatsProvider)
    def test_sta_3_names_come_back_as_they_are(self, trial: Trial) -> None:
        """Sorted as Python sorts them, whatever the backend's collation is."""
        accepted = sorted(name for name in NAMES if trial.guarantees.accepts_queue_name(name))
        trial.queue.push(*(Message(name) for name in accepted))
        assert trial.offers(StatsProvider).queues() == accepted
        for name in accepted:
            assert trial.offers(StatsProvider).stats(name) == QueueStats(name, 1, 0, 0, 0)
