"""One call's messages on their way through a driver: checked items in, one BatchError out.

Every batch operation of every driver has the shape that BaseQueue gives it:

    with self._gate:                                        # closed queues refuse here
        batch = PushBatch(messages, self.guarantees)        # or SettlementBatch
        batch.fail_each(...)                                # what the store answers
        batch.raise_failures()
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Protocol, TypeAlias, TypeVar

from hypercube_queue._checks import (
    HEADROOM_BYTES,
    checked_bytes,
    checked_delay,
    checked_name,
    checked_queue_name,
    checked_size,
    checked_visibility,
    safe_repr,
)
from hypercube_queue._errors import (
    AlreadyExists,
    BackendError,
    BatchError,
    InvalidArgument,
    ItemFailure,
    NotFound,
    QueueError,
)
from hypercube_queue._guarantees import Guarantees
from hypercube_queue._ids import new_id, new_ids
from hypercube_queue._message import Message
from hypercube_queue._times import to_microseconds
from hypercube_queue.driver._delivery import Delivery

D = TypeVar("D", bound=Delivery)
T = TypeVar("T")

#: The failures of some items of a batch, by the items' index; empty where all succeeded.
ItemErrors: TypeAlias = dict[int, QueueError]

#: None is what a caller may have passed by mistake, and must be told about.
_NO_EXTENSION = object()


class Indexed(Protocol):
    """An item that knows its position in the caller's arguments."""

    @property
    def index(self) -> int:
        """The position in the caller's arguments, from zero, across chunks (ERR-2)."""
        ...


class Failures:
    """Collects the failures of one call, by the caller's indexes, for one BatchError."""

    def __init__(self, operation: str, messages: Sequence[object]) -> None:
        self._operation = operation
        self._messages = messages
        self._errors: dict[int, QueueError] = {}

    def __bool__(self) -> bool:
        return bool(self._errors)

    def error_at(self, index: int) -> QueueError | None:
        """The failure noted for this index, if any."""
        return self._errors.get(index)

    def fail(self, item: Indexed, error: QueueError) -> None:
        """Note that this item failed. The first failure of an item stays."""
        self.fail_at(item.index, error)

    def fail_at(self, index: int, error: QueueError) -> None:
        """`fail`, by index."""
        self._errors.setdefault(index, error)

    def fail_each(self, errors: Mapping[int, QueueError]) -> None:
        """Note the failure of each of these items."""
        for index, error in errors.items():
            self.fail_at(index, error)

    def fail_all(self, items: Iterable[Indexed], make: Callable[[], QueueError]) -> None:
        """Note a failure for each item, each with an error object of its own (ERR-4)."""
        for item in items:
            if item.index not in self._errors:
                self._errors[item.index] = make()

    def raise_failures(self) -> None:
        """Raise one BatchError if anything failed (ERR-1)."""
        if self._errors:
            failed = [
                ItemFailure(index, self._messages[index], error)
                for index, error in self._errors.items()
            ]
            raise BatchError(
                f"{self._operation}: {len(failed)} of {len(self._messages)} failed", failed
            )


def copy_error(error: QueueError) -> QueueError:
    """An equal error for another item of the batch (ERR-4)."""
    other = copy.copy(error)
    other.__cause__ = error.__cause__
    return other


@dataclass(slots=True)
class PushItem:
    """A checked snapshot of one pushed message; what the caller does now changes nothing."""

    index: int
    queue_name: str
    id: str
    payload: bytes
    extra: bytes
    job_name: str
    namespace: str
    delay_us: int
    #: None means the driver's default.
    visibility_us: int | None

    def exists(self) -> AlreadyExists:
        """The failure of an item whose id its queue retains (PUSH-4)."""
        return AlreadyExists(
            f"id {safe_repr(self.id)} is retained in queue {safe_repr(self.queue_name)}; it is "
            "free again once that message is acknowledged or forgotten"
        )


class PushBatch(Failures):
    """The valid messages of a push, as snapshots with ids assigned.

    Items that are no valid Message have already failed (PUSH-7). Of two equal ids for one
    queue only the first is among `items` (PUSH-4); what becomes of the other is decided by
    the first one's fate, in `raise_failures`.
    """

    items: list[PushItem]

    def __init__(self, messages: Sequence[Message], guarantees: Guarantees) -> None:
        super().__init__("push", messages)
        self.items = []
        self._repeated: list[tuple[int, PushItem]] = []
        first: dict[tuple[str, str], PushItem] = {}
        next_id = new_id if len(messages) == 1 else new_ids(len(messages)).__next__
        for index, message in enumerate(messages):
            try:
                item = _push_item(index, message, guarantees, next_id)
            except QueueError as error:
                self.fail_at(index, error)
                continue
            earlier = first.setdefault((item.queue_name, item.id), item)
            if earlier is item:
                self.items.append(item)
            else:
                self._repeated.append((index, earlier))

    def fail_existing(self, item: PushItem) -> None:
        """Note that the item's id is retained in its queue."""
        self.fail(item, item.exists())

    def raise_failures(self) -> None:
        for index, earlier in self._repeated:
            fate = self.error_at(earlier.index)
            if fate is None or isinstance(fate, AlreadyExists):
                self.fail_at(index, earlier.exists())
            else:
                unsent = BackendError(
                    f"not sent: it repeats the id {safe_repr(earlier.id)} of item {earlier.index}, "
                    "which failed",
                    outcome_unknown=isinstance(fate, BackendError) and fate.outcome_unknown,
                    permanent=isinstance(fate, BackendError) and fate.permanent,
                )
                unsent.__cause__ = fate
                self.fail_at(index, unsent)
        super().raise_failures()


def _push_item(
    index: int, message: object, guarantees: Guarantees, next_id: Callable[[], str]
) -> PushItem:
    if not isinstance(message, Message):
        raise InvalidArgument(f"expected a Message, got {type(message).__name__}")
    queue_name = checked_queue_name(message.queue_name, guarantees)
    payload = checked_bytes("payload", message.payload)
    extra = checked_bytes("extra", message.extra)
    checked_size(payload, extra, guarantees.max_message_bytes)
    job_name = checked_name("job_name", message.job_name, may_be_empty=True)
    namespace = checked_name("namespace", message.namespace, may_be_empty=True)
    delay = checked_delay(message.delay, guarantees.max_delay)
    delay_us = to_microseconds(delay) if delay else 0
    visibility_us = None
    if message.visibility_timeout is not None:
        visibility_us = to_microseconds(
            checked_visibility(message.visibility_timeout, guarantees.max_visibility)
        )
    message_id = checked_name("id", message.id, may_be_empty=True)
    if not message_id:
        # Only now, when nothing can make the item invalid any more.
        message_id = message.id = next_id()
    return PushItem(
        index, queue_name, message_id, payload, extra, job_name, namespace, delay_us, visibility_us
    )


@dataclass(slots=True)
class SettlementItem(Generic[D]):
    """One delivery to be settled, with a snapshot of what the worker may have changed."""

    index: int
    message: Message
    delivery: D
    payload: bytes
    extra: bytes
    delay_us: int

    def stale(self) -> NotFound:
        """The failure of a delivery that no longer owns its message (SET-2)."""
        return NotFound(
            f"the delivery of message {safe_repr(self.delivery.id)} no longer owns it: its lease "
            "ended, or it was settled or delivered again. Nothing was changed"
        )


class SettlementBatch(Failures, Generic[D]):
    """The deliveries of a settlement that this driver object handed out.

    `delivery_type` is the driver's own subclass of Delivery, `owner` the driver object.
    Anything that is no Message, and with `contents` any invalid payload, extra or delay, has
    already failed with InvalidArgument and is still owned (OWN-4). A message that `owner`
    never delivered, and the second of two equal deliveries, has failed with NotFound (SET-2,
    SET-5). Identity and routing come from the delivery, not from the message's fields.
    """

    items: list[SettlementItem[D]]

    def __init__(
        self,
        operation: str,
        messages: Sequence[Message],
        delivery_type: type[D],
        owner: object,
        guarantees: Guarantees,
        *,
        contents: bool = False,
        delay: bool = False,
        extension: object = _NO_EXTENSION,
    ) -> None:
        super().__init__(operation, messages)
        self.items = []
        seen: set[int] = set()
        limit = guarantees.max_message_bytes
        for index, message in enumerate(messages):
            try:
                if not isinstance(message, Message):
                    raise InvalidArgument(f"expected a Message, got {type(message).__name__}")
                delivery = message.driver_data
                if not isinstance(delivery, delivery_type) or delivery.owner is not owner:
                    raise NotFound(
                        f"message {safe_repr(message.id)} was not delivered by this queue object; "
                        "settle a delivery through the object that popped it"
                    )
                if id(delivery) in seen:
                    raise NotFound(
                        f"message {safe_repr(delivery.id)} is in this batch twice; the first "
                        "settles it"
                    )
                payload = extra = b""
                if contents:
                    payload = checked_bytes("payload", message.payload)
                    extra = checked_bytes("extra", message.extra)
                    checked_size(payload, extra, limit and limit + HEADROOM_BYTES)
                delay_us = 0
                if delay:
                    delay_us = to_microseconds(checked_delay(message.delay, guarantees.max_delay))
                if extension is not _NO_EXTENSION:
                    _check_extension(extension, delivery, guarantees)
            except QueueError as error:
                self.fail_at(index, error)
                continue
            seen.add(id(delivery))
            self.items.append(SettlementItem(index, message, delivery, payload, extra, delay_us))

    def prepared(
        self, prepare: Callable[[SettlementItem[D]], T]
    ) -> list[tuple[SettlementItem[D], T]]:
        """`prepare_each` for the items of this batch, with the failures noted."""
        ready, errors = prepare_each(self.items, prepare)
        self.fail_each(errors)
        return ready

    def fail_stale(self, item: SettlementItem[D]) -> None:
        """Note that the delivery no longer owns its message."""
        self.fail(item, item.stale())


def prepare_each(
    items: Iterable[SettlementItem[D]], prepare: Callable[[SettlementItem[D]], T]
) -> tuple[list[tuple[SettlementItem[D], T]], ItemErrors]:
    """The items, each with what `prepare` makes of it, and the failures of those it raised for.

    Any exception counts: content that other programs stored may meet a limit that no check
    foresaw, and must not keep the rest from being settled.
    """
    ready: list[tuple[SettlementItem[D], T]] = []
    errors: ItemErrors = {}
    for item in items:
        try:
            ready.append((item, prepare(item)))
        except QueueError as error:
            errors[item.index] = error
        except Exception as error:  # noqa: BLE001  # see above
            failure = BackendError(
                f"message {safe_repr(item.delivery.id)} cannot be stored: "
                f"{type(error).__name__}: {error}"
            )
            failure.__cause__ = error
            errors[item.index] = failure
    return ready, errors


def _check_extension(value: object, delivery: Delivery, guarantees: Guarantees) -> None:
    extension = checked_visibility(value, field="extension")
    left = max(timedelta(0), guarantees.max_visibility - delivery.held_for())
    if extension > left:
        raise InvalidArgument(
            f"extension is {extension}; this backend lets a delivery be held for at most "
            f"{guarantees.max_visibility} from its pop, of which {left} is left"
        )
