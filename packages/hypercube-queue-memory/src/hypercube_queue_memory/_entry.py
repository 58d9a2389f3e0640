"""One retained message, and how deliveries refer to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from hypercube_queue.driver import Delivery


class State(IntEnum):
    """State of a retained message."""

    READY = 0
    DELAYED = 1
    IN_FLIGHT = 2
    DEAD = 3


@dataclass(slots=True, eq=False)
class Entry:
    """A message as it is stored."""

    id: str
    payload: bytes
    extra: bytes
    job_name: str
    namespace: str
    #: None means the driver object's default.
    visibility_us: int | None
    state: State
    #: Its position among the ready ones; kept while in flight for a release.
    position: int = 0
    attempt: int = 0
    #: The delivery that owns it; a new number for each hand-out.
    token: int = 0
    #: The time at which it becomes visible: a delay is over, or a lease ends.
    visible_at: int = 0


class MemoryDelivery(Delivery):
    """A delivery and the entry it was made of."""

    __slots__ = ("entry", "token")

    def __init__(self, owner: object, queue_name: str, entry: Entry) -> None:
        super().__init__(owner, queue_name, entry.id)
        self.entry = entry
        self.token = entry.token
