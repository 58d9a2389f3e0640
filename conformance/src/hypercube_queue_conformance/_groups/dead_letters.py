"""DeadLetterStore: looking at the dead, and letting single ones go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from hypercube_queue import DeadLetter, DeadLetterStore, InvalidArgument, Message
from hypercube_queue_conformance._marks import needs, rule, when
from hypercube_queue_conformance._trial import OTHER_QUEUE, QUEUE, Trial
from hypercube_queue_conformance._values import BAD_NAMES


class DeadLetters:
    @rule("DLS-1")
    @needs(DeadLetterStore)
    def test_dls_1_the_newest_death_comes_first(self, trial: Trial) -> None:
        """In order of death, backwards, up to the limit."""
        zero, one, two = trial.deliver(3)
        for delivery in (one, zero, two):
            trial.queue.dead_letter(delivery)
        store = trial.offers(DeadLetterStore)
        assert _payloads(store, 10) == [b"2", b"0", b"1"]
        assert _payloads(store, 2) == [b"2", b"0"]

    @rule("DLS-1")
    @needs(DeadLetterStore)
    def test_dls_1_a_dead_letter_says_when_it_died(self, trial: Trial) -> None:
        """An aware datetime in UTC; a worker's dead letter has no reason and no raw bytes."""
        trial.queue.dead_letter(trial.deliver_one())
        [letter] = trial.offers(DeadLetterStore).dead_letters(QUEUE, 10)
        assert letter.died_at.utcoffset() == timedelta(0)
        if not trial.harness.injected_clock:
            assert abs(datetime.now(UTC) - letter.died_at) < timedelta(hours=1)
        assert (letter.reason, letter.raw) == ("", None)

    @rule("DLS-1", "ERR-6")
    @needs(DeadLetterStore)
    def test_dls_1_looking_changes_nothing(self, trial: Trial) -> None:
        """The dead are still dead, nothing is delivered, and a second look shows the same."""
        for delivery in trial.deliver(3):
            trial.queue.dead_letter(delivery)
        store = trial.offers(DeadLetterStore)
        first = store.dead_letters(QUEUE, 10)
        for letter in first:
            assert letter.message is not None
            letter.message.payload = b"changed by the one who looked"
        assert trial.visible() == []
        assert _payloads(store, 10) == [b"2", b"1", b"0"]
        again = trial.offers(DeadLetterStore, trial.other).dead_letters(QUEUE, 10)
        assert [each.cursor for each in again] == [each.cursor for each in first]
        assert "changed" not in repr(first)

    @rule("DLS-1")
    @needs(DeadLetterStore)
    def test_dls_1_only_the_dead_of_the_queue_are_shown(self, trial: Trial) -> None:
        """Nothing of other queues, of other states, or of a queue that does not exist."""
        trial.push(1, OTHER_QUEUE)
        trial.queue.dead_letter(trial.receive_one(OTHER_QUEUE))
        trial.push(1)
        store = trial.offers(DeadLetterStore)
        assert store.dead_letters(QUEUE, 10) == []
        assert store.dead_letters("unknown", 10) == []
        assert [each.payload for each in trial.receive()] == [b"0"]

    @rule("DLS-1", "SET-2")
    @needs(DeadLetterStore)
    def test_dls_1_what_is_shown_is_not_a_delivery(self, trial: Trial) -> None:
        """The message of a dead letter settles nothing, so nobody owns it by looking."""
        trial.queue.dead_letter(trial.deliver_one())
        store = trial.offers(DeadLetterStore)
        [letter] = store.dead_letters(QUEUE, 1)
        assert letter.message is not None
        assert letter.message.driver_data is None
        assert letter.message.attempt == 1

    @rule("DLS-2")
    @needs(DeadLetterStore)
    @pytest.mark.parametrize("limit", [1, 7, 50])
    def test_dls_2_paging_neither_skips_nor_repeats(self, trial: Trial, limit: int) -> None:
        """Also among messages that died in one call, at the same microsecond."""
        trial.queue.dead_letter(*trial.deliver(30))
        for delivery in trial.deliver(3):
            trial.queue.dead_letter(delivery)
        store = trial.offers(DeadLetterStore)
        whole = [each.cursor for each in store.dead_letters(QUEUE, 100)]
        assert len(set(whole)) == 33
        assert _paged(store, limit) == whole

    @rule("DLS-2")
    @needs(DeadLetterStore)
    def test_dls_2_changes_between_pages_do_not_disturb_the_rest(self, trial: Trial) -> None:
        """What stays dead is shown once, whatever is redriven, forgotten or dies meanwhile."""
        deliveries = trial.deliver(12)
        for delivery in deliveries:
            trial.queue.dead_letter(delivery)
        store = trial.offers(DeadLetterStore)
        page = store.dead_letters(QUEUE, 4)
        assert _numbers(page) == [11, 10, 9, 8]
        # One shown, the one at the cursor, and one not shown go; a new one comes.
        store.forget(QUEUE, deliveries[9].id, deliveries[8].id)
        store.redrive_ids(QUEUE, deliveries[6].id)
        trial.queue.dead_letter(trial.receive_one())
        assert _numbers(store.dead_letters(QUEUE, 4, page[-1].cursor)) == [7, 5, 4, 3]
        assert _numbers(store.dead_letters(QUEUE, 1)) == [6]

    @rule("DLS-2")
    @needs(DeadLetterStore)
    @pytest.mark.parametrize("bad", ["", "no cursor", "-1", "1;2", 7, b"1"], ids=repr)
    def test_dls_2_a_foreign_cursor_is_refused(self, trial: Trial, bad: object) -> None:
        """InvalidArgument, rather than a page from somewhere."""
        trial.queue.dead_letter(trial.deliver_one())
        with pytest.raises(InvalidArgument, match="before"):
            trial.offers(DeadLetterStore).dead_letters(QUEUE, 10, bad)  # type: ignore[arg-type]

    @rule("DLS-2")
    @needs(DeadLetterStore)
    @pytest.mark.parametrize("bad", [0, -1, 10_001, True, 1.0, "1", None], ids=repr)
    def test_dls_2_a_bad_limit_is_refused(self, trial: Trial, bad: object) -> None:
        """The limit is a whole number from 1 to 10,000."""
        store = trial.offers(DeadLetterStore)
        with pytest.raises(InvalidArgument, match="limit"):
            store.dead_letters(QUEUE, bad)  # type: ignore[arg-type]
        assert store.dead_letters(QUEUE, 10_000) == []

    @rule("DLS-3")
    @needs(DeadLetterStore)
    def test_dls_3_dead_messages_are_redriven_by_id(self, trial: Trial) -> None:
        """As redrive does it, from attempt 1; unknown ids and other states do not count."""
        first, second, third = trial.deliver(3)
        trial.queue.dead_letter(first, second)
        store = trial.offers(DeadLetterStore)
        assert store.redrive_ids(QUEUE, first.id, "unknown", third.id, first.id) == 1
        again = trial.receive_one()
        assert (again.id, again.payload, again.attempt) == (first.id, b"0", 1)
        assert trial.visible() == []
        assert _payloads(store, 10) == [b"1"]
        trial.queue.ack(third)

    @rule("DLS-3")
    @needs(DeadLetterStore)
    def test_dls_3_dead_messages_are_forgotten_by_id(self, trial: Trial) -> None:
        """They are gone for good; unknown ids and other states do not count, nor do repeats."""
        first, second, third = trial.deliver(3)
        trial.queue.dead_letter(first, second)
        store = trial.offers(DeadLetterStore)
        assert store.forget(QUEUE, "unknown", second.id, third.id, second.id) == 1
        assert _payloads(store, 10) == [b"0"]
        assert store.redrive_ids(QUEUE, second.id) == 0
        assert trial.visible() == []
        trial.queue.ack(third)

    @rule("DLS-3")
    @needs(DeadLetterStore)
    def test_dls_3_ids_are_looked_for_in_the_queue_that_is_named(self, trial: Trial) -> None:
        """The same id in another queue is another message."""
        trial.queue.push(Message(QUEUE, id="same"), Message(OTHER_QUEUE, id="same"))
        for name in (QUEUE, OTHER_QUEUE):
            trial.queue.dead_letter(trial.receive_one(name))
        store = trial.offers(DeadLetterStore)
        assert store.forget("unknown", "same") == 0
        assert store.forget(QUEUE, "same") == 1
        assert store.redrive_ids(QUEUE, "same") == 0
        assert store.redrive_ids(OTHER_QUEUE, "same") == 1

    @rule("DLS-3")
    @needs(DeadLetterStore)
    @when(unique_ids="backend")
    def test_dls_3_many_ids_can_be_named_at_once(self, trial: Trial) -> None:
        """More than any backend takes in one request; no ids do nothing."""
        deliveries = trial.deliver(1100)
        trial.queue.dead_letter(*deliveries)
        store = trial.offers(DeadLetterStore)
        ids = [each.id for each in deliveries]
        assert store.redrive_ids(QUEUE) == store.forget(QUEUE) == 0
        assert store.redrive_ids(QUEUE, *ids[:600]) == 600
        assert store.forget(QUEUE, *ids) == 500
        assert len(trial.receive(600)) == 600

    @rule("DLS-3")
    @needs(DeadLetterStore)
    @pytest.mark.parametrize("bad", [*BAD_NAMES, ""], ids=lambda value: ascii(value)[:24])
    def test_dls_3_what_is_no_name_is_refused(self, trial: Trial, bad: object) -> None:
        """InvalidArgument for a queue name and for an id, before anything moves."""
        delivery = trial.deliver_one()
        trial.queue.dead_letter(delivery)
        store = trial.offers(DeadLetterStore)
        calls: list[Callable[..., object]] = [store.redrive_ids, store.forget]
        for call in calls:
            with pytest.raises(InvalidArgument):
                call(bad, delivery.id)
            with pytest.raises(InvalidArgument):
                call(QUEUE, delivery.id, bad)
        with pytest.raises(InvalidArgument):
            store.dead_letters(bad, 1)  # type: ignore[arg-type]
        assert _payloads(store, 10) == [b"0"]


def _payloads(store: DeadLetterStore, limit: int) -> list[bytes]:
    letters = store.dead_letters(QUEUE, limit)
    return [each.message.payload for each in letters if each.message is not None]


def _numbers(letters: list[DeadLetter]) -> list[int]:
    return [int(each.message.payload) for each in letters if each.message is not None]


def _paged(store: DeadLetterStore, limit: int) -> list[str]:
    """The cursors of all dead letters, looked at page by page."""
    seen: list[str] = []
    before = None
    while page := store.dead_letters(QUEUE, limit, before):
        assert len(page) <= limit
        assert len(seen) <= 100, "paging does not come to an end"
        seen += [each.cursor for each in page]
        before = page[-1].cursor
    return seen
