"""Random calls, to a driver and to the model, whose outcomes must agree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hypercube_queue import (
    AlreadyExists,
    DeadLetterStore,
    InvalidArgument,
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

_MICROSECOND = timedelta(microseconds=1)

_queue_names = st.sampled_from([QUEUE, OTHER_QUEUE])
_handles = st.integers(0, 1)
#: Few ids, so that they meet again, and some of them alike.
_ids = st.sampled_from([*"abcdefgh", "A", "a ", "\u00e9"])
#: An empty one is for the driver to assign.
_pushed_ids = _ids | st.just("")
_names = st.sampled_from(["", "mail", "Mail ", "\u00e9"])
_payloads = st.binary(max_size=3)
#: Deliveries, counted from the newest; the old ones are mostly stale.
_choice = st.integers(0, 3) | st.integers(0, 1000)
_choices = st.lists(_choice, min_size=1, max_size=4)
_ends = st.sampled_from(["dead_letter", "ack", "retry", "release"])
_verbs = st.sampled_from(["ack", "retry", "dead_letter", "extend_visibility", "release"])
#: Queue, id, payload, name, whether it is delayed, and whether its lease is the longer one; or
#: something that is no message.
_Pushed = tuple[str, str, bytes, str, bool, bool] | None
_batches = st.lists(
    st.tuples(_queue_names, _pushed_ids, _payloads, _names, st.booleans(), st.booleans())
    | st.just(None),
    min_size=2,
    max_size=6,
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

    @initialize(batch=_batches, limit=st.integers(0, 2))
    def begin(self, batch: list[_Pushed], limit: int) -> None:
        self.push(0, batch)
        for handle, queue_name in enumerate((QUEUE, OTHER_QUEUE)):
            self.pop(handle, queue_name, limit + 1)

    @rule(handle=_handles, batch=_batches)
    def push(self, handle: int, batch: list[_Pushed]) -> None:
        messages: list[Any] = []
        for pushed in batch:
            if pushed is None:
                messages.append(None)
                continue
            queue_name, id, payload, name, delayed, doubled = pushed
            if id and self.trial.guarantees.unique_ids == "none":
                self.fresh_ids += 1
                id = f"{id}{self.fresh_ids}"
            messages.append(
                Message(
                    queue_name,
                    bytearray(payload),  # type: ignore[arg-type]  # OWN-1 takes it
                    job_name=name,
                    namespace=name[::-1],
                    id=id,
                    extra=bytearray(payload[::-1]),  # type: ignore[arg-type]
                    delay=self.trial.long_delay if delayed else NOTHING,
                    visibility_timeout=self.trial.long_lease / (1 if doubled else 2) - _MICROSECOND,
                    attempt=7,
                    driver_data=object(),
                )
            )
        found = failed(self.handles[handle].push, *messages)
        expected: list[tuple[int, type[QueueError]]] = []
        for index, message in enumerate(messages):
            if message is None:
                expected.append((index, InvalidArgument))
                continue
            assert message.id
            if not self.model.push(message):
                expected.append((index, AlreadyExists))
            # What a producer does with its buffers afterwards is its own affair.
            message.payload[:] = message.extra[:] = b"later"
        assert found == expected

    @rule(handle=_handles, queue_name=_queue_names, limit=st.integers(1, 4))
    def pop(self, handle: int, queue_name: str, limit: int) -> None:
        ready = self.model.ready(queue_name)
        received = self.handles[handle].pop(queue_name, limit, wait=NOTHING)
        if received or self.trial.guarantees.empty_is_certain:
            least = min(limit, len(ready)) if self.trial.guarantees.full_batches else 0
            assert least <= len(received) <= limit
        self._receive_all(self.handles[handle], queue_name, received)

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
            # Nobody stores these, and nobody is led astray by them.
            message.job_name, message.attempt = "other", message.attempt + 1
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
        limit=st.integers(1, 3),
        verb=_ends,
        contents=_payloads,
        flag=st.booleans(),
    )
    def work(
        self, *, handle: int, queue_name: str, limit: int, verb: str, contents: bytes, flag: bool
    ) -> None:
        """What workers do all day: pop some, and settle them, the newest first."""
        before = len(self.deliveries)
        self.pop(handle, queue_name, limit)
        for number in range(len(self.deliveries) - before):
            self.settle(verb, [number], contents, flag)

    @precondition(lambda self: self.deliveries)
    @rule(choice=_choice, verb=st.sampled_from(["ack", "retry", "dead_letter"]), text=st.booleans())
    def settle_wrongly(self, choice: int, verb: str, text: bool) -> None:
        """Through another object, or with contents that are none."""
        queue, message, delivered = self.deliveries[-1 - choice % len(self.deliveries)]
        if not text:
            foreign = next(each for each in self.handles if each is not queue)
            message.payload, message.extra, message.delay = b"", b"", NOTHING
            assert failed(getattr(foreign, verb), message) == [(0, NotFound)]
        elif verb != "ack" and self.model.owns(delivered):
            message.payload = "text"  # type: ignore[assignment]
            assert failed(getattr(queue, verb), message) == [(0, InvalidArgument)]

    @precondition(lambda self: self._declares(Redriver) and self._with_dead())
    @rule(
        handle=_handles,
        first=st.booleans(),
        count=st.integers(1, 3),
        choices=st.none() | st.lists(st.integers(0, 3), min_size=1, max_size=2),
        forget=st.booleans(),
    )
    def revive(
        self, handle: int, first: bool, count: int, choices: list[int] | None, forget: bool
    ) -> None:
        """The oldest dead, or chosen ones, which may be forgotten as well."""
        queue_name = self._with_dead()[0 if first else -1]
        dead = [id for id, _ in self.model.dead(queue_name)]
        if choices is not None and self._declares(DeadLetterStore):
            store = self.trial.offers(DeadLetterStore, self.handles[handle])
            ids = [[*dead, "nobody"][number % (len(dead) + 1)] for number in choices]
            operation, model = (
                (store.forget, self.model.forget)
                if forget
                else (store.redrive_ids, self.model.redrive)
            )
            assert operation(queue_name, *ids) == sum(model(queue_name, id) for id in ids)
            return
        # Without an order the model cannot know which ones moved, unless all do.
        count = count if self.trial.guarantees.ordered_redrive else len(dead) + 1
        redriver = self.trial.offers(Redriver, self.handles[handle])
        assert redriver.redrive(queue_name, count) == min(count, len(dead))
        for id in dead[:count]:
            self.model.redrive(queue_name, id)

    @precondition(lambda self: self.trial.harness.injected_clock and self.model.next_due())
    @rule(quarters=st.integers(0, 5))
    def advance(self, quarters: int) -> None:
        """By quarters of a long lease, or to the very moment that something is due."""
        duration = self.trial.long_lease / 4 * quarters
        if not quarters and (due := self.model.next_due()):
            duration = due - self.model.now
        self.trial.advance(duration)
        self.model.advance(duration)

    @rule(handle=_handles, reopened=st.booleans())
    def take_stock(self, handle: int, reopened: bool) -> None:
        """Now and then, not after each step: looking can set things right."""
        if reopened:
            self._reopen(handle)
        if self._declares(StatsProvider):
            provider = self.trial.offers(StatsProvider, self.handles[handle])
            assert provider.queues() == self.model.names()
            for name in (QUEUE, OTHER_QUEUE):
                assert provider.stats(name) == QueueStats(name, **self.model.counts(name))
        if self._declares(DeadLetterStore):
            store = self.trial.offers(DeadLetterStore, self.handles[handle])
            for name in (QUEUE, OTHER_QUEUE):
                letters = page = store.dead_letters(name, 2)
                while page and len(letters) <= len(self.model.dead(name)):
                    page = store.dead_letters(name, 2, page[-1].cursor)
                    letters = letters + page
                shown = [each.message for each in letters]
                assert [
                    (each.id, each.payload, each.extra, each.attempt) for each in shown if each
                ] == [
                    (id, stored.payload, stored.extra, stored.attempt)
                    for id, stored in reversed(self.model.dead(name))
                ]

    # Within

    def _reopen(self, handle: int) -> None:
        """Another process in the place of one."""
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

    def _with_dead(self) -> list[str]:
        return [name for name in (QUEUE, OTHER_QUEUE) if self.model.dead(name)]

    def _declares(self, protocol: type) -> bool:
        return protocol in self.trial.harness.capabilities

    def _receive_all(self, queue: Queue, queue_name: str, received: list[Message]) -> None:
        first = [] if self.trial.guarantees.ordering != "fifo" else self.model.fresh(queue_name)
        came = [message.id for message in received if message.id in first]
        assert came == first[: len(came)]
        for message in received:
            self._receive(queue, message)

    def _receive(self, queue: Queue, message: Message) -> None:
        """A pop returned this; the model says whether it may have."""
        ready = self.model.ready(message.queue_name)
        assert message.id in ready
        stored = ready[message.id]
        delivered = self.model.deliver(message.queue_name, message.id)
        assert (message.payload, message.extra) == (stored.payload, stored.extra)
        assert (message.job_name, message.namespace) == (stored.job_name, stored.namespace)
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
        self.take_stock(0, False)
        for name in (QUEUE, OTHER_QUEUE):
            self._receive_all(self.trial.queue, name, self.trial.take_visible(name))
            assert self.model.ready(name) == {}


def machine_for(make_trial: Callable[[], Trial]) -> type[QueueMachine]:
    """A machine whose every run has a namespace of its own."""
    return type("QueueMachine", (QueueMachine,), {"make_trial": staticmethod(make_trial)})
