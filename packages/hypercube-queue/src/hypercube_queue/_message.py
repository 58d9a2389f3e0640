"""The message, and what its fields may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

#: Long enough for any schedule, short enough for 64-bit microseconds on every backend.
MAX_DURATION = timedelta(days=3650)
#: The longest name that every backend's key or index takes, in UTF-8 bytes.
MAX_NAME_BYTES = 255
#: A pop stops at the message with which its contents reach this size (POP-11).
MAX_POP_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class Message:
    """A unit of work, identified by `(queue_name, id)` within one driver namespace.

    A *name* has at most 255 UTF-8 bytes, no control character and no lone surrogate, and is
    compared byte for byte. Fields are checked when the message is handed to a queue, never
    on assignment.

    `payload` and `extra` take any bytes-like object when pushed, retried or dead-lettered,
    and are `bytes` of their own on every delivery (OWN-1, OWN-2).
    """

    #: The queue it belongs to. A name, not empty.
    queue_name: str
    #: The work itself. Never read by a driver.
    payload: bytes = field(default=b"", repr=False)
    #: The kind of job. A name, may be empty.
    job_name: str = ""
    #: The owner of the job, such as a plugin. A name, may be empty.
    namespace: str = ""
    #: A name; `push` assigns one to an empty id and writes it here before it sends anything.
    id: str = ""
    #: Metadata of the layer above. Never read by a driver.
    extra: bytes = field(default=b"", repr=False)
    #: The time it stays invisible after `push` or `retry`. Zero on every delivery.
    delay: timedelta = timedelta(0)
    #: The lease: the time for which one delivery owns it; None means the driver's default.
    visibility_timeout: timedelta | None = None
    #: The number of deliveries by the backend, this one included. Set by `pop`.
    attempt: int = 0
    #: The identity of the delivery. Opaque, set by `pop`, never serialised.
    driver_data: object | None = field(default=None, repr=False, compare=False)
