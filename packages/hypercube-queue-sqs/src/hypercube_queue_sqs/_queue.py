"""The driver object."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

from hypercube_queue import BackendError, Guarantees, InvalidArgument, Message
from hypercube_queue.driver import (
    MAX_POP,
    Closing,
    Deadline,
    Gate,
    PushBatch,
    SettlementBatch,
    checked_count,
    checked_queue_name,
    checked_wait,
    to_microseconds,
)
from hypercube_queue_sqs._clients import Clients, Opened
from hypercube_queue_sqs._delivery import SQSDelivery
from hypercube_queue_sqs._directory import Directory
from hypercube_queue_sqs._ids import PROCESS_IDS, IDStore
from hypercube_queue_sqs._names import Names
from hypercube_queue_sqs._options import Options, guarantees
from hypercube_queue_sqs._pushing import Pushing
from hypercube_queue_sqs._receiving import Receiving
from hypercube_queue_sqs._redriving import Redriving
from hypercube_queue_sqs._service import Service
from hypercube_queue_sqs._settling import Settling
from hypercube_queue_sqs._threads import Threads

_KIND = "SQS queue"

#: Clients and threads of the process that this one was forked from. Were they freed here, they
#: would be closed, and the parent shares their sockets.
_inherited: list[object] = []


class SQSQueue(Closing):
    """A queue on Amazon SQS, through a boto3 client.

    `client` is a boto3 SQS client and stays the caller's. Give its Config a read time-out over 20
    seconds, as many connections as threads pop at once beside `connections`, and no retries: what
    boto3 repeats by itself it may store twice. `open_queue` makes clients that are set so.

    `ids` knows which ids are taken: by default a store of this process, None for nobody. `prefix`
    starts AWS's names of all queues, `dead_letter_suffix` ends those of their dead letters. The
    queues are yours to create, unless `ensure_queues`. `connections` is how many requests are made
    at once. `poll_timeout` is how long a pop waits by default, `visibility_timeout` how long a
    delivery owns a message that names no time of its own, `operation_timeout` how long any call
    may take beyond its `wait`. Nothing is contacted before the first call.

    A waiting pop is a long poll, so SQS serves it at once (POP-7); one that waits for nothing
    still takes a second before it says that a queue is empty. In a forked child only a queue that
    `open_queue` made goes on working (LIFE-4).
    """

    _options: Options
    _directory: Directory

    def __init__(
        self,
        client: Any,
        *,
        ids: IDStore | None = PROCESS_IDS,
        prefix: str = "",
        dead_letter_suffix: str = "-dead",
        ensure_queues: bool = False,
        connections: int = 8,
        poll_timeout: timedelta = timedelta(seconds=20),
        visibility_timeout: timedelta = timedelta(seconds=30),
        operation_timeout: timedelta = timedelta(seconds=30),
    ) -> None:
        if not callable(getattr(client, "receive_message", None)):
            raise InvalidArgument(
                f"client is a boto3 SQS client, not {type(client).__name__}; open_queue takes a "
                "URL, and AsyncQueue makes the queue asynchronous"
            )
        if ids is not None and not isinstance(ids, IDStore):
            raise InvalidArgument(f"ids is an IDStore or None, not {type(ids).__name__}")
        options = Options(
            prefix=prefix,
            dead_letter_suffix=dead_letter_suffix,
            ensure_queues=ensure_queues,
            connections=connections,
            poll_timeout=poll_timeout,
            visibility_timeout=visibility_timeout,
            operation_timeout=operation_timeout,
        )
        self._set_up(
            Clients(lambda: Opened(client, client, ids, close=lambda: None)),
            f"sqs {client.meta.region_name} at {client.meta.endpoint_url}",
            options,
            knows_ids=ids is not None,
        )
        self._gate = Gate(_KIND, in_child=_refuse_in_child)
        self._begin()

    @classmethod
    def _opened(cls, clients: Clients, place: str, options: Options, *, knows_ids: bool) -> Self:
        """A queue with clients of its own."""
        self = cls.__new__(cls)
        self._set_up(clients, place, options, knows_ids=knows_ids)
        self._gate = Gate(_KIND, in_child=self._begin_in_child)
        self._begin()
        return self

    @property
    def guarantees(self) -> Guarantees:
        return self._guarantees

    # Push

    def push(self, *messages: Message) -> None:
        with self._gate:
            batch = PushBatch(messages, self._guarantees)
            if batch.items:
                self._pushing.push(batch, self._end())
            batch.raise_failures()

    # Pop

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self._guarantees)
            checked_count("max_messages", max_messages, at_most=MAX_POP)
            waiting = checked_wait(wait, self._options.poll_timeout)
            end = Deadline(waiting + self._options.operation_timeout)
            return self._receiving.pop(queue_name, max_messages, waiting, end)

    # Settlement

    def ack(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("ack", messages)
            if batch.items:
                self._settling.ack(batch, self._end())
            batch.raise_failures()

    def retry(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("retry", messages, contents=True, delay=True)
            if batch.items:
                self._settling.retry(batch, self._end())
            batch.raise_failures()

    def dead_letter(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement("dead_letter", messages, contents=True)
            if batch.items:
                self._settling.dead_letter(batch, self._end())
            batch.raise_failures()

    # Capabilities

    @property
    def visibility_timeout(self) -> timedelta:
        return self._options.visibility_timeout

    def extend_visibility(self, extension: timedelta, *messages: Message) -> None:
        with self._gate:
            batch = SettlementBatch(
                "extend_visibility",
                messages,
                SQSDelivery,
                self,
                self._guarantees,
                extension=extension,
            )
            if batch.items:
                self._settling.extend(batch, to_microseconds(extension), self._end())
            batch.raise_failures()

    def redrive(self, queue_name: str, count: int) -> int:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self._guarantees)
            checked_count("count", count)
            return self._redriving.redrive(queue_name, count, self._end())

    # Lifecycle

    def create_nothing(self) -> None:
        """Leave queues to the operator from now on, as with `ensure_queues` false.

        For tools that look after a queue, and must not make one of a mistyped name.
        """
        self._options = replace(self._options, ensure_queues=False)
        self._directory.ensure_nothing()

    def close(self) -> None:
        # What a child inherited and did not use is the parent's.
        if self._gate.close() and self._process == os.getpid():
            self._receiving.wake_all()
            self._gate.wait_until_empty(self._options.operation_timeout)
            # A poll that was left has up to twenty seconds to go, and hands back what comes.
            self._clients.used_by(2)
            self._threads.close(self._clients.done)
            self._polls.close(self._clients.done)

    # Within

    def _set_up(self, clients: Clients, place: str, options: Options, *, knows_ids: bool) -> None:
        self._clients = clients
        self._place = place
        self._options = options
        self._guarantees = guarantees(options, knows_ids=knows_ids)

    def _begin(self) -> None:
        options = self._options
        self._process = os.getpid()
        self._threads = Threads("hypercube-sqs", options.connections)
        self._polls = Threads("hypercube-sqs-poll", None)
        service = Service(self._clients, self._place)
        directory = Directory(
            service,
            Names(options.prefix, options.dead_letter_suffix),
            ensure_queues=options.ensure_queues,
        )
        self._directory = directory
        self._pushing = Pushing(
            self._clients, service, directory, self._threads, options.operation_timeout
        )
        self._receiving = Receiving(
            self,
            self._gate,
            service,
            directory,
            threads=self._threads,
            polls=self._polls,
            options=options,
        )
        self._settling = Settling(self._clients, service, directory, self._threads)
        self._redriving = Redriving(service, directory, self._threads, options)

    def _begin_in_child(self) -> None:
        _inherited.append((self._clients, self._threads, self._polls, self._receiving))
        self._clients = self._clients.anew()
        self._begin()

    def _end(self) -> Deadline:
        return Deadline(self._options.operation_timeout)

    def _settlement(
        self,
        operation: str,
        messages: tuple[Message, ...],
        *,
        contents: bool = False,
        delay: bool = False,
    ) -> SettlementBatch[SQSDelivery]:
        return SettlementBatch(
            operation,
            messages,
            SQSDelivery,
            self,
            self._guarantees,
            contents=contents,
            delay=delay,
        )


def _refuse_in_child() -> None:
    raise BackendError(
        f"this {_KIND} has a client of the process that this one was forked from; make a client "
        "and a queue after the fork"
    )
