"""TransactionalPusher: messages that exist if and only if the caller commits."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from hypercube_queue import (
    AlreadyExists,
    BackendError,
    BatchError,
    InvalidArgument,
    Message,
    StatsProvider,
    TransactionalPusher,
)
from hypercube_queue_conformance._marks import needs, rule, when
from hypercube_queue_conformance._trial import NOTHING, QUEUE, Trial, failed


class _Abandoned(Exception):
    """Leaves a transaction without a commit."""


class Transactions:
    @rule("TXN-1")
    @needs(TransactionalPusher)
    def test_txn_1_messages_of_a_committed_transaction_exist(self, trial: Trial) -> None:
        """Every field of them, ids assigned as in push."""
        trial.visible()
        messages = [Message(QUEUE, b"0", "kind", extra=b"extra"), Message(QUEUE, b"1", id="mine")]
        with trial.harness.transaction() as connection:
            trial.offers(TransactionalPusher).push_within(connection, *messages)
        received = {each.id: each for each in trial.receive(2)}
        assert set(received) == {messages[0].id, "mine"}
        first = received[messages[0].id]
        assert (first.payload, first.job_name, first.extra) == (b"0", "kind", b"extra")
        assert first.attempt == 1

    @rule("TXN-1", "POP-10")
    @needs(TransactionalPusher)
    @when(ordering="fifo")
    def test_txn_1_messages_without_ids_keep_their_order(self, trial: Trial) -> None:
        """As if they had been pushed without a transaction."""
        trial.visible()
        messages = [Message(QUEUE, b"%d" % number) for number in range(20)]
        with trial.harness.transaction() as connection:
            trial.offers(TransactionalPusher).push_within(connection, *messages)
        popped = trial.queue.pop(QUEUE, 20, wait=trial.patience)
        assert [each.payload for each in popped] == [each.payload for each in messages]

    @rule("TXN-1")
    @needs(TransactionalPusher)
    def test_txn_1_messages_of_a_transaction_that_is_rolled_back_do_not_exist(
        self, trial: Trial
    ) -> None:
        """And their ids are free."""
        trial.visible()
        pusher = trial.offers(TransactionalPusher)

        def abandon() -> None:
            with trial.harness.transaction() as connection:
                pusher.push_within(connection, Message(QUEUE, b"lost", id="same"))
                raise _Abandoned

        with pytest.raises(_Abandoned):
            abandon()
        assert trial.visible() == []
        trial.queue.push(Message(QUEUE, b"kept", id="same"))
        assert trial.visible() == [b"kept"]

    @rule("TXN-1")
    @needs(TransactionalPusher, StatsProvider, "opener")
    def test_txn_1_messages_do_not_exist_before_the_commit(self, trial: Trial) -> None:
        """Nobody else counts them while the transaction is open."""
        trial.visible()
        stats = trial.offers(StatsProvider, trial.other)
        stats.stats(QUEUE)
        with trial.harness.transaction() as connection:
            trial.offers(TransactionalPusher).push_within(connection, Message(QUEUE))
            assert stats.stats(QUEUE).ready == 0
        assert stats.stats(QUEUE).ready == 1

    @rule("TXN-1", "POP-7")
    @needs(TransactionalPusher, "opener")
    def test_txn_1_a_waiting_pop_notices_the_commit(self, trial: Trial) -> None:
        """Promptly, as it would notice a push."""
        trial.visible()
        popping = trial.start_pop(queue=trial.other)
        with trial.harness.transaction() as connection:
            trial.offers(TransactionalPusher).push_within(connection, Message(QUEUE, b"0"))
        begun = time.monotonic()
        assert [each.payload for each in trial.result(popping)] == [b"0"]
        assert time.monotonic() - begun <= 2.0 * trial.harness.pace

    @rule("TXN-1")
    @needs(TransactionalPusher)
    def test_txn_1_what_is_no_connection_is_refused(self, trial: Trial) -> None:
        """InvalidArgument, before anything is stored."""
        pusher = trial.offers(TransactionalPusher)
        for nothing in (None, "connection", object(), trial.queue):
            with pytest.raises(InvalidArgument):
                pusher.push_within(nothing, Message(QUEUE))
        assert trial.visible() == []

    @rule("TXN-1")
    @needs(TransactionalPusher)
    def test_txn_1_a_transaction_of_another_database_is_refused(self, trial: Trial) -> None:
        """InvalidArgument for each message: committed there, nobody would ever receive them."""
        pusher = trial.offers(TransactionalPusher)
        messages = [Message(QUEUE), Message(QUEUE)]
        with trial.harness.foreign_transaction() as connection:
            assert failed(pusher.push_within, connection, *messages) == [
                (0, InvalidArgument),
                (1, InvalidArgument),
            ]
        assert trial.visible() == []

    @rule("TXN-1")
    @needs(TransactionalPusher)
    def test_txn_1_it_is_known_before_whether_a_transaction_can_be_joined(
        self, trial: Trial
    ) -> None:
        """`shares_database` says what `push_within` would take, and the connection stays usable."""
        trial.visible()
        pusher = trial.offers(TransactionalPusher)
        for nothing in (None, "connection", object(), trial.queue):
            assert pusher.shares_database(nothing) is False
        with trial.harness.foreign_transaction() as connection:
            assert pusher.shares_database(connection) is False
        with trial.harness.transaction() as connection:
            assert pusher.shares_database(connection) is True
            pusher.push_within(connection, Message(QUEUE, b"0"))
        assert trial.visible() == [b"0"]

    @rule("TXN-2")
    @needs(TransactionalPusher)
    def test_txn_2_an_existing_id_leaves_the_transaction_usable(self, trial: Trial) -> None:
        """The rest of the batch, and what is pushed afterwards, is committed."""
        trial.queue.push(Message(QUEUE, b"old", id="same"))
        pusher = trial.offers(TransactionalPusher)
        with trial.harness.transaction() as connection:
            batch = [
                Message(QUEUE, b"0"),
                Message(QUEUE, b"new", id="same"),
                None,
                Message(QUEUE, b"1"),
            ]
            assert failed(pusher.push_within, connection, *batch) == [
                (1, AlreadyExists),
                (2, InvalidArgument),
            ]
            pusher.push_within(connection, Message(QUEUE, b"2"))
        assert trial.visible() == [b"0", b"1", b"2", b"old"]

    @rule("TXN-2", "PUSH-4")
    @needs(TransactionalPusher)
    def test_txn_2_ids_of_the_same_transaction_count(self, trial: Trial) -> None:
        """An id pushed earlier in the transaction is AlreadyExists, committed or not."""
        trial.visible()
        pusher = trial.offers(TransactionalPusher)
        with trial.harness.transaction() as connection:
            pusher.push_within(connection, Message(QUEUE, b"first", id="same"))
            assert failed(pusher.push_within, connection, Message(QUEUE, id="same")) == [
                (0, AlreadyExists)
            ]
        assert trial.visible() == [b"first"]

    @rule("TXN-3")
    @needs(TransactionalPusher, "opener")
    def test_txn_3_transactions_in_each_other_s_way_are_the_callers_to_repeat(
        self, trial: Trial
    ) -> None:
        """One of two fails with an error to act on; the other commits, and nothing else exists."""
        trial.visible()
        both_began = threading.Barrier(2)
        pusher = trial.offers(TransactionalPusher)

        def cross(first: str, second: str, payload: bytes) -> bytes:
            try:
                with trial.harness.transaction() as connection:
                    pusher.push_within(connection, Message(QUEUE, payload, id=first))
                    with suppress(threading.BrokenBarrierError):
                        both_began.wait(1.0)  # where one writer locks all others out, it ends
                    pusher.push_within(connection, Message(QUEUE, payload, id=second))
            except BatchError as error:
                _, rest = error.split((BackendError, AlreadyExists))
                assert rest is None
                return b""
            return payload

        committed = trial.start_together(
            lambda: cross("a", "b", b"one"), lambda: cross("b", "a", b"two")
        )
        [winner] = [payload for payload in committed if payload]
        assert trial.visible() == [winner, winner]

    @rule("TXN-4")
    @needs(TransactionalPusher)
    def test_txn_4_a_delay_counts_from_the_call(self, trial: Trial) -> None:
        """Neither from the beginning of the transaction nor from its end."""
        trial.visible()
        with trial.harness.transaction() as connection:
            trial.advance(trial.delay)
            pushed_at = trial.time()
            trial.offers(TransactionalPusher).push_within(
                connection, Message(QUEUE, b"late", delay=trial.delay)
            )
        _, came_at = trial.wait_for_one()
        assert came_at - pushed_at >= trial.delay

    @rule("TXN-4")
    @needs(TransactionalPusher)
    def test_txn_4_time_within_the_transaction_counts(self, trial: Trial) -> None:
        """A delay that was over before the commit delays nothing any more."""
        trial.visible()
        with trial.harness.transaction() as connection:
            trial.offers(TransactionalPusher).push_within(
                connection, Message(QUEUE, b"0", delay=trial.delay)
            )
            trial.let_pass(trial.delay + trial.guarantees.delay_lateness(trial.delay) / 10)
        popped = trial.queue.pop(QUEUE, wait=NOTHING)
        assert [each.payload for each in popped] == [b"0"]
