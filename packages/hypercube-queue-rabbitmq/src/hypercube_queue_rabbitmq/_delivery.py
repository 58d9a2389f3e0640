"""What identifies a delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypercube_queue.driver import Delivery

if TYPE_CHECKING:
    from hypercube_queue_rabbitmq._consuming import ConsumingChannel


class RabbitMQDelivery(Delivery):
    """The channel that a delivery came on, its tag there, and what of the message is fixed.

    A tag means nothing on another channel, so a delivery of a lost one can settle nothing.
    """

    __slots__ = ("attempt", "channel", "job_name", "namespace", "tag", "visibility_us")

    def __init__(
        self,
        owner: object,
        queue_name: str,
        id: str,
        *,
        channel: ConsumingChannel,
        tag: int,
        attempt: int,
        job_name: str,
        namespace: str,
        visibility_us: int | None,
    ) -> None:
        super().__init__(owner, queue_name, id)
        self.channel = channel
        self.tag = tag
        self.attempt = attempt
        self.job_name = job_name
        self.namespace = namespace
        self.visibility_us = visibility_us
