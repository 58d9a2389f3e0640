"""The driver object."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from pika.connection import Parameters  # type: ignore[import-untyped]  # pika ships no types

from hypercube_queue import BackendError, Guarantees, InvalidArgument, Message
from hypercube_queue.driver import (
    MAX_POP,
    Closing,
    Gate,
    PushBatch,
    SettlementBatch,
    SettlementItem,
    checked_count,
    checked_queue_name,
    checked_wait,
    copy_error,
)
from hypercube_queue_rabbitmq._client import Client, Fates
from hypercube_queue_rabbitmq._delivery import RabbitMQDelivery
from hypercube_queue_rabbitmq._errors import translation
from hypercube_queue_rabbitmq._names import Names
from hypercube_queue_rabbitmq._options import BROKER_MAX_HOLD, Options, QueueType, guarantees
from hypercube_queue_rabbitmq._outgoing import Destination, pushed, updated
from hypercube_queue_rabbitmq._thread import IOThread
from hypercube_queue_rabbitmq._topology import Topology

T = TypeVar("T")

_KIND = "RabbitMQ queue"
#: How much earlier than the caller the loop gives up, since it knows what was sent, and than the
#: broker the driver gives back, since it counts that: a share of the limit, and seconds at most.
_EARLIER = 0.1
_EARLIER_AT_MOST = 0.5
#: How long `close` waits for the broker to say goodbye.
_GOODBYE = 2.0

#: Threads, loops and sockets of the process that this one was forked from. Were they freed
#: here, they would be closed, and the parent shares them.
_inherited: list[object] = []


class RabbitMQQueue(Closing):
    """A queue on RabbitMQ, through connections of pika's that it makes itself.

    `parameters` say where and as whom; nothing is contacted before the first call. Of several,
    as for the nodes of a cluster, one at random is connected to, and the next that answers
    whenever a connection was lost or given up. One thread with two connections serves all
    callers, as many as there are.

    `queue_type` is "quorum", replicated and with exact attempts, or "classic". With `declare`
    queues and their dead letters are declared when they are first used; otherwise they are
    yours to create. `prefix` starts the broker's names of all of them. Deliveries that are held
    for `max_hold` are given back; it is not to be longer than the broker's consumer_timeout,
    which would do the same and, with RabbitMQ 4.3, without counting it. `poll_timeout` is how
    long a pop waits by default, `operation_timeout` how long any call may take beyond its
    `wait`. There are no leases, so `visibility_timeout` is checked and changes nothing: a
    delivery is held until it is settled, or its connection ends.

    A waiting pop is served by the broker at once (POP-7). In a forked child the queue opens
    its own connections (LIFE-4).
    """

    def __init__(
        self,
        parameters: Parameters | Sequence[Parameters],
        *,
        queue_type: QueueType = "quorum",
        declare: bool = True,
        prefix: str = "",
        max_hold: timedelta = BROKER_MAX_HOLD,
        poll_timeout: timedelta = timedelta(seconds=1),
        visibility_timeout: timedelta = timedelta(seconds=30),
        operation_timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        self._places = _checked(parameters)
        self._options = Options(
            queue_type=queue_type,
            declare=declare,
            prefix=prefix,
            max_hold=max_hold,
            poll_timeout=poll_timeout,
            visibility_timeout=visibility_timeout,
            operation_timeout=operation_timeout,
        )
        self._guarantees = guarantees(self._options)
        hosts = ",".join(f"{each.host}:{each.port}" for each in self._places)
        self._place = f"rabbitmq {hosts} vhost {self._places[0].virtual_host!r}"
        self._gate = Gate(_KIND, in_child=self._begin_in_child)
        self._begin()

    @property
    def guarantees(self) -> Guarantees:
        return self._guarantees

    # Push

    def push(self, *messages: Message) -> None:
        with self._gate:
            batch = PushBatch(messages, self._guarantees)
            if batch.items:
                outgoing = [pushed(item) for item in batch.items]
                try:
                    self._run(lambda end: self._client.push(outgoing, end))
                except BackendError as error:
                    original = error
                    batch.fail_all(batch.items, lambda: copy_error(original))
                for each in outgoing:
                    if each.error is not None:
                        batch.fail_at(each.index, each.error)
            batch.raise_failures()

    # Pop

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self._guarantees)
            checked_count("max_messages", max_messages, at_most=MAX_POP)
            waiting = checked_wait(wait, self._options.poll_timeout).total_seconds()
            # The loop's clock is this one.
            until = time.monotonic() + waiting
            return self._run(
                lambda end: self._client.pop(self, queue_name, max_messages, until, end),
                waiting,
                unclaimed=self._client.hand_back,
            )

    # Settlement

    def ack(self, *messages: Message) -> None:
        with self._gate:
            batch = SettlementBatch("ack", messages, RabbitMQDelivery, self, self._guarantees)
            self._settle(batch, batch.items, lambda end: self._client.ack(batch.items, end))

    def retry(self, *messages: Message) -> None:
        with self._gate:
            batch = SettlementBatch(
                "retry",
                messages,
                RabbitMQDelivery,
                self,
                self._guarantees,
                contents=True,
                delay=True,
            )
            self._move(batch, "work")

    def dead_letter(self, *messages: Message) -> None:
        with self._gate:
            batch = SettlementBatch(
                "dead_letter", messages, RabbitMQDelivery, self, self._guarantees, contents=True
            )
            self._move(batch, "dead")

    # Capabilities

    def redrive(self, queue_name: str, count: int) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self._guarantees)
            checked_count("count", count)
            return self._run(lambda end: self._client.redrive(queue_name, count, end))

    # Lifecycle

    def create_nothing(self) -> None:
        """Leave queues to the operator from now on, as with `declare` false.

        For tools that look after a queue, and must not make one of a mistyped name.
        """
        self._options = replace(self._options, declare=False)
        self._topology.declare_nothing()

    def close(self) -> None:
        if self._gate.close() and self._thread.is_running:
            reason = f"this {_KIND} was closed while a pop waited"
            self._thread.post(lambda: self._client.wake_all(reason))
            self._gate.wait_until_empty(self._options.operation_timeout)
            with contextlib.suppress(TimeoutError):  # the thread is stopped in any case
                self._thread.call(lambda: self._client.close(_GOODBYE), 3 * _GOODBYE)
            self._thread.stop(_GOODBYE)

    # Within

    def _begin(self) -> None:
        options = self._options
        self._thread = IOThread()
        self._topology = Topology(
            Names(options.prefix), options.queue_type, declare=options.declare
        )
        self._client = Client(
            self._named("publishing"),
            self._named("consuming"),
            self._topology,
            self._place,
            counts_attempts=self._guarantees.exact_attempts,
            max_hold=_earlier(options.max_hold),
        )

    def _begin_in_child(self) -> None:
        _inherited.append((self._thread, self._client))
        self._begin()

    def _named(self, purpose: str) -> list[Parameters]:
        """The parameters with what must hold for every call to end in time."""
        named = [copy.copy(each) for each in self._places]
        # One that does not answer must leave time for those behind it.
        seconds = self._options.operation_timeout.total_seconds() / len(named)
        for parameters in named:
            parameters.connection_attempts = 1
            parameters.socket_timeout = parameters.stack_timeout = seconds
            # The other connection has to go on working, and this one tells at once.
            parameters.blocked_connection_timeout = None
            parameters.client_properties = {
                **(parameters.client_properties or {}),
                "connection_name": f"hypercube {purpose}",
            }
        return named

    def _run(
        self,
        make: Callable[[float], Coroutine[Any, Any, T]],
        waiting: float = 0,
        *,
        unclaimed: Callable[[T], None] | None = None,
    ) -> T:
        """Run a call of the client's, which ends in time."""
        seconds = self._options.operation_timeout.total_seconds()
        end = time.monotonic() + waiting + _earlier(self._options.operation_timeout)
        try:
            return self._thread.call(lambda: make(end), waiting + seconds, unclaimed=unclaimed)
        except (TimeoutError, CancelledError) as error:
            raise translation(error, self._place, sent=True) from error

    def _settle(
        self,
        batch: SettlementBatch[RabbitMQDelivery],
        items: Sequence[SettlementItem[RabbitMQDelivery]],
        settle: Callable[[float], Coroutine[Any, Any, Fates]],
    ) -> None:
        if items:
            try:
                for item, error in self._run(settle):
                    if error is None:
                        batch.fail_stale(item)
                    else:
                        batch.fail(item, error)
            except BackendError as failure:
                original = failure
                batch.fail_all(items, lambda: copy_error(original))
        batch.raise_failures()

    def _move(self, batch: SettlementBatch[RabbitMQDelivery], destination: Destination) -> None:
        ready = batch.prepared(lambda item: updated(item, destination))
        items = [item for item, _ in ready]
        outgoing = [each for _, each in ready]
        self._settle(batch, items, lambda end: self._client.move(items, outgoing, end))


def _checked(parameters: object) -> tuple[Parameters, ...]:
    places = tuple(parameters) if isinstance(parameters, list | tuple) else (parameters,)
    if not places:
        raise InvalidArgument("parameters are empty; they name one broker at least")
    for each in places:
        if not isinstance(each, Parameters):
            raise InvalidArgument(
                f"parameters are a pika.ConnectionParameters or several, not "
                f"{type(each).__name__}; open_queue takes a URL, and AsyncQueue makes the queue "
                "asynchronous"
            )
    return places


def _earlier(limit: timedelta) -> float:
    seconds = limit.total_seconds()
    return seconds - min(_EARLIER * seconds, _EARLIER_AT_MOST)
