"""What identifies a delivery, and who is at it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import timedelta

from hypercube_queue.driver import Deadline, Delivery, Envelope
from hypercube_queue_sqs import _clock
from hypercube_queue_sqs._place import Place


class SQSDelivery(Delivery):
    """A receipt handle, until when it is good for anything, and what of the message is fixed.

    SQS takes a stale handle without a word, so the end of the lease is kept here.
    """

    __slots__ = (
        "__weakref__",
        "attempt",
        "busy",
        "deadline",
        "handle",
        "job_name",
        "message_id",
        "moved",
        "namespace",
        "over",
        "place",
        "visibility_us",
    )

    def __init__(
        self,
        owner: object,
        queue_name: str,
        envelope: Envelope,
        *,
        place: Place,
        handle: str,
        message_id: str,
        attempt: int,
        lease: timedelta,
    ) -> None:
        super().__init__(owner, queue_name, envelope.id)
        self.place = place
        self.handle = handle
        self.message_id = message_id
        self.attempt = attempt
        self.job_name = envelope.job_name
        self.namespace = envelope.namespace
        self.visibility_us = envelope.visibility_us
        #: When its lease ends.
        self.deadline = lease_of(lease)
        #: A call is settling or extending it.
        self.busy = False
        #: It was published anew, so all that is left to do is to remove it.
        self.moved = False
        #: It was settled, or this process received the message again.
        self.over = False

    @property
    def is_owned(self) -> bool:
        """Whether it can still be settled."""
        return not self.over and not self.deadline.passed


def lease_of(duration: timedelta) -> Deadline:
    """A lease that begins now."""
    return Deadline(duration, _clock.seconds)


class Claims:
    """Lets one call at a time be at a delivery, so that of two settlements one wins (SET-2)."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def claim(self, deliveries: Sequence[SQSDelivery], end: Deadline) -> bool:
        """Take all of them once nobody else is at any; False if the time is over before."""
        with self._changed:
            free = self._changed.wait_for(
                lambda: not any(each.busy for each in deliveries), end.seconds_left()
            )
            if free:
                for each in deliveries:
                    each.busy = True
            return free

    def release(self, deliveries: Iterable[SQSDelivery]) -> None:
        """Let others at them."""
        with self._changed:
            for each in deliveries:
                each.busy = False
            self._changed.notify_all()
