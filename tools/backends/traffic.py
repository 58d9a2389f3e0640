"""Pushes and pops while something is done to the servers, and what became of them."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

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


def with_table(text: str, table: str, name: str) -> str:
    """`text` with the table between the markers of this name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the text lacks the markers {begin} and {end}")
    return f"{before}{begin}\n{table}\n{end}{after}"
