"""Pushes and pops while something is done to the servers, and what became of them."""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from hypercube_queue import (
    AlreadyExists,
    BatchError,
    Message,
    NotFound,
    QueueError,
    StatsProvider,
    capability,
    open_queue,
)

#: What has the tables.
DOCUMENT = Path(__file__).resolve().parents[2] / "docs/backends.md"
#: The queue that is pushed to.
NAME = "q"
#: Seconds of pushes before and after what is done, and for which a cut lasts.
AROUND = 3.0
#: Seconds after which an object that does not work again never will.
PATIENCE = 90.0


@dataclass
class Traffic:
    """What was pushed and received, and when."""

    url: str
    pushed: dict[str, float] = field(default_factory=dict)
    #: Whether a push succeeded is unknown.
    doubtful: set[str] = field(default_factory=set)
    received: dict[str, int] = field(default_factory=dict)
    acked: set[str] = field(default_factory=set)
    #: Were delivered after they had been acknowledged.
    back: set[str] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)
    done: threading.Event = field(default_factory=threading.Event)
    #: Set while pops go on; what they took from a server that is forgotten would not be missed.
    popping: threading.Event = field(default_factory=threading.Event)

    def push(self) -> None:
        number = 0
        with open_queue(self.url) as queue:
            while not self.done.is_set():
                message = Message(NAME, id=str(number))
                number += 1
                try:
                    queue.push(message)
                except BatchError as error:
                    [failure] = error.failed
                    if getattr(failure.error, "outcome_unknown", False):
                        self.doubtful.add(message.id)
                    elif isinstance(failure.error, AlreadyExists):
                        raise
                    self.errors.add(str(failure.error))
                else:
                    self.pushed[message.id] = time.monotonic()
                time.sleep(0.005)

    def pop(self) -> None:
        empty_at_end = False
        with open_queue(self.url) as queue:
            while not empty_at_end:
                self.popping.wait()
                ending = self.done.is_set()
                try:
                    held = queue.pop(NAME, 100, wait=timedelta(seconds=1))
                    for each in held:
                        self.received[each.id] = self.received.get(each.id, 0) + 1
                        if each.id in self.acked:
                            self.back.add(each.id)
                    queue.ack(*held)
                except BatchError as error:
                    failed = {failure.index for failure in error.failed}
                    self.acked |= {each.id for n, each in enumerate(held) if n not in failed}
                    if not all(isinstance(each.error, NotFound) for each in error.failed):
                        self.errors |= {str(each.error) for each in error.failed}
                except QueueError as error:
                    self.errors.add(str(error))
                else:
                    self.acked |= {each.id for each in held}
                    # What an attempt leased and did not receive comes back after its lease.
                    empty_at_end = ending and not held and not self._open()

    def standstill(self, since: float) -> float:
        """The longest time without a successful push, in seconds."""
        moments = [since, *(each for each in self.pushed.values() if each > since)]
        return max(late - early for early, late in itertools.pairwise(moments))

    def wait_for_pushes(self) -> None:
        """Wait until pushes have succeeded for a while."""
        now = time.monotonic()
        end = now + PATIENCE
        while max(self.pushed.values(), default=0.0) < now + AROUND:
            if time.monotonic() > end:
                raise SystemExit(f"no push succeeds any more: {sorted(self.errors)}")
            time.sleep(0.1)

    def endure(self, do: Callable[[], None]) -> float:
        """Push and pop before `do`, push during it and afterwards; return when it began."""
        with ThreadPoolExecutor(2) as threads:
            working = [threads.submit(self.push), threads.submit(self.pop)]
            try:
                self.popping.set()
                self.wait_for_pushes()
                self.popping.clear()
                begun = time.monotonic()
                do()
                self.wait_for_pushes()
            finally:
                self.done.set()
                self.popping.set()
            for each in working:
                each.result(PATIENCE)
        return begun

    def row(self, what: str, begun: float, *more: int, may_lose: bool = False) -> str:
        """The row of a table; raises SystemExit where something was lost that was safe."""
        if strange := self.received.keys() - self.pushed.keys() - self.doubtful:
            raise SystemExit(f"{what}: {len(strange)} messages were received that were not pushed")
        if self.lost and not may_lose:
            raise SystemExit(f"{what}: {self.lost} messages are lost")
        cells = (
            what,
            f"{self.standstill(begun):.1f} s",
            f"{self.lost} of {len(self.pushed):,}",
            str(len(self.back)),
            *map(str, more),
        )
        return f"| {' | '.join(cells)} |"

    @property
    def lost(self) -> int:
        return len(self.pushed.keys() - self.received.keys())

    def _open(self) -> bool:
        """Whether a delivery may still come back, where the backend has leases and counts them."""
        with open_queue(self.url) as queue:
            counts = capability(queue, StatsProvider)
            if counts is None:
                return False
            stats = counts.stats(NAME)
            return bool(stats.ready + stats.delayed + stats.in_flight)


@dataclass(frozen=True)
class Arguments:
    """What a measurement is asked for on the command line."""

    words: Sequence[str]
    write: bool

    @classmethod
    def parse(cls, description: str) -> Arguments:
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("words", nargs="*", help="only cases with one of these in their names")
        parser.add_argument("--write", action="store_true", help="write it into docs/backends.md")
        found = parser.parse_args()
        return cls([word.lower() for word in found.words], found.write)

    def names(self, case: str) -> bool:
        """Tell whether a case is asked for."""
        return not self.words or any(word in case.lower() for word in self.words)


def report(rows: Iterable[str], table: str, *, write: bool, more: str = "") -> None:
    """Print the rows as they come, then the table; `write` it between its markers."""
    head = f"| what was done | no push succeeded for | lost | came back |{more}"
    lines = [head, "| --- " * (head.count("|") - 1) + "|"]
    for row in rows:
        print(row, file=sys.stderr, flush=True)
        lines.append(row)
    text = "\n".join(lines)
    print(text)
    if write:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text(), text, table))


def with_table(text: str, table: str, name: str) -> str:
    """`text` with the table between the markers of this name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the text lacks the markers {begin} and {end}")
    return f"{before}{begin}\n{table}\n{end}{after}"
