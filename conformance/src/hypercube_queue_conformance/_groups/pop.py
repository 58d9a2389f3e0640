"""Taking deliveries, and waiting for them."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from hypercube_queue import (
    MAX_POP_BYTES,
    DeadLetterStore,
    InvalidArgument,
    Message,
    Redriver,
    Releaser,
    StatsProvider,
)
from hypercube_queue_conformance._marks import needs, rule, when
from hypercube_queue_conformance._processes import processor_share
from hypercube_queue_conformance._trial import NOTHING, OTHER_QUEUE, QUEUE, Trial
from hypercube_queue_conformance._values import BAD_NAMES

#: The promise of POP-7, and room for a machine that is busy with other things.
_PROMPT_SECONDS = 1.0 + 1.0
#: A pop that looks at every message of a backlog is slower than this by far; one that does
#: not is noisy, but not by so much.
_SCALING_ALLOWANCE = 8.0


class Pop:
    @rule("POP-1")
    def test_pop_1_all_that_is_ready_comes_up_to_the_limit(self, trial: Trial) -> None:
        """A pop never returns more than asked for, and all messages come once."""
        trial.push(7)
        first = trial.queue.pop(QUEUE, 5, wait=trial.patience)
        assert 1 <= len(first) <= 5
        rest = trial.receive(7 - len(first))
        assert sorted(each.payload for each in first + rest) == [b"%d" % n for n in range(7)]
        assert trial.visible() == []

    @rule("POP-1")
    @when(full_batches=True)
    def test_pop_1_one_pop_takes_all_that_is_ready(self, trial: Trial) -> None:
        """Where batches are full, a pop returns everything visible up to its limit."""
        trial.push(25)
        assert len(trial.queue.pop(QUEUE, 20, wait=NOTHING)) == 20
        assert len(trial.queue.pop(QUEUE, 20, wait=NOTHING)) == 5

    @rule("POP-1")
    def test_pop_1_one_is_the_limit_by_default(self, trial: Trial) -> None:
        """Without a limit, a pop returns one delivery."""
        trial.push(2)
        assert len(trial.queue.pop(QUEUE, wait=trial.patience)) == 1

    @rule("POP-1")
    def test_pop_1_a_pop_waits_for_its_time_and_returns_nothing(self, trial: Trial) -> None:
        """An empty queue gives an empty list once the wait is over, and not before."""
        wait = timedelta(milliseconds=200) * trial.harness.pace
        begun = time.monotonic()
        assert trial.queue.pop(QUEUE, wait=wait) == []
        assert time.monotonic() - begun >= wait.total_seconds() * 0.98

    @rule("POP-1")
    def test_pop_1_without_a_wait_the_poll_timeout_counts(self, trial: Trial) -> None:
        """wait=None waits for the driver object's poll_timeout."""
        wait = timedelta(milliseconds=200) * trial.harness.pace
        queue = trial.open(poll_timeout=wait)
        begun = time.monotonic()
        assert queue.pop(QUEUE) == []
        assert time.monotonic() - begun >= wait.total_seconds() * 0.98

    @rule("POP-1")
    def test_pop_1_zero_checks_once(self, trial: Trial) -> None:
        """A pop with no time to wait returns what is there, or nothing."""
        assert trial.queue.pop(QUEUE, wait=NOTHING) == []
        trial.push()
        assert len(trial.receive()) == 1

    @rule("POP-1")
    @pytest.mark.parametrize("bad", [0, -1, 10_001, True, 1.0, "1", None], ids=repr)
    def test_pop_1_a_bad_limit_is_refused(self, trial: Trial, bad: object) -> None:
        """max_messages is a whole number from 1 to 10,000."""
        trial.push()
        with pytest.raises(InvalidArgument, match="max_messages"):
            trial.queue.pop(QUEUE, bad, wait=NOTHING)  # type: ignore[arg-type]
        assert trial.visible() == [b"0"]

    @rule("POP-1")
    @pytest.mark.parametrize("bad", [timedelta(microseconds=-1), 1, 0.5, "1"], ids=repr)
    def test_pop_1_a_bad_wait_is_refused(self, trial: Trial, bad: object) -> None:
        """Wait is a timedelta that is not negative, or None."""
        trial.push()
        with pytest.raises(InvalidArgument, match="wait"):
            trial.queue.pop(QUEUE, wait=bad)  # type: ignore[arg-type]
        assert trial.visible() == [b"0"]

    @rule("POP-1")
    @pytest.mark.parametrize("bad", [*BAD_NAMES, ""], ids=lambda value: ascii(value)[:24])
    def test_pop_1_a_bad_queue_name_is_refused(self, trial: Trial, bad: object) -> None:
        """queue_name is a name, and not empty."""
        with pytest.raises(InvalidArgument, match="queue_name"):
            trial.queue.pop(bad, wait=NOTHING)  # type: ignore[arg-type]

    @rule("POP-1")
    def test_pop_1_the_greatest_limit_is_accepted(self, trial: Trial) -> None:
        """10,000 deliveries may be asked for at once."""
        trial.push(3)
        received = trial.queue.pop(QUEUE, 10_000, wait=trial.patience)
        assert 1 <= len(received) <= 3

    @rule("POP-1")
    def test_pop_1_a_queue_gives_its_own_messages_only(self, trial: Trial) -> None:
        """Messages of one queue are not seen in another."""
        trial.push(1, OTHER_QUEUE)
        assert trial.visible(QUEUE) == []
        assert trial.visible(OTHER_QUEUE) == [b"0"]

    @rule("POP-2")
    def test_pop_2_the_attempt_counts_hand_outs(self, trial: Trial) -> None:
        """1 on the first delivery, and one more each time the message is delivered again."""
        delivery = trial.deliver_one()
        attempts = [delivery.attempt]
        for _ in range(4):
            trial.queue.retry(delivery)
            delivery = trial.receive_one()
            attempts.append(delivery.attempt)
        if trial.guarantees.exact_attempts:
            assert attempts == [1, 2, 3, 4, 5]
        else:
            assert attempts == sorted(attempts)
            assert attempts[0] >= 1

    @rule("POP-2")
    @when(leases=True, exact_attempts=True)
    def test_pop_2_a_delivery_that_was_lost_counts(self, trial: Trial) -> None:
        """A hand-out whose lease ended counts, whether or not anyone did anything with it."""
        trial.deliver_one(queue=trial.hasty)
        trial.let_pass(trial.lease)
        assert trial.receive_one(queue=trial.hasty).attempt == 2
        trial.let_pass(trial.lease)
        assert trial.receive_one().attempt == 3

    @rule("POP-2")
    @when(exact_attempts=True)
    def test_pop_2_each_message_has_a_count_of_its_own(self, trial: Trial) -> None:
        """The deliveries of one message do not count for another."""
        first, second = trial.deliver(2)
        trial.queue.retry(first)
        trial.queue.ack(second)
        trial.queue.push(Message(QUEUE, b"new"))
        received = {each.id: each.attempt for each in trial.receive(2)}
        assert sorted(received.values()) == [1, 2]
        assert received[first.id] == 2

    @rule("POP-3")
    def test_pop_3_the_delay_of_a_delivery_is_zero(self, trial: Trial) -> None:
        """After a delayed push, and after a delayed retry."""
        trial.queue.push(Message(QUEUE, delay=trial.delay))
        trial.let_pass(trial.delay)
        delivery = trial.receive_one()
        assert delivery.delay == NOTHING
        delivery.delay = trial.delay
        trial.queue.retry(delivery)
        trial.let_pass(trial.delay)
        assert trial.receive_one().delay == NOTHING

    @rule("POP-4")
    def test_pop_4_each_delivery_has_driver_data_of_its_own(self, trial: Trial) -> None:
        """driver_data tells two deliveries apart, also of one message."""
        first, second = trial.deliver(2)
        trial.queue.retry(first)
        again = trial.receive_one()
        tokens = [first.driver_data, second.driver_data, again.driver_data]
        assert None not in tokens
        assert len({id(token) for token in tokens}) == 3

    @rule("POP-7")
    def test_pop_7_a_waiting_pop_notices_a_push(self, trial: Trial) -> None:
        """A push through the same object ends the wait."""
        popping = trial.start_pop()
        begun = time.monotonic()
        trial.push()
        _came_promptly(trial, trial.result(popping), begun)

    @rule("POP-7")
    def test_pop_7_a_waiting_pop_notices_a_push_of_another_process(self, trial: Trial) -> None:
        """A push through another driver object ends the wait."""
        popping = trial.start_pop(queue=trial.other)
        begun = time.monotonic()
        trial.push()
        _came_promptly(trial, trial.result(popping), begun)

    @rule("POP-7")
    def test_pop_7_a_waiting_pop_notices_a_due_delay(self, trial: Trial) -> None:
        """Nobody has to come by for a delayed message to be delivered."""
        trial.queue.push(Message(QUEUE, b"0", delay=trial.delay))
        popping = trial.start_pop()
        trial.let_pass(trial.delay)
        _came_promptly(trial, trial.result(popping), time.monotonic())

    @rule("POP-7")
    def test_pop_7_a_waiting_pop_notices_a_sooner_delay(self, trial: Trial) -> None:
        """A message pushed during the wait, due sooner than all others, is not overslept."""
        trial.queue.push(Message(QUEUE, b"later", delay=trial.long_delay))
        popping = trial.start_pop()
        trial.queue.push(Message(QUEUE, b"0", delay=trial.delay))
        trial.let_pass(trial.delay)
        _came_promptly(trial, trial.result(popping), time.monotonic())

    @rule("POP-7", "POP-6")
    @when(leases=True)
    def test_pop_7_a_waiting_pop_notices_an_expired_lease(self, trial: Trial) -> None:
        """A message whose worker died comes back to whoever waits."""
        trial.deliver_one(queue=trial.hasty)
        popping = trial.start_pop()
        trial.let_pass(trial.lease)
        _came_promptly(trial, trial.result(popping), time.monotonic())

    @rule("POP-7")
    @needs(Redriver)
    def test_pop_7_a_waiting_pop_notices_a_redrive(self, trial: Trial) -> None:
        """A redriven message is delivered to whoever waits."""
        trial.queue.dead_letter(trial.deliver_one())
        popping = trial.start_pop()
        begun = time.monotonic()
        trial.offers(Redriver, trial.other).redrive(QUEUE, 1)
        _came_promptly(trial, trial.result(popping), begun)

    @rule("POP-7", "DLS-3")
    @needs(DeadLetterStore)
    def test_pop_7_a_waiting_pop_notices_a_redrive_by_id(self, trial: Trial) -> None:
        """A message redriven by its id is delivered to whoever waits."""
        delivery = trial.deliver_one()
        trial.queue.dead_letter(delivery)
        popping = trial.start_pop()
        begun = time.monotonic()
        trial.offers(DeadLetterStore).redrive_ids(QUEUE, delivery.id)
        _came_promptly(trial, trial.result(popping), begun)

    @rule("POP-7", "SET-3")
    def test_pop_7_a_waiting_pop_notices_a_retry(self, trial: Trial) -> None:
        """A message given back is delivered to whoever waits."""
        delivery = trial.deliver_one()
        popping = trial.start_pop(queue=trial.other)
        begun = time.monotonic()
        trial.queue.retry(delivery)
        _came_promptly(trial, trial.result(popping), begun)

    @rule("POP-7", "REL-1")
    @needs(Releaser)
    def test_pop_7_a_waiting_pop_notices_a_release(self, trial: Trial) -> None:
        """A released message is delivered to whoever waits."""
        delivery = trial.deliver_one()
        popping = trial.start_pop(queue=trial.other)
        begun = time.monotonic()
        trial.offers(Releaser).release(delivery)
        _came_promptly(trial, trial.result(popping), begun)

    @rule("POP-7")
    def test_pop_7_as_many_waiters_wake_as_there_are_messages(self, trial: Trial) -> None:
        """A batch pushed to several waiting pops reaches all of them."""
        queues = [trial.queue, trial.other, trial.queue, trial.other]
        popping = [trial.start_pop(queue=queue) for queue in queues]
        begun = time.monotonic()
        trial.push(4)
        received = [each for future in popping for each in trial.result(future)]
        assert sorted(each.payload for each in received) == [b"0", b"1", b"2", b"3"]
        _assert_prompt(trial, begun)

    @rule("POP-7")
    def test_pop_7_a_wake_up_is_passed_on(self, trial: Trial) -> None:
        """Messages pushed one by one reach several waiters, whoever is woken first."""
        popping = [trial.start_pop() for _ in range(3)]
        begun = time.monotonic()
        for number in range(3):
            trial.queue.push(Message(QUEUE, b"%d" % number))
        received = [each for future in popping for each in trial.result(future)]
        assert sorted(each.payload for each in received) == [b"0", b"1", b"2"]
        _assert_prompt(trial, begun)

    @rule("POP-7")
    def test_pop_7_an_idle_pop_costs_next_to_nothing(self, trial: Trial) -> None:
        """Waiting takes no processor time to speak of."""
        trial.visible()
        wait = timedelta(milliseconds=500)
        spent: list[float] = []
        # What else the process does meanwhile counts as well, so the cheapest of three waits does.
        for _ in range(3):
            allowed = 0.3 * processor_share() * wait.total_seconds()
            before = time.process_time()
            assert trial.queue.pop(QUEUE, wait=wait) == []
            spent.append(time.process_time() - before)
            if spent[-1] < allowed:
                return
        pytest.fail(f"three pops that waited {wait} took {spent} s of processor time")

    @rule("POP-8")
    @needs("insert_unreadable")
    def test_pop_8_what_cannot_be_read_is_not_in_the_way(
        self, trial: Trial, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Readable messages come, and the unreadable one is reported to the log once."""
        trial.push(1)
        trial.harness.insert_unreadable(QUEUE)
        trial.queue.push(Message(QUEUE, b"1"))
        with caplog.at_level("WARNING"):
            assert sorted(each.payload for each in trial.receive(2)) == [b"0", b"1"]
            for _ in range(3):
                assert trial.visible() == []
        assert len(caplog.records) == 1

    @rule("POP-8")
    @needs("insert_unreadable", DeadLetterStore)
    def test_pop_8_what_cannot_be_read_is_set_aside_as_it_is(self, trial: Trial) -> None:
        """It is among the dead letters with its bytes and the reason."""
        raw = trial.harness.insert_unreadable(QUEUE)
        assert trial.visible() == []
        store = trial.offers(DeadLetterStore)
        [letter] = store.dead_letters(QUEUE, 10)
        assert letter.message is None
        assert letter.raw == raw
        assert letter.reason != ""

    @rule("POP-8", "STA-1")
    @needs("insert_unreadable", StatsProvider)
    def test_pop_8_what_was_set_aside_counts_as_dead(self, trial: Trial) -> None:
        """Nothing is dropped: what was set aside is counted."""
        trial.harness.insert_unreadable(QUEUE)
        assert trial.visible() == []
        stats = trial.offers(StatsProvider).stats(QUEUE)
        assert (stats.ready, stats.in_flight, stats.dead) == (0, 0, 1)

    @rule("POP-9")
    @pytest.mark.parametrize("state", ["ready", "delayed", "in flight", "dead"])
    def test_pop_9_a_backlog_does_not_slow_a_pop_down(self, trial: Trial, state: str) -> None:
        """A pop does not look at every message that is retained, whatever their state."""
        few = _fastest_round(trial, "few", 100, state)
        many = _fastest_round(trial, "many", trial.harness.backlog, state)
        assert many <= few * _SCALING_ALLOWANCE

    @rule("POP-10")
    @when(ordering="fifo")
    def test_pop_10_a_single_consumer_sees_push_order(self, trial: Trial) -> None:
        """Across batches and within them, whatever the number taken at once."""
        for start in range(0, 60, 15):
            trial.queue.push(*(Message(QUEUE, b"%d" % n) for n in range(start, start + 15)))
        received = []
        for limit in (1, 7, 2, 50):
            received += trial.queue.pop(QUEUE, limit, wait=trial.patience)
        assert [int(each.payload) for each in received] == list(range(60))

    @rule("POP-11")
    @when(bounded_pops=True)
    def test_pop_11_large_messages_come_a_few_at_a_time(self, trial: Trial) -> None:
        """A pop stops with the message that reaches the bound; the rest is ready and in order."""
        limit = trial.harness.guarantees.max_message_bytes
        # Not on the edge, since a driver may count what it stores beside the contents.
        size = min(MAX_POP_BYTES // 4 + 10_000, limit or MAX_POP_BYTES)
        fitting = -(-MAX_POP_BYTES // size)
        for number in range(fitting + 2):
            trial.queue.push(Message(QUEUE, b"%03d" % number + bytes(size - 3)))
        first = trial.queue.pop(QUEUE, fitting + 2, wait=trial.patience)
        assert 1 <= len(first) <= fitting
        if trial.harness.guarantees.full_batches:
            assert len(first) == fitting
        rest = trial.receive(fitting + 2 - len(first))
        received = [int(each.payload[:3]) for each in first + rest]
        assert sorted(received) == list(range(fitting + 2))
        if trial.harness.guarantees.ordering == "fifo":
            assert received == sorted(received)
        if trial.harness.guarantees.exact_attempts:
            assert {each.attempt for each in first + rest} == {1}

    @rule("POP-10")
    def test_pop_10_nothing_is_passed_over_for_ever(self, trial: Trial) -> None:
        """Old messages come while new ones keep arriving."""
        trial.queue.push(Message(QUEUE, b"old"))
        seen = []
        for _ in range(50):
            trial.queue.push(Message(QUEUE, b"new"))
            delivery = trial.receive_one()
            seen.append(delivery.payload)
            trial.queue.ack(delivery)
        assert b"old" in seen


def _came_promptly(trial: Trial, received: list[Message], begun: float) -> None:
    assert [each.payload for each in received] == [b"0"]
    _assert_prompt(trial, begun)


def _assert_prompt(trial: Trial, begun: float) -> None:
    assert time.monotonic() - begun <= _PROMPT_SECONDS * trial.harness.pace


def _fastest_round(trial: Trial, queue_name: str, backlog: int, state: str) -> float:
    """Seconds of the fastest of many push, pop and ack rounds beside a backlog."""
    delay = trial.long_delay if state == "delayed" else NOTHING
    batch = 1000
    for start in range(0, backlog, batch):
        count = min(batch, backlog - start)
        trial.queue.push(
            *(
                Message(queue_name, delay=delay, visibility_timeout=trial.long_lease)
                for _ in range(count)
            )
        )
        if state in ("in flight", "dead"):
            deliveries = trial.receive(count, queue_name)
            if state == "dead":
                trial.queue.dead_letter(*deliveries)
    rounds = []
    for _ in range(20):
        trial.queue.push(Message(queue_name))
        begun = time.perf_counter()
        [delivery] = trial.queue.pop(queue_name, wait=trial.patience)
        rounds.append(time.perf_counter() - begun)
        trial.queue.ack(delivery)
    return min(rounds)
