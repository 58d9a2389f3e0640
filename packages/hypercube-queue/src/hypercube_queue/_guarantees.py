"""The promises of a driver object, as data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from hypercube_queue._message import MAX_DURATION


def _up_to_a_second(_delay: timedelta) -> timedelta:
    return timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """The way in which a driver object keeps the contract, known without I/O.

    The defaults are the whole promise; what a driver writes down is where its backend
    differs. The conformance suite exercises every promise made here and shows that every
    one denied is really absent, so a driver can neither brag nor hide.
    """

    #: Messages survive the end of the process and of the backend, as the server is configured.
    durable: bool
    #: Other processes can reach the messages. False: they live and end within this one.
    shared: bool = True
    #: "may_lose" if a failover to a replica can forget the newest changes.
    failover: Literal["lossless", "may_lose"] = "lossless"
    #: Retention of unsettled and dead messages; None means for good (LIFE-5).
    retention: timedelta | None = None
    #: An unsettled delivery comes back after a visibility deadline (POP-6).
    leases: bool = True
    #: Without leases: how long the backend lets a delivery be held; None means for good.
    max_hold: timedelta | None = None
    #: Two pops never hold one message at the same time (POP-5). False: rare duplicates.
    exclusive_delivery: bool = True
    #: The reach of the check for stale settlements (SET-2): always, only when this process saw the
    #: newer delivery or the deadline pass, or only by the lost connection.
    stale_settlement: Literal["strict", "process", "connection"] = "strict"
    #: An acked message never reappears (SET-1).
    ack_final: bool = True
    #: The backend confirms an ack before the call returns (SET-7).
    ack_confirmed: bool = True
    #: `attempt` is exact (POP-2). False: the backend's own count is approximate or a lower bound.
    exact_attempts: bool = True
    #: The part that refuses a retained id (PUSH-4): the backend, an IDStore beside it, or none
    #: beyond the batch.
    unique_ids: Literal["backend", "store", "none"] = "backend"
    #: "fifo": a single consumer sees push order (POP-10).
    ordering: Literal["fifo", "best_effort"] = "best_effort"
    #: A regular expression that the whole queue name must match; None means any name.
    queue_name_pattern: str | None = None
    #: `redrive` takes the oldest dead message first (RED-1).
    ordered_redrive: bool = True
    #: A pop returns all that are ready, up to its limits (POP-1, POP-11).
    full_batches: bool = True
    #: A pop takes no more once its messages have MAX_POP_BYTES together (POP-11). False: only the
    #: number that it asks for and `max_message_bytes` limit them.
    bounded_pops: bool = True
    #: An empty pop means that nothing was visible (POP-1).
    empty_is_certain: bool = True
    #: The longest delay; a longer one is InvalidArgument, never clamped.
    max_delay: timedelta = MAX_DURATION
    #: A bound on how late a delayed message becomes visible, given its delay (PUSH-5).
    delay_lateness: Callable[[timedelta], timedelta] = _up_to_a_second
    #: The longest lease, counted from the pop.
    max_visibility: timedelta = MAX_DURATION
    #: The step in which the backend counts leases.
    visibility_resolution: timedelta = timedelta(microseconds=1)
    #: The largest `payload` plus `extra` that push accepts, encoding and the headroom of PUSH-8
    #: already taken off; None means that only memory and the server's settings limit it.
    max_message_bytes: int | None = None

    def accepts_queue_name(self, name: str) -> bool:
        """Tell whether this backend can carry `name`, which is a valid name."""
        return self.queue_name_pattern is None or bool(re.fullmatch(self.queue_name_pattern, name))
