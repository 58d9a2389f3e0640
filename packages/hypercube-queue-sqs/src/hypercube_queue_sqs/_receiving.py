"""Taking deliveries."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from hypercube_queue import BackendError, Message, QueueClosed, QueueError
from hypercube_queue.driver import (
    Deadline,
    Envelope,
    Gate,
    UnreadableEnvelope,
    chunked,
    from_microseconds,
    to_microseconds,
)
from hypercube_queue_sqs import _clock
from hypercube_queue_sqs._aside import Aside
from hypercube_queue_sqs._clients import LONGEST_POLL
from hypercube_queue_sqs._delivery import SQSDelivery
from hypercube_queue_sqs._directory import Directory
from hypercube_queue_sqs._options import Options
from hypercube_queue_sqs._place import Place
from hypercube_queue_sqs._service import Service
from hypercube_queue_sqs._threads import Task, Threads
from hypercube_queue_sqs._wire import MAX_ENTRIES, opened, whole_seconds

T = TypeVar("T")

_log = logging.getLogger("hypercube_queue_sqs")

#: A pop that has something asks on for a part of the time that it and its deliveries have.
_PART_OF_OPERATION = 2
_PART_OF_LEASE = 4


@dataclass(slots=True)
class Received:
    """What came of one request."""

    messages: list[Message]
    #: Unreadable ones included.
    count: int


class Receiving:
    """Polls for messages: one long poll until something comes, then several short ones."""

    def __init__(
        self,
        owner: object,
        gate: Gate,
        service: Service,
        directory: Directory,
        *,
        threads: Threads,
        polls: Threads,
        options: Options,
    ) -> None:
        self._owner = owner
        self._gate = gate
        self._service = service
        self._directory = directory
        self._threads = threads
        self._polls = polls
        self._connections = options.connections
        self._operation_timeout = options.operation_timeout
        self._lease = options.visibility_timeout
        self._lease_seconds = whole_seconds(to_microseconds(options.visibility_timeout))
        self._aside = Aside(service, directory)
        self._lock = threading.Lock()
        self._waiting: set[Task[Any]] = set()
        #: The delivery of each message that came last (SET-2).
        self._newest: WeakValueDictionary[tuple[str, str], SQSDelivery] = WeakValueDictionary()

    def pop(self, queue_name: str, most: int, waiting: timedelta, end: Deadline) -> list[Message]:
        """Deliveries, waiting for the first one."""
        patience = Deadline(waiting)
        place = self._directory.known(queue_name) or self._result(
            self._threads.run(partial(self._directory.work, queue_name, end)), end
        )
        wanted = min(most, MAX_ENTRIES)
        while True:
            # A short poll asks a part of SQS's servers only, and misses what the others have.
            seconds = min(LONGEST_POLL.seconds, max(1, math.ceil(patience.seconds_left())))
            # One that gets no answer ends the pop, however long that was to wait.
            allowed = timedelta(seconds=seconds) + self._operation_timeout
            answered = Deadline(min(allowed, timedelta(seconds=end.seconds_left())))
            poll = partial(self._receive, queue_name, place, wanted, seconds, answered)
            try:
                first = self._result(self._polls.run(poll, self._hand_back), answered)
            except QueueError as error:
                self._directory.forget(queue_name, error)
                raise
            if first.messages:
                return self._more(queue_name, place, first, most, end)
            if patience.passed:
                return []

    def wake_all(self) -> None:
        """End every waiting pop."""
        with self._lock:
            waiting = list(self._waiting)
        for task in waiting:
            task.leave()

    # Within

    def _more(
        self, queue_name: str, place: Place, first: Received, most: int, end: Deadline
    ) -> list[Message]:
        """What else is there, up to the limit: rounds of requests until one brings little."""
        messages = first.messages
        asked, came = min(most, MAX_ENTRIES), first.count
        enough = Deadline(
            min(self._operation_timeout / _PART_OF_OPERATION, self._lease / _PART_OF_LEASE)
        )
        try:
            self._gate.check()
            while len(messages) < most and 2 * came >= asked and not enough.passed:
                asked = min(most - len(messages), MAX_ENTRIES * self._connections)
                sizes = [min(MAX_ENTRIES, asked - start) for start in range(0, asked, MAX_ENTRIES)]
                calls = [partial(self._receive, queue_name, place, size, 0, end) for size in sizes]
                round_ = self._round(calls, end)
                came = sum(each.count for each in round_)
                for each in round_:
                    messages += each.messages
                self._gate.check()
        except BaseException:
            self._hand_back_later(messages)
            raise
        return messages

    def _round(self, calls: Sequence[Callable[[], Received]], end: Deadline) -> list[Received]:
        """What came of all; a request that fails brings nothing, and the next pop meets it."""
        tasks = [self._threads.run(call, self._hand_back) for call in calls]
        came: list[Received] = []
        try:
            for task in tasks:
                try:
                    came.append(self._result(task, end))
                except QueueClosed:
                    raise
                except QueueError as error:
                    _log.debug("a request of a pop failed: %s", error)
        except BaseException:
            for task in tasks:
                self._leave(task)
            for each in came:
                self._hand_back_later(each.messages)
            raise
        return came

    def _result(self, task: Task[T], end: Deadline) -> T:
        """The result of a task, which a close ends."""
        with self._lock:
            self._waiting.add(task)
        try:
            self._gate.check()
            return task.result(end)
        except TimeoutError as late:
            self._leave(task)
            error = BackendError(f"{self._service.place}: no answer in time", outcome_unknown=True)
            raise error from late
        except CancelledError:
            self._gate.check()
            raise
        except QueueClosed:
            self._leave(task)
            raise
        except KeyboardInterrupt:
            self._leave(task)
            raise
        finally:
            with self._lock:
                self._waiting.discard(task)

    def _leave(self, task: Task[Any]) -> None:
        task.leave()
        if isinstance(found := task.unclaimed_result(), Received):
            self._hand_back_later(found.messages)

    def _receive(
        self, queue_name: str, place: Place, most: int, wait: int, end: Deadline
    ) -> Received:
        """One request and what it takes to own what it brought; in a thread of a task."""
        begun = _clock.seconds()
        came = self._service.receive(place.url, most, self._lease_seconds, wait, end)
        # What took longer than the poll was on its way, and its leases have begun meanwhile.
        late = timedelta(seconds=max(0.0, _clock.seconds() - begun - wait))
        messages: list[Message] = []
        unreadable: list[tuple[dict[str, Any], str]] = []
        for each in came:
            try:
                envelope = opened(each)
            except UnreadableEnvelope as reason:
                unreadable.append((each, str(reason)))
            else:
                messages.append(self._message(queue_name, place, each, envelope, late))
        if unreadable:
            self._aside.put(queue_name, place, unreadable, end)
        owned = [each for each in messages if _delivery(each).is_owned]
        return Received(self._with_own_leases(place, owned, end), len(came))

    def _message(
        self,
        queue_name: str,
        place: Place,
        received: dict[str, Any],
        envelope: Envelope,
        late: timedelta,
    ) -> Message:
        """It belongs to the queue that it was found in, where an operator may have moved it."""
        lease = (
            None if envelope.visibility_us is None else from_microseconds(envelope.visibility_us)
        )
        count = int(received.get("Attributes", {}).get("ApproximateReceiveCount", 1))
        delivery = SQSDelivery(
            self._owner,
            queue_name,
            envelope,
            place=place,
            handle=received["ReceiptHandle"],
            message_id=received["MessageId"],
            attempt=envelope.attempt_base + count,
            lease=(lease or self._lease) - late,
        )
        with self._lock:
            older = self._newest.get((place.url, delivery.message_id))
            self._newest[place.url, delivery.message_id] = delivery
        if older is not None:
            older.over = True
        return Message(
            queue_name,
            envelope.payload,
            envelope.job_name,
            envelope.namespace,
            envelope.id,
            envelope.extra,
            visibility_timeout=lease,
            attempt=delivery.attempt,
            driver_data=delivery,
        )

    def _with_own_leases(
        self, place: Place, messages: list[Message], end: Deadline
    ) -> list[Message]:
        """Messages that name a lease get it; one that cannot is left for another time."""
        changes: dict[int, int] = {}
        for number, message in enumerate(messages):
            if message.visibility_timeout is not None:
                seconds = whole_seconds(to_microseconds(message.visibility_timeout))
                if seconds != self._lease_seconds:
                    changes[number] = seconds
        if not changes:
            return messages
        fates = self._service.change_visibility(
            place.url,
            [(_delivery(messages[number]).handle, seconds) for number, seconds in changes.items()],
            end,
        )
        failed = {
            number: fate
            for (number, seconds), fate in zip(changes.items(), fates, strict=True)
            # One that was to be shorter ends here in time, and at SQS a little later.
            if fate is not None and seconds > self._lease_seconds
        }
        kept = [each for number, each in enumerate(messages) if number not in failed]
        if failed and not kept:
            raise next(iter(failed.values()))
        return kept

    def _hand_back_later(self, messages: Sequence[Message]) -> None:
        if messages:
            self._threads.run(partial(self._hand_back, Received(list(messages), len(messages))))

    def _hand_back(self, received: Received) -> None:
        """Let others have at once what reached nobody."""
        end = Deadline(self._operation_timeout)
        for chunk in chunked(map(_delivery, received.messages), MAX_ENTRIES):
            for delivery in chunk:
                delivery.over = True
            self._service.change_visibility(
                chunk[0].place.url, [(each.handle, 0) for each in chunk], end
            )


def _delivery(message: Message) -> SQSDelivery:
    assert isinstance(message.driver_data, SQSDelivery)  # noqa: S101 - it was put there above
    return message.driver_data
