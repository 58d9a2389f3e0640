"""The options of a queue object."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from hypercube_queue import Guarantees, InvalidArgument
from hypercube_queue.driver import (
    HEADROOM_BYTES,
    MAX_ENVELOPE_OVERHEAD_BYTES,
    QueueURL,
    checked_poll_timeout,
    checked_visibility,
    safe_repr,
)
from hypercube_queue_rabbitmq._ladder import MAX_DELAY, lateness
from hypercube_queue_rabbitmq._names import QUEUE_NAME_PATTERN, checked_prefix

QueueType: TypeAlias = Literal["quorum", "classic"]
QUEUE_TYPES: tuple[QueueType, ...] = ("quorum", "classic")

#: The broker's max_message_size, unless it was told otherwise.
_BROKER_MOST_BYTES = 16 * 1024 * 1024
#: The broker's consumer_timeout, unless it was told otherwise.
BROKER_MAX_HOLD = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a queue object behaves. Raises InvalidArgument."""

    queue_type: QueueType = "quorum"
    declare: bool = True
    prefix: str = ""
    max_hold: timedelta = BROKER_MAX_HOLD
    poll_timeout: timedelta = timedelta(seconds=1)
    visibility_timeout: timedelta = timedelta(seconds=30)
    operation_timeout: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.queue_type not in QUEUE_TYPES:
            raise InvalidArgument(
                f"queue_type is {safe_repr(self.queue_type)}; it takes {' or '.join(QUEUE_TYPES)}"
            )
        checked_prefix(self.prefix)
        checked_visibility(self.max_hold, field="max_hold")
        checked_poll_timeout(self.poll_timeout)
        checked_visibility(self.visibility_timeout)
        checked_visibility(self.operation_timeout, field="operation_timeout")

    @classmethod
    def from_url(cls, url: QueueURL) -> Options:
        """Take the options out of a URL."""
        take = url.options
        queue_type: QueueType = "quorum"
        if take.choice("queue_type", "quorum", QUEUE_TYPES) == "classic":
            queue_type = "classic"
        return cls(
            queue_type=queue_type,
            declare=take.flag("declare", True),
            prefix=take.text("prefix", ""),
            max_hold=take.duration("max_hold", BROKER_MAX_HOLD),
            poll_timeout=take.duration("poll_timeout", timedelta(seconds=1)),
            visibility_timeout=take.duration("visibility_timeout", timedelta(seconds=30)),
            operation_timeout=take.duration("operation_timeout", timedelta(seconds=30)),
        )


def guarantees(options: Options) -> Guarantees:
    """What a queue object with these options promises."""
    return Guarantees(
        durable=True,
        leases=False,
        max_hold=options.max_hold,
        stale_settlement="connection",
        ack_confirmed=False,
        exact_attempts=options.queue_type == "quorum",
        unique_ids="none",
        ordering="fifo",
        queue_name_pattern=QUEUE_NAME_PATTERN,
        bounded_pops=False,
        max_delay=MAX_DELAY,
        delay_lateness=lateness,
        max_message_bytes=_BROKER_MOST_BYTES - HEADROOM_BYTES - MAX_ENVELOPE_OVERHEAD_BYTES,
    )
