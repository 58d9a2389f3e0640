"""From what the broker delivers to messages."""

from __future__ import annotations

from hypercube_queue import Message
from hypercube_queue.driver import checked_envelope, from_microseconds
from hypercube_queue_rabbitmq._consuming import Arrival
from hypercube_queue_rabbitmq._delivery import RabbitMQDelivery

#: How often a quorum queue lost a delivery before this one. Its `x-acquired-count` is of no use:
#: it also counts what was on its way to a consumer that was just being cancelled.
_COUNT = "x-delivery-count"


def received(arrival: Arrival, owner: object, queue_name: str) -> Message:
    """The message of a delivery; raises UnreadableEnvelope.

    It belongs to the queue that it was found in, where an operator may have moved it.
    """
    envelope = checked_envelope(arrival.body)
    attempt = envelope.attempt_base + delivered_before(arrival) + 1
    delivery = RabbitMQDelivery(
        owner,
        queue_name,
        envelope.id,
        channel=arrival.channel,
        tag=arrival.tag,
        attempt=attempt,
        job_name=envelope.job_name,
        namespace=envelope.namespace,
        visibility_us=envelope.visibility_us,
    )
    return Message(
        queue_name,
        envelope.payload,
        envelope.job_name,
        envelope.namespace,
        envelope.id,
        envelope.extra,
        visibility_timeout=(
            None if envelope.visibility_us is None else from_microseconds(envelope.visibility_us)
        ),
        attempt=attempt,
        driver_data=delivery,
    )


def delivered_before(arrival: Arrival) -> int:
    """How often the broker handed this copy of the message out, without this time."""
    headers = arrival.properties.headers or {}
    count = headers.get(_COUNT)
    if count is not None or "x-acquired-count" in headers:
        return int(count or 0)
    # A classic queue knows of one delivery at least, or of none.
    return int(arrival.redelivered)
