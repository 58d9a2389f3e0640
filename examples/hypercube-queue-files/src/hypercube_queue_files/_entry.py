"""What the name of a file says about a message."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of one message: an empty file, whose name this is.

    A message changes its state by one rename; an old name is nobody's any more.
    """

    #: When it is visible, or when it died: microseconds since 1970.
    due: int
    #: The name of its body.
    key: str
    #: Which body of that name: an id that is free again may be pushed again.
    copy: str
    attempt: int = 0
    #: The delivery that owns it until it is due; empty while nobody does.
    owner: str = ""
    dead: bool = False

    @property
    def name(self) -> str:
        # Of the same width at every time, so that names sort by it.
        return f"{self.due:016x}.{self.key}.{self.copy}.{self.attempt}.{self.owner}"

    @property
    def folder(self) -> str:
        """The dead are together; the living by the second in which they are due."""
        return "dead" if self.dead else f"live/{self.name[:8]}/{self.name[8:11]}"

    @classmethod
    def parse(cls, name: str, *, dead: bool = False) -> Self:
        due, key, copy, attempt, owner = name.split(".")
        return cls(int(due, 16), key, copy, int(attempt), owner, dead)


def key_of(message_id: str) -> str:
    """A file name for any id; of 128 bits, so two ids have the same one never."""
    return hashlib.blake2b(message_id.encode(), digest_size=16).hexdigest()


def now() -> int:
    """The clock of this machine, which all its processes share, in microseconds."""
    return time.time_ns() // 1000
