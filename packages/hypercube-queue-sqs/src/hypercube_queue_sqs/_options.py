"""The options of a queue object."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hypercube_queue import Guarantees, InvalidArgument
from hypercube_queue.driver import (
    HEADROOM_BYTES,
    QueueURL,
    checked_count,
    checked_poll_timeout,
    checked_visibility,
)
from hypercube_queue_sqs._names import checked_prefix, checked_suffix, queue_name_pattern
from hypercube_queue_sqs._wire import MAX_CONTENT_BYTES, MAX_VISIBILITY

MAX_DELAY = timedelta(minutes=15)
MAX_RETENTION = timedelta(days=14)
#: SQS counts delays, leases and waits in these.
RESOLUTION = timedelta(seconds=1)
#: More would be of no use to anybody; a client keeps so many connections.
MOST_CONNECTIONS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a queue object behaves. Raises InvalidArgument."""

    prefix: str = ""
    dead_letter_suffix: str = "-dead"
    ensure_queues: bool = False
    connections: int = 8
    poll_timeout: timedelta = timedelta(seconds=20)
    visibility_timeout: timedelta = timedelta(seconds=30)
    operation_timeout: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        checked_prefix(self.prefix)
        checked_suffix(self.dead_letter_suffix)
        if not isinstance(self.ensure_queues, bool):
            raise InvalidArgument(
                f"ensure_queues is a bool, not {type(self.ensure_queues).__name__}"
            )
        checked_count("connections", self.connections, at_most=MOST_CONNECTIONS)
        checked_poll_timeout(self.poll_timeout)
        checked_visibility(self.visibility_timeout, MAX_VISIBILITY)
        checked_visibility(self.operation_timeout, field="operation_timeout")

    @classmethod
    def from_url(cls, url: QueueURL) -> Options:
        """Take the options out of a URL."""
        take = url.options
        return cls(
            prefix=take.text("prefix", ""),
            dead_letter_suffix=take.text("dead_letter_suffix", "-dead"),
            ensure_queues=take.flag("ensure_queues", False),
            connections=take.integer("connections", 8),
            poll_timeout=take.duration("poll_timeout", timedelta(seconds=20)),
            visibility_timeout=take.duration("visibility_timeout", timedelta(seconds=30)),
            operation_timeout=take.duration("operation_timeout", timedelta(seconds=30)),
        )


def guarantees(options: Options, *, knows_ids: bool) -> Guarantees:
    """What a queue object with these options promises."""
    return Guarantees(
        durable=True,
        retention=MAX_RETENTION,
        exclusive_delivery=False,
        stale_settlement="process",
        ack_final=False,
        exact_attempts=False,
        unique_ids="store" if knows_ids else "none",
        queue_name_pattern=queue_name_pattern(options.dead_letter_suffix),
        ordered_redrive=False,
        full_batches=False,
        bounded_pops=False,
        empty_is_certain=False,
        max_delay=MAX_DELAY,
        delay_lateness=_lateness,
        max_visibility=MAX_VISIBILITY,
        visibility_resolution=RESOLUTION,
        max_message_bytes=MAX_CONTENT_BYTES - HEADROOM_BYTES,
    )


def _lateness(_delay: timedelta) -> timedelta:
    # Up to a second of rounding, and another until a poll has it.
    return 2 * RESOLUTION
