"""Hypercube's queue contract: one small interface over many backends.

`open_queue` gives a queue by URL; `Queue` says what it does; `hypercube_queue.driver`
holds what authors of drivers need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypercube_queue.__about__ import __version__
from hypercube_queue._capabilities import (
    CAPABILITIES,
    AsyncDeadLetterStore,
    AsyncRedriver,
    AsyncReleaser,
    AsyncStatsProvider,
    AsyncTransactionalPusher,
    AsyncVisibilityExtender,
    DeadLetter,
    DeadLetterStore,
    QueueStats,
    Redriver,
    Releaser,
    StatsProvider,
    TransactionalPusher,
    VisibilityExtender,
    capability,
)
from hypercube_queue._errors import (
    AlreadyExists,
    BackendError,
    BatchError,
    CapacityExceeded,
    InvalidArgument,
    ItemFailure,
    MessageTooLarge,
    NotFound,
    QueueClosed,
    QueueError,
)
from hypercube_queue._guarantees import Guarantees
from hypercube_queue._message import MAX_DURATION, MAX_NAME_BYTES, MAX_POP_BYTES, Message
from hypercube_queue._open import open_queue
from hypercube_queue._queue import Queue

if TYPE_CHECKING:
    from hypercube_queue._async_queue import AsyncQueue

__all__ = [
    "CAPABILITIES",
    "MAX_DURATION",
    "MAX_NAME_BYTES",
    "MAX_POP_BYTES",
    "AlreadyExists",
    "AsyncDeadLetterStore",
    "AsyncQueue",
    "AsyncRedriver",
    "AsyncReleaser",
    "AsyncStatsProvider",
    "AsyncTransactionalPusher",
    "AsyncVisibilityExtender",
    "BackendError",
    "BatchError",
    "CapacityExceeded",
    "DeadLetter",
    "DeadLetterStore",
    "Guarantees",
    "InvalidArgument",
    "ItemFailure",
    "Message",
    "MessageTooLarge",
    "NotFound",
    "Queue",
    "QueueClosed",
    "QueueError",
    "QueueStats",
    "Redriver",
    "Releaser",
    "StatsProvider",
    "TransactionalPusher",
    "VisibilityExtender",
    "__version__",
    "capability",
    "open_queue",
]


def __getattr__(name: str) -> object:
    # asyncio takes longer to import than all the rest, and most producers never need it.
    if name == "AsyncQueue":
        from hypercube_queue._async_queue import AsyncQueue

        return AsyncQueue
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
