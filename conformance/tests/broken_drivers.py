"""Memory drivers with one fault each. The name says the fault; `rule` is the promise it breaks."""

from __future__ import annotations

import heapq
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, NoReturn

from memory_harness import MemoryHarness, RealClockHarness

from hypercube_queue import (
    MAX_POP_BYTES,
    AlreadyExists,
    BackendError,
    BatchError,
    DeadLetter,
    InvalidArgument,
    ItemFailure,
    Message,
    NotFound,
    QueueClosed,
    QueueStats,
)
from hypercube_queue_conformance import Silenceable
from hypercube_queue_memory import MemoryQueue
from hypercube_queue_memory._entry import Entry, State
from hypercube_queue_memory._queue_state import QueueState

_MICROSECOND = timedelta(microseconds=1)


class Mutant(MemoryHarness):
    """One broken driver."""

    rule: ClassVar[str]
    #: Why random calls beside the model cannot find it; most they do.
    beyond_the_model: ClassVar[str] = ""


def _without(error: BatchError, dropped: type[Exception]) -> None:
    """Raise what is left of a BatchError."""
    kept = [failure for failure in error.failed if not isinstance(failure.error, dropped)]
    if kept:
        raise BatchError("partly", kept)


# Ownership


class PayloadIsShared(Mutant):
    rule = "OWN-1"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            super().push(*messages)
            for message in messages:
                self._store.queue(message.queue_name).entries[message.id].payload = message.payload


class DeliveriesAreOneObject(Mutant):
    rule = "OWN-2"

    class queue_type(MemoryQueue):
        def _take(self, state: QueueState, *args: Any) -> list[Message]:
            taken = super()._take(state, *args)
            for number, message in enumerate(taken):
                entry: Any = message.driver_data.entry  # type: ignore[union-attr]
                known = _objects.setdefault(id(entry), (entry, message))[1]
                known.driver_data, known.attempt = message.driver_data, message.attempt
                taken[number] = known
            return taken


_objects: dict[int, tuple[Entry, Message]] = {}


class IdsAreFolded(Mutant):
    rule = "OWN-3"

    class state_type(QueueState):
        def add(self, item: Any, now: int) -> bool:
            item.id = item.id.casefold().strip()
            return super().add(item, now)


class DurationsAreRounded(Mutant):
    rule = "OWN-3"

    class state_type(QueueState):
        def add(self, item: Any, now: int) -> bool:
            if item.visibility_us is not None:
                item.visibility_us = item.visibility_us // 1000 * 1000
            return super().add(item, now)


class InvalidContentsEndTheDelivery(Mutant):
    rule = "OWN-4"

    class queue_type(MemoryQueue):
        def retry(self, *messages: Message) -> None:
            try:
                super().retry(*messages)
            except BatchError as error:
                for failure in error.failed:
                    if isinstance(failure.error, InvalidArgument):
                        _drop(self, failure)
                raise


def _drop(queue: MemoryQueue, failure: ItemFailure) -> None:
    if isinstance(failure.message, Message) and failure.message.driver_data is not None:
        MemoryQueue.ack(queue, failure.message)


class ChangedRoutingIsStored(Mutant):
    rule = "OWN-4"

    class queue_type(MemoryQueue):
        def retry(self, *messages: Message) -> None:
            super().retry(*messages)
            for message in messages:
                entry: Any = message.driver_data.entry  # type: ignore[union-attr]
                entry.job_name = message.job_name


# Push


class EmptyPushIsRefused(Mutant):
    rule = "PUSH-1"
    beyond_the_model = "its batches are never empty"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            if not messages:
                raise InvalidArgument("nothing to push")
            super().push(*messages)


class AssignedIdIsNotWritten(Mutant):
    rule = "PUSH-2"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            super().push(
                *(replace(each) if isinstance(each, Message) else each for each in messages)
            )


class CallersAttemptIsStored(Mutant):
    rule = "PUSH-3"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            super().push(*messages)
            for each in messages:
                self._store.queue(each.queue_name).entries[each.id].attempt = each.attempt


class SecondEqualIdIsAccepted(Mutant):
    rule = "PUSH-4"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            try:
                super().push(*messages)
            except BatchError as error:
                _without(error, AlreadyExists)


class RetainedMessageIsReplaced(Mutant):
    rule = "PUSH-4"

    class state_type(QueueState):
        def add(self, item: Any, now: int) -> bool:
            if entry := self.entries.get(item.id):
                entry.payload = item.payload
            return super().add(item, now)


class DelayIsIgnored(Mutant):
    rule = "PUSH-5"

    class state_type(QueueState):
        def _make_visible(self, entry: Entry, delay_us: int, now: int) -> None:
            super()._make_visible(entry, 0, now)


class DelayIsForever(Mutant):
    rule = "PUSH-5"

    class state_type(QueueState):
        def _make_visible(self, entry: Entry, delay_us: int, now: int) -> None:
            super()._make_visible(entry, delay_us and 1 << 50, now)


class BatchGoesToTheFirstQueue(Mutant):
    rule = "PUSH-6"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            first = messages[0].queue_name if messages and isinstance(messages[0], Message) else ""
            super().push(*(replace(each, queue_name=first) for each in messages))


class BadDelayIsClamped(Mutant):
    rule = "PUSH-7"
    beyond_the_model = "it pushes no bad field but a message that is none"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            for message in messages:
                if isinstance(message, Message) and isinstance(message.delay, timedelta):
                    message.delay = max(message.delay, timedelta(0))
            super().push(*messages)


class NoRoomForAFailureRecord(Mutant):
    rule = "PUSH-8"
    beyond_the_model = "its messages are small"

    class queue_type(MemoryQueue):
        def retry(self, *messages: Message) -> None:
            if any(len(each.extra) > 10_000 for each in messages if isinstance(each, Message)):
                raise InvalidArgument("too long")
            super().retry(*messages)


# Pop


class PollTimeoutIsIgnored(Mutant):
    rule = "POP-1"
    beyond_the_model = "it never waits"

    class queue_type(MemoryQueue):
        def pop(
            self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
        ) -> list[Message]:
            return super().pop(
                queue_name, max_messages, wait=timedelta(0) if wait is None else wait
            )


class LimitIsOneMore(Mutant):
    rule = "POP-1"

    class queue_type(MemoryQueue):
        def _take(
            self, state: QueueState, queue_name: str, max_messages: int, now: int
        ) -> list[Message]:
            return super()._take(state, queue_name, max_messages + 1, now)


class AttemptIsNotCounted(Mutant):
    rule = "POP-2"

    class state_type(QueueState):
        def take(self, default_visibility_us: int, now: int) -> Entry | None:
            entry = super().take(default_visibility_us, now)
            if entry is not None:
                entry.attempt = 1
            return entry


class DelayStaysOnTheDelivery(Mutant):
    rule = "POP-3"

    class state_type(QueueState):
        def _make_visible(self, entry: Entry, delay_us: int, now: int) -> None:
            _delays[id(entry)] = delay_us
            super()._make_visible(entry, delay_us, now)

    class queue_type(MemoryQueue):
        def _take(self, state: QueueState, *args: Any) -> list[Message]:
            taken = super()._take(state, *args)
            for message in taken:
                entry: Any = message.driver_data.entry  # type: ignore[union-attr]
                message.delay = _delays[id(entry)] * _MICROSECOND
            return taken


_delays: dict[int, int] = {}


class DriverDataIsReused(Mutant):
    rule = "POP-4"

    class queue_type(MemoryQueue):
        def _take(self, state: QueueState, *args: Any) -> list[Message]:
            taken = super()._take(state, *args)
            for message in taken:
                fresh: Any = message.driver_data
                known: Any = _tokens.setdefault(id(fresh.entry), fresh)
                known.token = fresh.token
                message.driver_data = known
            return taken


_tokens: dict[int, Any] = {}


class OneMessageIsHandedToTwo(Mutant):
    rule = "POP-5"

    class state_type(QueueState):
        def take(self, default_visibility_us: int, now: int) -> Entry | None:
            entry = super().take(default_visibility_us, now)
            if entry is not None and entry.attempt == 1:
                self.ready.append(entry)
            return entry


class LeasesNeverEnd(Mutant):
    rule = "POP-6"

    class state_type(QueueState):
        def _lease_until(self, entry: Entry, visible_at: int) -> None:
            super()._lease_until(entry, visible_at + (1 << 50))


class LeaseOfTheMessageIsIgnored(Mutant):
    rule = "POP-6"

    class state_type(QueueState):
        def take(self, default_visibility_us: int, now: int) -> Entry | None:
            entry = super().take(default_visibility_us, now)
            if entry is not None:
                self._lease_until(entry, now + default_visibility_us)
            return entry


class WakeUpsAreLost(RealClockHarness):
    rule = "POP-7"
    beyond_the_model = "it never waits"

    class state_type(QueueState):
        def wake(self) -> None:
            pass


class DueDelaysWakeNobody(RealClockHarness):
    rule = "POP-7"
    beyond_the_model = "it never waits"

    class state_type(QueueState):
        def next_due(self) -> int:
            return 1 << 62


class WaitingSpins(RealClockHarness):
    rule = "POP-7"
    beyond_the_model = "it never waits"

    class queue_type(MemoryQueue):
        def _sleep(self, state: QueueState, now: int, deadline: Any) -> None:
            self._store.lock.release()
            sum(range(1_000))
            self._store.lock.acquire()


class PopLooksAtEverything(Mutant):
    rule = "POP-9"
    beyond_the_model = "it measures nothing"

    class state_type(QueueState):
        def take(self, default_visibility_us: int, now: int) -> Entry | None:
            sorted(self.entries.values(), key=lambda entry: entry.visible_at)
            return super().take(default_visibility_us, now)


class NewestComesFirst(Mutant):
    rule = "POP-10"

    class state_type(QueueState):
        def take(self, default_visibility_us: int, now: int) -> Entry | None:
            self.ready.rotate(1)
            return super().take(default_visibility_us, now)


# Settlement


class LargeMessagesComeAllAtOnce(Mutant):
    rule = "POP-11"
    beyond_the_model = "its messages are small"

    class queue_type(MemoryQueue):
        def _pop(self, queue_name: str, max_messages: int, wait: timedelta) -> list[Message]:
            taken = super()._pop(queue_name, max_messages, wait)
            while more := super()._pop(queue_name, max_messages, timedelta(0)):
                taken += more
            return taken


class WhatAPopLeavesCostsAnAttempt(Mutant):
    rule = "POP-11"
    beyond_the_model = "its messages are small"

    class queue_type(MemoryQueue):
        def _pop(self, queue_name: str, max_messages: int, wait: timedelta) -> list[Message]:
            taken = super()._pop(queue_name, max_messages, wait)
            if len(taken) > 1 and sum(len(each.payload) for each in taken) >= MAX_POP_BYTES:
                for each in super()._pop(queue_name, 1, timedelta(0)):
                    self.release(each)
                    self._store.queue(queue_name).entries[each.id].attempt = each.attempt
            return taken


class SettlementsWaitTwiceAsLongAsTheyMay(Mutant):
    rule = "ERR-5"
    beyond_the_model = "its backend always answers"
    limit = timedelta(seconds=1)

    class queue_type(MemoryQueue):
        silent = False

        def _no_answer(self, waits: float) -> NoReturn:
            time.sleep(waits * SettlementsWaitTwiceAsLongAsTheyMay.limit.total_seconds())
            raise BackendError("no answer", outcome_unknown=True) from TimeoutError()

        def push(self, *messages: Message) -> None:
            if self.silent:
                self._fail_each("push", messages, 1)
            super().push(*messages)

        def pop(self, *args: Any, **options: Any) -> list[Message]:
            if self.silent:
                self._no_answer(1)
            return super().pop(*args, **options)

        def retry(self, *messages: Message) -> None:
            if self.silent:
                self._fail_each("retry", messages, 2)
            super().retry(*messages)

        def ack(self, *messages: Message) -> None:
            if self.silent:
                self._fail_each("ack", messages, 1)
            super().ack(*messages)

        def dead_letter(self, *messages: Message) -> None:
            if self.silent:
                self._fail_each("dead_letter", messages, 1)
            super().dead_letter(*messages)

        def _fail_each(self, verb: str, messages: tuple[Message, ...], waits: float) -> None:
            try:
                self._no_answer(waits)
            except BackendError as error:
                failed = [ItemFailure(index, each, error) for index, each in enumerate(messages)]
                raise BatchError(verb, failed) from None

    def open_silenceable(self) -> Silenceable:
        queue = self.open()

        def silence() -> None:
            queue.silent = True  # type: ignore[attr-defined]

        return Silenceable(queue, silence, self.limit)


class AckIsANoOp(Mutant):
    rule = "SET-1"

    class queue_type(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            self.extend_visibility(timedelta(hours=1), *messages)


class StaleAckIsAccepted(Mutant):
    rule = "SET-2"

    class queue_type(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            try:
                super().ack(*messages)
            except BatchError as error:
                _without(error, NotFound)


class StaleAckPassesBesideTheCurrentOne(Mutant):
    rule = "SET-2"

    class queue_type(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            try:
                super().ack(*messages)
            except BatchError as error:
                failed = {failure.index for failure in error.failed}
                settled = {each.id for n, each in enumerate(messages) if n not in failed}
                if not settled.issuperset(messages[n].id for n in failed):
                    raise


class StaleAckTakesEffect(Mutant):
    rule = "SET-2"

    class state_type(QueueState):
        def owns(self, delivery: Any, now: int) -> bool:
            return self.entries.get(delivery.id) is delivery.entry

        def remove(self, entry: Entry) -> None:
            if entry.state is State.IN_FLIGHT:
                super().remove(entry)


class StaleRetryIsAccepted(Mutant):
    rule = "SET-2"

    class queue_type(MemoryQueue):
        def retry(self, *messages: Message) -> None:
            try:
                super().retry(*messages)
            except BatchError as error:
                _without(error, NotFound)


class ExpiredDeliveryIsOwnedUntilPoppedAgain(Mutant):
    rule = "SET-2"

    class state_type(QueueState):
        def owns(self, delivery: Any, now: int) -> bool:
            entry = delivery.entry
            return entry.token == delivery.token and entry.state is State.IN_FLIGHT


class AnyObjectMaySettle(Mutant):
    rule = "SET-2"

    class queue_type(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            for message in messages:
                if hasattr(getattr(message, "driver_data", None), "owner"):
                    message.driver_data.owner = self  # type: ignore[union-attr]
            super().ack(*messages)


class TwoThreadsSettleOneDelivery(Mutant):
    rule = "SET-2"

    class queue_type(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            held: list[Any] = [getattr(each, "driver_data", None) for each in messages]
            if len(held) == 1 and hasattr(held[0], "entry"):
                state = self._store.queue(held[0].queue_name)
                if state.owns(held[0], self._store.now()):
                    time.sleep(0.001)  # somebody else passes the same check meanwhile
                    state.entries.pop(held[0].id, None)
                    return
            super().ack(*messages)


class RetryForgetsContents(Mutant):
    rule = "SET-3"

    class queue_type(MemoryQueue):
        def retry(self, *messages: Message) -> None:
            stored = []
            for message in messages:
                entry: Any = getattr(getattr(message, "driver_data", None), "entry", None)
                stored.append((entry, getattr(entry, "payload", b"")))
            super().retry(*messages)
            for entry, payload in stored:
                entry.payload = payload


class RetryForgetsTheDelay(Mutant):
    rule = "SET-3"

    class state_type(QueueState):
        def put_back(self, entry: Entry, delay_us: int, now: int) -> None:
            super().put_back(entry, 0, now)


class RetryStartsAnew(Mutant):
    rule = "SET-3"

    class state_type(QueueState):
        def put_back(self, entry: Entry, delay_us: int, now: int) -> None:
            super().put_back(entry, delay_us, now)
            entry.attempt = 0


class DeadLetterLosesExtra(Mutant):
    rule = "SET-4"

    class state_type(QueueState):
        def dead_letter(self, entry: Entry) -> None:
            super().dead_letter(entry)
            entry.extra = b""


class DeadLettersComeBack(Mutant):
    rule = "SET-4"

    class state_type(QueueState):
        def dead_letter(self, entry: Entry) -> None:
            super().dead_letter(entry)
            heapq.heappush(self.delayed, (entry.visible_at, self._next_number(), entry))


class TwiceInABatchIsFine(Mutant):
    rule = "SET-5"

    class queue_type(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            seen = [getattr(each, "driver_data", None) for each in messages]
            try:
                super().ack(*messages)
            except BatchError as error:
                kept = [
                    failure
                    for failure in error.failed
                    if seen[failure.index] not in seen[: failure.index]
                ]
                if kept:
                    raise BatchError("partly", kept) from None


class UpdateLeavesTheOldCopy(Mutant):
    rule = "SET-6"

    class state_type(QueueState):
        def put_back(self, entry: Entry, delay_us: int, now: int) -> None:
            super().put_back(entry, delay_us, now)
            if entry.attempt == 1:
                old = Entry(entry.id, b"old", b"", "", "", entry.visibility_us, State.READY)
                self._append(old)


class SettlementsHappenLater(Mutant):
    rule = "SET-7"

    class queue_type(MemoryQueue):
        def retry(self, *messages: Message) -> None:
            for message in messages:
                if isinstance(message, Message) and message.delay == timedelta(0):
                    message.delay = timedelta(milliseconds=1)
            super().retry(*messages)


# Batches and errors


class FirstFailureStopsTheBatch(Mutant):
    rule = "ERR-1"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            for index, message in enumerate(messages):
                if not isinstance(message, Message):
                    super().push(*messages[:index], message)
            super().push(*messages)


class BatchIndexIsOffByOne(Mutant):
    rule = "ERR-2"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            try:
                super().push(*messages)
            except BatchError as error:
                raise BatchError(
                    "shifted", [replace(each, index=each.index + 1) for each in error.failed]
                ) from None


class IndexIsThatOfTheChunk(Mutant):
    rule = "ERR-2"
    beyond_the_model = "its batches fit into one chunk"

    class queue_type(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            failed: list[ItemFailure] = []
            for start in range(0, len(messages), 256):
                try:
                    super().ack(*messages[start : start + 256])
                except BatchError as error:
                    failed += error.failed
            if failed:
                raise BatchError("ack", failed)


class StaleIsInvalid(Mutant):
    rule = "ERR-3"

    class queue_type(MemoryQueue):
        def ack(self, *messages: Message) -> None:
            try:
                super().ack(*messages)
            except BatchError as error:
                raise BatchError(
                    "ack",
                    [replace(each, error=InvalidArgument("stale")) for each in error.failed],
                ) from None


class PopOutlivesItsWait(Mutant):
    rule = "ERR-5"
    beyond_the_model = "it measures nothing"

    class queue_type(MemoryQueue):
        def pop(
            self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
        ) -> list[Message]:
            longer = wait + timedelta(seconds=4) if isinstance(wait, timedelta) else wait
            return super().pop(queue_name, max_messages, wait=longer)


class ErrorsShowThePayload(Mutant):
    rule = "ERR-6"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            try:
                super().push(*messages)
            except BatchError as error:
                raise BatchError(
                    "push",
                    [
                        replace(
                            each, error=AlreadyExists(str(getattr(each.message, "payload", "")))
                        )
                        for each in error.failed
                    ],
                ) from None


# Lifecycle


class CloseLeavesPopsSleeping(RealClockHarness):
    rule = "LIFE-1"
    beyond_the_model = "it never waits"

    class queue_type(MemoryQueue):
        def close(self) -> None:
            self._gate.close()


class EmptyBatchOfAClosedQueueIsFine(Mutant):
    rule = "LIFE-1"
    beyond_the_model = "it calls nothing that was closed"

    class queue_type(MemoryQueue):
        def push(self, *messages: Message) -> None:
            if messages:
                super().push(*messages)


class ClosingTwiceRaises(Mutant):
    rule = "LIFE-1"

    class queue_type(MemoryQueue):
        def close(self) -> None:
            if self._gate.closed:
                raise QueueClosed("closed already")
            super().close()


class CloseClosesTheStore(Mutant):
    rule = "LIFE-1"

    class queue_type(MemoryQueue):
        def close(self) -> None:
            super().close()
            self._store.queues.clear()


class ForkIsNotNoticed(Mutant):
    rule = "LIFE-4"
    beyond_the_model = "it has one process"

    class queue_type(MemoryQueue):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._gate._in_child = lambda: None


class MessagesExpire(Mutant):
    rule = "LIFE-5"
    beyond_the_model = "its clock does not go so far"

    class state_type(QueueState):
        def promote(self, now: int) -> None:
            super().promote(now)
            if now > 86_400 * 1_000_000:
                self.ready.clear()


class TwentyReturnsAreEnough(Mutant):
    rule = "LIFE-6"
    beyond_the_model = "none of its messages comes so often"

    class state_type(QueueState):
        def put_back(self, entry: Entry, delay_us: int, now: int) -> None:
            if entry.attempt > 20:
                self.dead_letter(entry)
            else:
                super().put_back(entry, delay_us, now)


# Capabilities


class ExtensionAddsToTheOldDeadline(Mutant):
    rule = "EXT-1"

    class queue_type(MemoryQueue):
        def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
            longer = extension
            if isinstance(extension, timedelta) and extension > timedelta(0):
                longer = min(extension + timedelta(seconds=30), timedelta(days=3650))
            super().extend_visibility(longer, *messages)


class StaleExtensionIsAccepted(Mutant):
    rule = "EXT-2"

    class queue_type(MemoryQueue):
        def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
            try:
                super().extend_visibility(extension, *messages)
            except BatchError as error:
                _without(error, NotFound)


class LongExtensionIsClamped(Mutant):
    rule = "EXT-3"
    beyond_the_model = "its extensions are short"

    class queue_type(MemoryQueue):
        def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
            if isinstance(extension, timedelta):
                extension = min(extension, timedelta(days=3000))
            super().extend_visibility(extension, *messages)


class RedriveIgnoresItsCount(Mutant):
    rule = "RED-1"

    class queue_type(MemoryQueue):
        def redrive(self, queue_name: str, count: int) -> int:
            return min(count, super().redrive(queue_name, 1_000_000 if count else count))


class NewestDeathIsRedrivenFirst(Mutant):
    rule = "RED-1"

    class queue_type(MemoryQueue):
        def redrive(self, queue_name: str, count: int) -> int:
            if isinstance(count, int) and count == 1:
                for letter in self.dead_letters(queue_name, 1):
                    assert letter.message is not None
                    return self.redrive_ids(queue_name, letter.message.id)
            return super().redrive(queue_name, count)


class RedriveForgetsTheLease(Mutant):
    rule = "RED-2"

    class state_type(QueueState):
        def redrive(self, entry: Entry) -> None:
            super().redrive(entry)
            entry.visibility_us = None


class RedriveKeepsAttempts(Mutant):
    rule = "RED-3"

    class state_type(QueueState):
        def redrive(self, entry: Entry) -> None:
            attempt = entry.attempt
            super().redrive(entry)
            entry.attempt = attempt


class RedriveReturnsWhatWasAsked(Mutant):
    rule = "RED-4"

    class queue_type(MemoryQueue):
        def redrive(self, queue_name: str, count: int) -> int:
            super().redrive(queue_name, count)
            return count


class RedriveOfNothingIsFine(Mutant):
    rule = "RED-5"
    beyond_the_model = "it asks for one at least"

    class queue_type(MemoryQueue):
        def redrive(self, queue_name: str, count: int) -> int:
            return 0 if count == 0 else super().redrive(queue_name, count)


class StatsForgetTheDelayed(Mutant):
    rule = "STA-1"

    class queue_type(MemoryQueue):
        def stats(self, queue_name: str) -> QueueStats:
            return replace(super().stats(queue_name), delayed=0)


class ExpiredCountAsInFlight(Mutant):
    rule = "STA-1"

    class queue_type(MemoryQueue):
        def stats(self, queue_name: str) -> QueueStats:
            state = self._store.queues.get(queue_name)
            late = state.in_flight if state else 0
            stats = super().stats(queue_name)
            moved = max(0, late - stats.in_flight)
            return replace(stats, ready=stats.ready - moved, in_flight=late)


class AskingMakesAQueue(Mutant):
    rule = "STA-2"

    class queue_type(MemoryQueue):
        def stats(self, queue_name: str) -> QueueStats:
            _asked.setdefault(id(self._store), set()).add(queue_name)
            return super().stats(queue_name)

        def queues(self) -> list[str]:
            return sorted({*super().queues(), *_asked.get(id(self._store), ())})


_asked: dict[int, set[str]] = {}


class NamesAreNotSorted(Mutant):
    rule = "STA-3"

    class queue_type(MemoryQueue):
        def queues(self) -> list[str]:
            return super().queues()[::-1]


class DeadQueuesAreNotListed(Mutant):
    rule = "STA-3"

    class queue_type(MemoryQueue):
        def queues(self) -> list[str]:
            return [
                name
                for name in super().queues()
                if len(self._store.queue(name).dead) < len(self._store.queue(name).entries)
            ]


class LookingTakesAway(Mutant):
    rule = "DLS-1"

    class queue_type(MemoryQueue):
        def dead_letters(
            self, queue_name: str, limit: int, before: str | None = None
        ) -> list[DeadLetter]:
            letters = super().dead_letters(queue_name, limit, before)
            self.forget(queue_name, *(each.message.id for each in letters if each.message))
            return letters


class CursorRepeatsARow(Mutant):
    rule = "DLS-2"

    class queue_type(MemoryQueue):
        def dead_letters(
            self, queue_name: str, limit: int, before: str | None = None
        ) -> list[DeadLetter]:
            if before is not None and before.isdecimal():
                before = str(int(before) + 1)
            return super().dead_letters(queue_name, limit, before)


class UnknownIdsCount(Mutant):
    rule = "DLS-3"

    class queue_type(MemoryQueue):
        def forget(self, queue_name: str, *ids: str) -> int:
            super().forget(queue_name, *ids)
            return len(ids)


class RedriveByIdKeepsAttempts(Mutant):
    rule = "DLS-3"

    class queue_type(MemoryQueue):
        def redrive_ids(self, queue_name: str, *ids: str) -> int:
            state = self._store.queue(queue_name)
            before = {id: state.entries[id].attempt for id in ids if id in state.entries}
            moved = super().redrive_ids(queue_name, *ids)
            for id, attempt in before.items():
                state.entries[id].attempt = attempt
            return moved


class ReleaseCountsTheAttempt(Mutant):
    rule = "REL-1"

    class state_type(QueueState):
        def release(self, entry: Entry) -> None:
            super().release(entry)
            entry.attempt += 1


class ReleaseGoesToTheEnd(Mutant):
    rule = "REL-1"

    class state_type(QueueState):
        def release(self, entry: Entry) -> None:
            self._end_lease(entry)
            entry.attempt -= 1
            self._append(entry)


class ReleaseStores(Mutant):
    rule = "REL-1"

    class queue_type(MemoryQueue):
        def release(self, *messages: Message) -> None:
            for message in messages:
                entry = getattr(getattr(message, "driver_data", None), "entry", None)
                if isinstance(entry, Entry):
                    entry.payload = message.payload
            super().release(*messages)


# What only the model sees


class LeaseEndsAMicrosecondLate(Mutant):
    rule = "MODEL-1"

    class state_type(QueueState):
        def _lease_until(self, entry: Entry, visible_at: int) -> None:
            super()._lease_until(entry, visible_at + 1)


class DelayEndsAMicrosecondLate(Mutant):
    rule = "MODEL-1"

    class state_type(QueueState):
        def _make_visible(self, entry: Entry, delay_us: int, now: int) -> None:
            super()._make_visible(entry, delay_us and delay_us + 1, now)


#: Every driver here that is broken, by name.
MUTANTS: dict[str, type[Mutant]] = {
    name: mutant
    for name, mutant in list(globals().items())
    if isinstance(mutant, type) and issubclass(mutant, MemoryHarness) and "rule" in vars(mutant)
}
