"""The portable part of a driver: arguments, batches, errors and closing, written once.

    class MyQueue(BaseRedriver[MyDelivery], BaseReleaser[MyDelivery]):
        def _push(self, items: Sequence[PushItem]) -> ItemErrors: ...
        def _pop(self, queue_name: str, max_messages: int, wait: timedelta) -> list[Message]: ...
        ...

A driver need not be built on it: the contract knows protocols only, and so does the suite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from hypercube_queue._checks import (
    MAX_POP,
    checked_count,
    checked_poll_timeout,
    checked_queue_name,
    checked_visibility,
    checked_wait,
)
from hypercube_queue._errors import QueueClosed, QueueError
from hypercube_queue._guarantees import Guarantees
from hypercube_queue._message import Message
from hypercube_queue.driver._batch import (
    ItemErrors,
    PushBatch,
    PushItem,
    SettlementBatch,
    SettlementItem,
    copy_error,
)
from hypercube_queue.driver._delivery import Delivery
from hypercube_queue.driver._gate import Gate

D = TypeVar("D", bound=Delivery)


class BaseQueue(ABC, Generic[D]):
    """The five operations of a queue over what a driver's store does.

    Each public method enters the gate, checks what the caller passed before anything is sent,
    and calls the method of the same name with an underscore, which the driver implements.

    For a batch that method gets the valid items, at least one, and returns the failures of some
    by their index. A QueueError that it raises instead is the failure of each item (ERR-4); a
    QueueClosed is raised as it is.

    `name` is what errors call the object. `delivery_type` is the driver's own subclass of
    Delivery. `in_child` is called at the first operation in a forked child, see Gate.
    """

    def __init__(
        self,
        name: str,
        delivery_type: type[D],
        *,
        poll_timeout: timedelta,
        visibility_timeout: timedelta,
        in_child: Callable[[], None] | None = None,
    ) -> None:
        self._delivery_type = delivery_type
        self._poll_timeout = checked_poll_timeout(poll_timeout)
        self._visibility_timeout = checked_visibility(visibility_timeout)
        self._gate = Gate(name, in_child=in_child)

    @property
    @abstractmethod
    def guarantees(self) -> Guarantees:
        """See `Queue.guarantees`."""

    # Push

    def push(self, *messages: Message) -> None:
        with self._gate:
            batch = PushBatch(messages, self.guarantees)
            if batch.items:
                try:
                    batch.fail_each(self._push(batch.items))
                except QueueClosed:
                    raise
                except QueueError as error:
                    batch.fail_all(batch.items, partial(copy_error, error))
            batch.raise_failures()

    @abstractmethod
    def _push(self, items: Sequence[PushItem]) -> ItemErrors:
        """Store these, of which no two have the same queue and id (PUSH-1 to PUSH-6)."""

    # Pop

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        with self._gate:
            queue_name = checked_queue_name(queue_name, self.guarantees)
            checked_count("max_messages", max_messages, at_most=MAX_POP)
            return self._pop(queue_name, max_messages, checked_wait(wait, self._poll_timeout))

    @abstractmethod
    def _pop(self, queue_name: str, max_messages: int, wait: timedelta) -> list[Message]:
        """Deliver what is ready, or wait for it (POP-1 to POP-8).

        While it waits it calls `self._gate.check()` whenever it wakes (LIFE-1).
        """

    # Settlement

    def ack(self, *messages: Message) -> None:
        with self._gate:
            self._settle_batch(self._settlement_batch("ack", messages), self._ack)

    @abstractmethod
    def _ack(self, items: Sequence[SettlementItem[D]]) -> ItemErrors:
        """Remove the messages that these deliveries own; `item.stale()` for the others."""

    def retry(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement_batch("retry", messages, contents=True, delay=True)
            self._settle_batch(batch, self._retry)

    @abstractmethod
    def _retry(self, items: Sequence[SettlementItem[D]]) -> ItemErrors:
        """Put the messages back with their new contents, ready after `item.delay_us`."""

    def dead_letter(self, *messages: Message) -> None:
        with self._gate:
            batch = self._settlement_batch("dead_letter", messages, contents=True)
            self._settle_batch(batch, self._dead_letter)

    @abstractmethod
    def _dead_letter(self, items: Sequence[SettlementItem[D]]) -> ItemErrors:
        """Move the messages to the dead letters, with their new contents."""

    # Lifecycle

    def close(self) -> None:
        if self._gate.close():
            self._close()

    @abstractmethod
    def _close(self) -> None:
        """Wake waiting pops, wait for what runs and let go of connections; called once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Internal

    def _settlement_batch(
        self,
        operation: str,
        messages: tuple[Message, ...],
        *,
        contents: bool = False,
        delay: bool = False,
    ) -> SettlementBatch[D]:
        return SettlementBatch(
            operation,
            messages,
            self._delivery_type,
            self,
            self.guarantees,
            contents=contents,
            delay=delay,
        )

    def _settle_batch(
        self,
        batch: SettlementBatch[D],
        settle: Callable[[Sequence[SettlementItem[D]]], ItemErrors],
    ) -> None:
        if batch.items:
            try:
                batch.fail_each(settle(batch.items))
            except QueueClosed:
                raise
            except QueueError as error:
                batch.fail_all(batch.items, partial(copy_error, error))
        batch.raise_failures()
