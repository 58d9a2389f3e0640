"""What a driver offers to the queue that is built on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from hypercube_queue import QueueError
from hypercube_queue.driver import Deadline
from hypercube_queue_lua._keys import Keys
from hypercube_queue_lua._scripts import Script

#: What a server answers: integers, bytes, lists of these, and None.
Reply: TypeAlias = "int | bytes | list[Reply] | None"


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a script. All keys are in one slot."""

    script: Script
    keys: Keys
    args: Sequence[bytes | int]


class Client(Protocol):
    """The way to a server, or to several."""

    def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
        """Run the calls, in as few round trips as possible; a reply or an error for each.

        Repeats a call only where the server has not run it: it does not know the script, or
        sends it elsewhere. Ends at `end`, whatever the server does.
        """
        ...

    def block(self, keys: Keys, seconds: float, end: Deadline) -> None:
        """Take a token from the first of the keys that has one, for at most `seconds`.

        Returns in any case; raises a QueueError when the way to the server fails, and at
        `end` at the latest.
        """
        ...

    def in_child(self) -> None:
        """Open what a forked child needs of its own, or raise a QueueError (LIFE-4)."""
        ...

    def close(self) -> None:
        """Let go of what it opened itself."""
        ...
