"""A message on its way to the broker."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pika import BasicProperties  # type: ignore[import-untyped]  # pika ships no types

from hypercube_queue import QueueError
from hypercube_queue.driver import Envelope, PushItem, SettlementItem, encode_envelope
from hypercube_queue_rabbitmq._delivery import RabbitMQDelivery
from hypercube_queue_rabbitmq._frames import UndecodableProperties

#: Which of a queue's three places at the broker.
Destination: TypeAlias = Literal["work", "dead", "unreadable"]

_PERSISTENT = 2
#: Headers by which the broker would put further copies into other queues, such as this one's own.
_ROUTING = ("CC", "BCC")
_REASON = "x-hypercube-unreadable"
#: What a frame has beside the properties of a message.
_FRAME_OVERHEAD = 32


@dataclass(slots=True, eq=False)
class Outgoing:
    """One message to be published, and what became of it."""

    #: Its position in the caller's arguments.
    index: int
    queue_name: str
    id: str
    body: bytes
    destination: Destination = "work"
    #: How long it waits before it is visible.
    delay_us: int = 0
    #: Set before it is sent: where it goes.
    exchange: str = ""
    routing_key: str = ""
    #: pika's, where they are not the usual ones.
    properties: Any = None
    #: The user that vouches for the attempts in the envelope; the broker takes no other's name.
    user: str | None = None
    #: It was not stored since its delay step was deleted.
    without_step: bool = False
    #: The broker has confirmed it.
    stored: bool = False
    #: Why it was not stored, or may not be.
    error: QueueError | None = None

    def as_properties(self) -> Any:
        """What is sent beside the body."""
        return self.properties or BasicProperties(
            delivery_mode=_PERSISTENT, message_id=self.id, user_id=self.user
        )

    def fail(self, error: QueueError) -> None:
        """Note what became of it, unless that is known already."""
        if not self.stored and self.error is None:
            self.error = error


def pushed(item: PushItem) -> Outgoing:
    """A new message."""
    envelope = Envelope(
        item.queue_name,
        item.id,
        item.payload,
        item.extra,
        item.job_name,
        item.namespace,
        item.visibility_us,
    )
    return Outgoing(
        item.index, item.queue_name, item.id, encode_envelope(envelope), delay_us=item.delay_us
    )


def updated(item: SettlementItem[RabbitMQDelivery], destination: Destination) -> Outgoing:
    """A message with what a worker made of it, in the place of the one that it was given."""
    delivery = item.delivery
    envelope = Envelope(
        delivery.queue_name,
        delivery.id,
        item.payload,
        item.extra,
        delivery.job_name,
        delivery.namespace,
        delivery.visibility_us,
        delivery.attempt,
    )
    return Outgoing(
        item.index,
        delivery.queue_name,
        delivery.id,
        encode_envelope(envelope),
        destination,
        item.delay_us,
    )


def set_aside(
    queue_name: str, body: bytes, original: Any, reason: str, *, max_frame: int
) -> Outgoing:
    """What cannot be read, as it came, with the reason in a header.

    Of properties that cannot be sent on, or with the reason would be too long for a frame, only the
    reason is left.
    """
    properties = copy(original)
    headers = original.headers or {}
    properties.headers = {name: headers[name] for name in headers if name not in _ROUTING}
    properties.headers[_REASON] = reason
    properties.delivery_mode = _PERSISTENT
    properties.expiration = None
    # The broker takes no message in another user's name.
    properties.user_id = None
    if isinstance(original, UndecodableProperties) or not _fits(properties, max_frame):
        properties = BasicProperties(delivery_mode=_PERSISTENT, headers={_REASON: reason})
    id = properties.message_id if isinstance(properties.message_id, str) else ""
    return Outgoing(0, queue_name, id, body, "unreadable", properties=properties)


def _fits(properties: Any, max_frame: int) -> bool:
    try:
        encoded = sum(map(len, properties.encode()))
    except Exception:  # noqa: BLE001 - pika raises many kinds for what it cannot encode again
        return False
    return encoded <= max_frame - _FRAME_OVERHEAD
