"""Random calls, to a driver and to the model, whose outcomes must agree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hypercube_queue import (
    AlreadyExists,
    DeadLetterStore,
    Message,
    NotFound,
    Queue,
    QueueError,
    QueueStats,
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
_verbs = st.sampled_from(["ack", "retry", "dead_letter", "extend_visibility", "release"])
#: Queue, id, payload, whether it is delayed, and whether its lease is the longer one.
_Pushed = tuple[str, str, bytes, bool, bool]
_batches = st.lists(
    st.tuples(_queue_names, _ids, _payloads, st.booleans(), st.booleans()),
    min_size=1,
    max_size=4,
)


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
        self.verbs = ["ack", "retry", "dead_letter"]
        if self._declares(VisibilityExtender):
            self.verbs.append("extend_visibility")
        if self._declares(Releaser):
            self.verbs.append("release")

    def teardown(self) -> None:
        try:
            self._compare_what_is_left()
        finally:
            self.trial.close()

    # Hypothesis leaves some rules out of each run, so there are few, each with a choice of acts

    @initialize(batch=_batches, limit=st.integers(0, 8))
    def begin(self, batch: list[_Pushed], limit: int) -> None:
        self.push(0, batch)
        for handle, queue_name in enumerate((QUEUE, OTHER_QUEUE)):
            self.pop(handle, queue_name, limit + 1)

    @rule(handle=_handles, batch=_batches)
    def push(self, handle: int, batch: list[_Pushed]) -> None:
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

    @rule(handle=_handles, queue_name=_queue_names, limit=st.integers(1, 4))
    def pop(self, handle: int, queue_name: str, limit: int) -> None:
        ready = self.model.ready(queue_name)
        received = self.handles[handle].pop(queue_name, limit, wait=NOTHING)
        if received or self.trial.guarantees.empty_is_certain:
            least = min(limit, len(ready)) if self.trial.guarantees.full_batches else 0
            assert least <= len(received) <= limit
        for message in received:
            self._receive(self.handles[handle], message)

    @precondition(lambda self: self.deliveries)
    @rule(verb=_verbs, choices=_choices, contents=_payloads, flag=st.booleans())
    def settle(self, verb: str, choices: list[int], contents: bytes, flag: bool) -> None:
        """Also what was settled long ago, in one batch per driver object."""
        if verb not in self.verbs:
            return
        delay = self.trial.long_delay if flag else NOTHING
        extension = self.trial.long_lease / (2 if flag else 4)
        newest = len(self.deliveries) - 1
        if verb == "dead_letter":
            choices = choices[:1]  # in which order the dead of one call stand is not promised
        chosen = [self.deliveries[newest - n % len(self.deliveries)] for n in choices]
        for _, message, _ in chosen:
            message.payload, message.extra, message.delay = contents, contents, delay
        for handle in self.handles:
            batch = [
                (message, delivered) for queue, message, delivered in chosen if queue is handle
            ]
            expected: list[tuple[int, type[QueueError]]] = []
            seen: set[int] = set()
            for index, (_, delivered) in enumerate(batch):
                again = delivered.number in seen
                seen.add(delivered.number)
                if again or not self._settled(verb, delivered, contents, delay, extension):
                    expected.append((index, NotFound))
            operation = getattr(handle, verb)
            arguments = (extension,) if verb == "extend_visibility" else ()
            messages = [message for message, _ in batch]
            if batch:
                found = failed(operation, *arguments, *messages)
                assert (verb, found) == (verb, expected)

    @rule(
        handle=_handles,
        queue_name=_queue_names,
        verb=_verbs,
        contents=_payloads,
        flag=st.booleans(),
    )
    def work(self, handle: int, queue_name: str, verb: str, contents: bytes, flag: bool) -> None:
        """What workers do all day: pop one, and settle it."""
        before = len(self.deliveries)
        self.pop(handle, queue_name, 1)
        if len(self.deliveries) > before:
            self.settle(verb, [0], contents, flag)

    @precondition(lambda self: self.deliveries)
    @rule(choice=_choice, verb=st.sampled_from(["ack", "retry", "dead_letter"]))
    def settle_through_another_object(self, choice: int, verb: str) -> None:
        queue, message, _ = self.deliveries[choice % len(self.deliveries)]
        foreign = next(each for each in self.handles if each is not queue)
        message.payload, message.extra, message.delay = b"", b"", NOTHING
        assert failed(getattr(foreign, verb), message) == [(0, NotFound)]

    @precondition(lambda self: self._declares(Redriver))
    @rule(handle=_handles, queue_name=_queue_names, count=st.integers(1, 3))
    def redrive(self, handle: int, queue_name: str, count: int) -> None:
        dead = [id for id, _ in self.model.dead(queue_name)]
        # Without an order the model cannot know which ones moved, unless all do.
        count = count if self.trial.guarantees.ordered_redrive else len(dead) + 1
        redriver = self.trial.offers(Redriver, self.handles[handle])
        assert redriver.redrive(queue_name, count) == min(count, len(dead))
        for id in dead[:count]:
            self.model.redrive(queue_name, id)

    @precondition(lambda self: self._declares(DeadLetterStore))
    @rule(
        handle=_handles,
        queue_name=_queue_names,
        ids=st.lists(_ids, max_size=3),
        forget=st.booleans(),
    )
    def pick_dead_letters(self, handle: int, queue_name: str, ids: list[str], forget: bool) -> None:
        store = self.trial.offers(DeadLetterStore, self.handles[handle])
        if forget:
            expected = sum(self.model.forget(queue_name, id) for id in ids)
            assert store.forget(queue_name, *ids) == expected
        else:
            expected = sum(self.model.redrive(queue_name, id) for id in ids)
            assert store.redrive_ids(queue_name, *ids) == expected

    @precondition(lambda self: self.trial.harness.injected_clock and self.model.next_due())
    @rule(quarters=st.integers(0, 5))
    def advance(self, quarters: int) -> None:
        """By quarters of a long lease, or to the very moment that something is due."""
        duration = self.trial.long_lease / 4 * quarters
        if not quarters and (due := self.model.next_due()):
            duration = due - self.model.now
        self.trial.advance(duration)
        self.model.advance(duration)

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

    @rule(handle=_handles)
    def look(self, handle: int) -> None:
        """Now and then, not after each step: looking can set things right."""
        if self._declares(StatsProvider):
            provider = self.trial.offers(StatsProvider, self.handles[handle])
            assert provider.queues() == self.model.names()
            for name in (QUEUE, OTHER_QUEUE):
                assert provider.stats(name) == QueueStats(name, **self.model.counts(name))
        if self._declares(DeadLetterStore):
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

    def _settled(
        self,
        verb: str,
        delivered: Delivered,
        contents: bytes,
        delay: timedelta,
        extension: timedelta,
    ) -> bool:
        """What the model says to it."""
        match verb:
            case "ack":
                return self.model.ack(delivered)
            case "retry":
                return self.model.retry(delivered, contents, contents, delay)
            case "dead_letter":
                return self.model.dead_letter(delivered, contents, contents)
            case "extend_visibility":
                return self.model.extend(delivered, extension)
            case _:
                return self.model.release(delivered)

    def _compare_what_is_left(self) -> None:
        self.look(0)
        for name in (QUEUE, OTHER_QUEUE):
            for message in self.trial.take_visible(name):
                self._receive(self.trial.queue, message)
            assert self.model.ready(name) == {}


def machine_for(make_trial: Callable[[], Trial]) -> type[QueueMachine]:
    """A machine whose every run has a namespace of its own."""
    return type("QueueMachine", (QueueMachine,), {"make_trial": staticmethod(make_trial)})
