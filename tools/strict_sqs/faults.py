"""Faults to order: what a service in trouble, or merely a distributed one, does to its clients."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from tools.strict_sqs.errors import Refused


@dataclass(slots=True)
class Fault:
    """One order: what happens to the next requests of an action."""

    kind: Literal["refuse", "slow", "drop", "forget", "fail", "omit"]
    action: str
    times: int
    error: Refused | None = None
    seconds: float = 0.0
    #: Positions of the entries of a batch that it happens to; None means all.
    entries: Collection[int] | None = None
    #: Whether the request has its effect all the same.
    acts: bool = False


class Faults:
    """The orders, and switches that stay as they are set.

    An order counts for the next `times` requests of its action, and "" is any action.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: list[Fault] = []
        #: Seconds by which every answer is late.
        self.delay = 0.0
        #: How long a second of a long poll takes: below 1, tests wait less.
        self.poll_second = 1.0
        #: A short poll looks at a part of the servers only, so it misses messages.
        self.sampling = False
        #: How many of the next messages received stay visible: each is delivered twice.
        self.duplicates = 0
        #: How many of the next deletes are answered, and forgotten.
        self.resurrections = 0

    def clear(self) -> None:
        """No fault from now on; `poll_second` stays."""
        with self._lock:
            self._orders.clear()
        self.delay, self.sampling, self.duplicates, self.resurrections = 0.0, False, 0, 0

    def throttle(self, action: str, times: int = 1, code: str = "RequestThrottled") -> None:
        """Refuse requests for being too many; nothing happens to the messages."""
        self.refuse(action, Refused(code, "Rate exceeded"), times)

    def refuse(self, action: str, error: Refused, times: int = 1) -> None:
        """Refuse requests; nothing happens to the messages."""
        self._order(Fault("refuse", action, times, error=error))

    def slow(self, action: str, seconds: float, times: int = 1) -> None:
        """Act at once, and answer late."""
        self._order(Fault("slow", action, times, seconds=seconds))

    def drop(self, action: str, times: int = 1) -> None:
        """Hang up before anything is done."""
        self._order(Fault("drop", action, times))

    def forget_answer(self, action: str, times: int = 1) -> None:
        """Do it, and hang up without an answer."""
        self._order(Fault("forget", action, times, acts=True))

    def fail_entries(
        self,
        action: str,
        entries: Collection[int] | None = None,
        code: str = "InternalError",
        *,
        sender_fault: bool = False,
        times: int = 1,
    ) -> None:
        """Answer with 200, and entries of the batch in the list of those that failed."""
        error = Refused(code, "We encountered a problem", sender_fault=sender_fault)
        self._order(Fault("fail", action, times, error=error, entries=entries))

    def omit_entries(
        self,
        action: str,
        entries: Collection[int] | None = None,
        *,
        acts: bool = False,
        times: int = 1,
    ) -> None:
        """Answer with 200, and entries of the batch in neither list."""
        self._order(Fault("omit", action, times, entries=entries, acts=acts))

    def due(self, action: str) -> list[Fault]:
        """What happens to this request."""
        if not self._orders:
            return []
        with self._lock:
            due = [each for each in self._orders if each.action in (action, "")]
            for each in due:
                each.times -= 1
            self._orders = [each for each in self._orders if each.times > 0]
            return due

    def takes_duplicate(self) -> bool:
        """Whether this message stays visible although it was received."""
        with self._lock:
            self.duplicates -= (taken := self.duplicates > 0)
            return taken

    def takes_resurrection(self) -> bool:
        """Whether this delete is forgotten."""
        with self._lock:
            self.resurrections -= (taken := self.resurrections > 0)
            return taken

    def _order(self, fault: Fault) -> None:
        with self._lock:
            self._orders.append(fault)
