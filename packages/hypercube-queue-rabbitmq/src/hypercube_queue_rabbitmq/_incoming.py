"""From what the broker delivers to messages."""

from __future__ import annotations

from hypercube_queue import Message
from hypercube_queue.driver import (
    MAX_ATTEMPT_BASE,
    Envelope,
    UnreadableEnvelope,
    checked_envelope,
    from_microseconds,
)
from hypercube_queue_rabbitmq._consuming import Arrival
from hypercube_queue_rabbitmq._delivery import RabbitMQDelivery
from hypercube_queue_rabbitmq._frames import UndecodableProperties

#: How often a quorum queue lost a delivery before this one. Its `x-acquired-count` is of no use:
#: it also counts what was on its way to a consumer that was just being cancelled.
_COUNT = "x-delivery-count"


def received(
    arrival: Arrival, owner: object, queue_name: str, *, counts_attempts: bool, user: str | None
) -> Message:
    """The message of a delivery; raises UnreadableEnvelope.

    It belongs to the queue that it was found in, where an operator may have moved it. Earlier
    deliveries that its envelope tells of count if `user` published it, see `attempts_of`.
    """
    envelope = checked_envelope(arrival.body)
    before = delivered_before(arrival, counts_attempts=counts_attempts)
    attempt = attempts_of(envelope, arrival, user) + before + 1
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


def attempts_of(envelope: Envelope, arrival: Arrival, user: str | None) -> int:
    """The deliveries of earlier copies of a message, as the user who settled them wrote it down.

    Another user may only publish, and could make any job look as if it had been lost before. The
    broker has checked the name. Without a `user` name of our own everyone is believed.
    """
    return envelope.attempt_base if user in {None, arrival.properties.user_id} else 0


def delivered_before(arrival: Arrival, *, counts_attempts: bool) -> int:
    """How often the broker handed this copy of the message out before.

    Raises UnreadableEnvelope where that cannot be known: who publishes can write these headers, and
    the broker leaves them alone until it has something to count.
    """
    if isinstance(arrival.properties, UndecodableProperties):
        raise UnreadableEnvelope(f"its properties cannot be decoded: {arrival.properties.reason}")
    headers = arrival.properties.headers or {}
    if counts_attempts and (_COUNT in headers or "x-acquired-count" in headers):
        count = headers.get(_COUNT, 0)
        if not isinstance(count, int) or isinstance(count, bool):
            raise UnreadableEnvelope(
                f"the header {_COUNT} is a {type(count).__name__}, not a number of deliveries"
            )
        if not 0 <= count <= MAX_ATTEMPT_BASE:
            raise UnreadableEnvelope(
                f"the header {_COUNT} is {count}; it takes 0 to {MAX_ATTEMPT_BASE}"
            )
        return int(count)
    # A classic queue knows of one delivery at least, or of none.
    return int(arrival.redelivered)
