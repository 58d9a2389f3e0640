"""The object that a delivered message carries in `driver_data`."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import NoReturn, Self


class Delivery:
    """One hand-out of a message; drivers add their token in a subclass.

    It knows the driver object it came from, since only that one may settle it (SET-2), and
    the stored identity, which wins over what the worker writes into the message (OWN-4).
    """

    __slots__ = ("_popped_at", "id", "owner", "queue_name")

    def __init__(self, owner: object, queue_name: str, id: str) -> None:
        self.owner = owner
        self.queue_name = queue_name
        self.id = id
        self._popped_at = time.monotonic()

    def held_for(self) -> timedelta:
        """The time since the pop returned it, by this process's clock."""
        return timedelta(seconds=time.monotonic() - self._popped_at)

    # A copied message is the same delivery, and settling both copies settles once.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a delivery cannot be serialised: it is settled through the queue object that popped it"
        )
