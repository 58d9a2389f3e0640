"""Helpers for authors of drivers.

The driver guide, docs/driver-guide.md in the repository, uses them one by one.
"""

from __future__ import annotations

from hypercube_queue._checks import (
    HEADROOM_BYTES,
    MAX_POP,
    checked_bytes,
    checked_count,
    checked_delay,
    checked_name,
    checked_poll_timeout,
    checked_queue_name,
    checked_size,
    checked_visibility,
    checked_wait,
    safe_repr,
)
from hypercube_queue._ids import new_id
from hypercube_queue._message import MAX_POP_BYTES
from hypercube_queue._times import (
    Deadline,
    from_epoch_microseconds,
    from_microseconds,
    to_microseconds,
)
from hypercube_queue.driver._base_capabilities import (
    BaseDeadLetterStore,
    BaseRedriver,
    BaseReleaser,
    BaseStatsProvider,
    BaseVisibilityExtender,
)
from hypercube_queue.driver._base_queue import BaseQueue
from hypercube_queue.driver._batch import (
    Failures,
    Indexed,
    ItemErrors,
    PushBatch,
    PushItem,
    SettlementBatch,
    SettlementItem,
    copy_error,
    prepare_each,
)
from hypercube_queue.driver._chunks import chunked
from hypercube_queue.driver._closing import Closing
from hypercube_queue.driver._delivery import Delivery
from hypercube_queue.driver._envelope import (
    MAX_ATTEMPT_BASE,
    MAX_ENVELOPE_OVERHEAD_BYTES,
    Envelope,
    UnreadableEnvelope,
    checked_envelope,
    decode_envelope,
    encode_envelope,
)
from hypercube_queue.driver._gate import Gate
from hypercube_queue.driver._url import QueueURL, URLOptions

__all__ = [
    "HEADROOM_BYTES",
    "MAX_ATTEMPT_BASE",
    "MAX_ENVELOPE_OVERHEAD_BYTES",
    "MAX_POP",
    "MAX_POP_BYTES",
    "BaseDeadLetterStore",
    "BaseQueue",
    "BaseRedriver",
    "BaseReleaser",
    "BaseStatsProvider",
    "BaseVisibilityExtender",
    "Closing",
    "Deadline",
    "Delivery",
    "Envelope",
    "Failures",
    "Gate",
    "Indexed",
    "ItemErrors",
    "PushBatch",
    "PushItem",
    "QueueURL",
    "SettlementBatch",
    "SettlementItem",
    "URLOptions",
    "UnreadableEnvelope",
    "checked_bytes",
    "checked_count",
    "checked_delay",
    "checked_envelope",
    "checked_name",
    "checked_poll_timeout",
    "checked_queue_name",
    "checked_size",
    "checked_visibility",
    "checked_wait",
    "chunked",
    "copy_error",
    "decode_envelope",
    "encode_envelope",
    "from_epoch_microseconds",
    "from_microseconds",
    "new_id",
    "prepare_each",
    "safe_repr",
    "to_microseconds",
]
