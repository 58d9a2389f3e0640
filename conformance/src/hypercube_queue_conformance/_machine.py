"""Random calls, to a driver and to the model, whose outcomes must agree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from hypercube_queue import (
    AlreadyExists,
    DeadLetterStore,
    Message,
    NotFound,
    Queue,
    QueueError,
    Redriver,
    Releaser,
    StatsProvider,
    VisibilityExtender,
)
from hypercube_queue_conformance._model import Delivered, Model
from hypercube_queue_conformance._trial import NOTHING, OTHER_QUEUE, QUEUE, Trial, failed

_queue_names = st.sampled_from([QUEUE, OTHER_QUEUE])
_handles = st.integers(0, 1)
#: Few ids, so that they meet again.
_ids = st.sampled_from("abcdef")
_payloads = st.binary(max_size=3)
#: Deliveries, counted from the newest; the old ones are mostly stale.
_choice = st.integers(0, 3) | st.integers(0, 1000)
_choices = st.lists(_choice, min_size=1, max_size=4)


class QueueMachine(RuleBasedStateMachine):
    """Two queues, two driver objects, and every delivery that ever was.

    Time matters only where its clock can be moved: leases and delays are an hour and more.
    """

    make_trial: ClassVar[Callable[[], Trial]]

    def __init__(self) -> None:
        super().__init__()
        self.trial = type(self).make_trial()
        self.model = Model()
        self.handles = [self.trial.open(), self.trial.open()]
        #: Each delivery with the driver object that it came from.
        self.deliveries: list[tuple[Queue, Message, Delivered]] = []
        self.fresh_ids = 0

    def teardown(self) -> None:
        try:
            self._compare_what_is_left()
        finally:
            self.trial.close()

    # Push

    @rule(
        handle=_handles,
        batch=st.lists(
            st.tuples(_queue_names, _ids, _payloads, st.booleans(), st.booleans()),
            min_size=1,
            max_size=4,
        ),
    )
    def push(self, handle: int, batch: list[tuple[str, str, bytes, bool, bool]]) -> None:
        messages, expected = [], []
        for index, (queue_name, chosen_id, payload, delayed, doubled) in enumerate(batch):
            id = chosen_id
            if self.trial.guarantees.unique_ids == "none":
                self.fresh_ids += 1
                id = f"{chosen_id}{self.fresh_ids}"
            delay = self.trial.long_delay if delayed else NOTHING
            visibility = self.trial.long_lease / (1 if doubled else 2)
            messages.append(
                Message(queue_name, payload, id=id, delay=delay, visibility_timeout=visibility)
            )
            if not self.model.push(queue_name, id, payload, delay, visibility):
                expected.append((index, AlreadyExists))
        assert failed(self.handles[handle].push, *messages) == expected

    # Pop

    @rule(handle=_handles, queue_name=_queue_names, limit=st.integers(1, 4))
    def pop(self, handle: int, queue_name: str, limit: int) -> None:
        ready = self.model.ready(queue_name)
        received = self.handles[handle].pop(queue_name, limit, wait=NOTHING)
        if self.trial.guarantees.full_batches:
            assert len(received) == min(limit, len(ready))
        assert len(received) <= limit
        for message in received:
            self._receive(self.handles[handle], message)

    # Settlement, also of deliveries that were settled long ago

    @precondition(lambda self: self.deliveries)
    @rule(choices=_choices)
    def ack(self, choices: list[int]) -> None:
        self._settle(choices, lambda queue: queue.ack, lambda _, d: self.model.ack(d))

    @precondition(lambda self: self.deliveries)
    @rule(choices=_choices, contents=_payloads, delayed=st.booleans())
    def retry(self, choices: list[int], contents: bytes, delayed: bool) -> None:
        delay = self.trial.long_delay if delayed else NOTHING
        for _, message, _ in self._chosen(choices):
            message.payload, message.extra, message.delay = contents, contents, delay
        self._settle(
            choices,
            lambda queue: queue.retry,
            lambda _, d: self.model.retry(d, contents, contents, delay),
        )

    @precondition(lambda self: self.deliveries)
    @rule(choices=_choices, contents=_payloads)
    def dead_letter(self, choices: list[int], contents: bytes) -> None:
        for _, message, _ in self._chosen(choices):
            message.payload = message.extra = contents
        self._settle(
            choices,
            lambda queue: queue.dead_letter,
            lambda _, d: self.model.dead_letter(d, contents, contents),
        )

    @precondition(lambda self: self.deliveries and self._declares(VisibilityExtender))
    @rule(choices=_choices, doubled=st.booleans())
    def extend(self, choices: list[int], doubled: bool) -> None:
        extension = self.trial.long_lease / (2 if doubled else 4)
        self._settle(
            choices,
            lambda queue: (
                lambda *messages: self.trial.offers(VisibilityExtender, queue).extend_visibility(
                    extension, *messages
                )
            ),
            lambda _, d: self.model.extend(d, extension),
            repeatable=True,
        )

    @precondition(lambda self: self.deliveries and self._declares(Releaser))
    @rule(choices=_choices)
    def release(self, choices: list[int]) -> None:
        self._settle(
            choices,
            lambda queue: self.trial.offers(Releaser, queue).release,
            lambda _, d: self.model.release(d),
        )

    @precondition(lambda self: self.deliveries)
    @rule(choice=_choice, verb=st.sampled_from(["ack", "retry", "dead_letter"]))
    def settle_through_another_object(self, choice: int, verb: str) -> None:
        [(queue, message, _)] = self._chosen([choice])
        foreign = next(each for each in self.handles if each is not queue)
        message.payload, message.extra, message.delay = b"", b"", NOTHING
        assert failed(getattr(foreign, verb), message) == [(0, NotFound)]

    # The dead

    @precondition(lambda self: self._declares(Redriver))
    @rule(handle=_handles, queue_name=_queue_names, count=st.integers(1, 3))
    def redrive(self, handle: int, queue_name: str, count: int) -> None:
        dead = [id for id, _ in self.model.dead(queue_name)]
        redriver = self.trial.offers(Redriver, self.handles[handle])
        if self.trial.guarantees.ordered_redrive:
            assert redriver.redrive(queue_name, count) == min(count, len(dead))
            moved = dead[:count]
        else:
            assert redriver.redrive(queue_name, len(dead) + 1) == len(dead)
            moved = dead
        for id in moved:
            self.model.redrive(queue_name, id)

    @precondition(lambda self: self._declares(DeadLetterStore))
    @rule(handle=_handles, queue_name=_queue_names, ids=st.lists(_ids, max_size=3))
    def redrive_ids(self, handle: int, queue_name: str, ids: list[str]) -> None:
        store = self.trial.offers(DeadLetterStore, self.handles[handle])
        expected = sum(self.model.redrive(queue_name, id) for id in ids)
        assert store.redrive_ids(queue_name, *ids) == expected

    @precondition(lambda self: self._declares(DeadLetterStore))
    @rule(handle=_handles, queue_name=_queue_names, ids=st.lists(_ids, max_size=3))
    def forget(self, handle: int, queue_name: str, ids: list[str]) -> None:
        store = self.trial.offers(DeadLetterStore, self.handles[handle])
        expected = sum(self.model.forget(queue_name, id) for id in ids)
        assert store.forget(queue_name, *ids) == expected

    # Time and objects

    @precondition(lambda self: self.trial.harness.injected_clock)
    @rule(quarters=st.integers(1, 5))
    def advance(self, quarters: int) -> None:
        self._advance(self.trial.long_lease / 4 * quarters)

    @precondition(lambda self: self.trial.harness.injected_clock and self.model.next_due())
    @rule()
    def advance_to_the_very_moment_that_something_is_due(self) -> None:
        due = self.model.next_due()
        assert due is not None
        self._advance(due - self.model.now)

    @rule(handle=_handles)
    def reopen(self, handle: int) -> None:
        closed = self.handles[handle]
        closed.close()
        self.handles[handle] = self.trial.open()
        kept = []
        for queue, message, delivered in self.deliveries:
            if queue is not closed:
                kept.append((queue, message, delivered))
            elif not self.trial.guarantees.leases:
                self.model.lose(delivered)
        self.deliveries = kept

    # What can be seen at any time; not after each step, since looking can set things right

    @precondition(lambda self: self._declares(StatsProvider))
    @rule(handle=_handles)
    def count(self, handle: int) -> None:
        provider = self.trial.offers(StatsProvider, self.handles[handle])
        assert provider.queues() == self.model.names()
        for name in (QUEUE, OTHER_QUEUE):
            stats = provider.stats(name)
            assert {
                "ready": stats.ready,
                "delayed": stats.delayed,
                "in_flight": stats.in_flight,
                "dead": stats.dead,
            } == self.model.counts(name)

    @precondition(lambda self: self._declares(DeadLetterStore))
    @rule(handle=_handles)
    def look_at_dead_letters(self, handle: int) -> None:
        store = self.trial.offers(DeadLetterStore, self.handles[handle])
        for name in (QUEUE, OTHER_QUEUE):
            shown = [each.message for each in store.dead_letters(name, 100)]
            assert [
                (each.id, each.payload, each.extra, each.attempt) for each in shown if each
            ] == [
                (id, stored.payload, stored.extra, stored.attempt)
                for id, stored in reversed(self.model.dead(name))
            ]

    # Within

    def _declares(self, protocol: type) -> bool:
        return protocol in self.trial.harness.capabilities

    def _advance(self, duration: timedelta) -> None:
        self.trial.advance(duration)
        self.model.advance(duration)

    def _receive(self, queue: Queue, message: Message) -> None:
        """A pop returned this; the model says whether it may have."""
        ready = self.model.ready(message.queue_name)
        assert message.id in ready
        stored = ready[message.id]
        delivered = self.model.deliver(message.queue_name, message.id)
        assert (message.payload, message.extra) == (stored.payload, stored.extra)
        assert message.visibility_timeout == stored.visibility
        assert message.delay == NOTHING
        if self.trial.guarantees.exact_attempts:
            assert message.attempt == stored.attempt
        self.deliveries.append((queue, message, delivered))

    def _chosen(self, choices: list[int]) -> list[tuple[Queue, Message, Delivered]]:
        newest = len(self.deliveries) - 1
        return [self.deliveries[newest - choice % len(self.deliveries)] for choice in choices]

    def _settle(
        self,
        choices: list[int],
        operation: Callable[[Queue], Callable[..., None]],
        expected: Callable[[Message, Delivered], bool],
        *,
        repeatable: bool = False,
    ) -> None:
        """Settle the chosen deliveries in one batch per driver object."""
        chosen = self._chosen(choices)
        for handle in self.handles:
            batch = [(message, d) for queue, message, d in chosen if queue is handle]
            wrong: list[tuple[int, type[QueueError]]] = []
            seen: set[int] = set()
            for index, (message, delivered) in enumerate(batch):
                again = repeatable and delivered.number in seen
                seen.add(delivered.number)
                if again or not expected(message, delivered):
                    wrong.append((index, NotFound))
            assert failed(operation(handle), *(message for message, _ in batch)) == wrong

    def _compare_what_is_left(self) -> None:
        if self._declares(DeadLetterStore):
            self.look_at_dead_letters(0)
        if self._declares(StatsProvider):
            self.count(1)
        for name in (QUEUE, OTHER_QUEUE):
            for message in self.trial.queue.pop(name, 1000, wait=NOTHING):
                self._receive(self.trial.queue, message)
            if self.trial.guarantees.full_batches:
                assert self.model.ready(name) == {}


def machine_for(make_trial: Callable[[], Trial]) -> type[QueueMachine]:
    """A machine whose every run has a namespace of its own."""
    return type("QueueMachine", (QueueMachine,), {"make_trial": staticmethod(make_trial)})
