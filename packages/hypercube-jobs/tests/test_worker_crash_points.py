"""A process that dies at any point: every call of a worker to its queue, before and after it.

The worker is the real one; only the death of its process is played, by a queue that answers
no call any more. Time passes at will, so that leases end at once.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Jobs, Worker, current_attempt
from hypercube_queue import Guarantees, Message, QueueClosed
from hypercube_queue_memory import MemoryQueue, MemoryStore

LEASE = timedelta(seconds=30)
GOOD = ("a", "b", "c")


@dataclass
class Note:
    """The job of these tests."""

    text: str


class Process(MemoryQueue):
    """The queue of one process, which dies at its `dies_at`-th call: before it, or after it."""

    def __init__(self, world: World, dies_at: int, *, after: bool) -> None:
        super().__init__(world.store, visibility_timeout=LEASE)
        self.calls = 0
        self.is_dead = False
        #: What it has popped and not settled, with the record that it came with.
        self.held: dict[str, bytes] = {}
        self._world = world
        self._dies_at = dies_at
        self._after = after

    @property
    def guarantees(self) -> Guarantees:
        return replace(super().guarantees, exact_attempts=self._world.exact)

    def pop(self, *args: Any, **options: Any) -> list[Message]:
        with self._world.lock:
            return self._call(self._popped, *args, **options)

    def _popped(self, *args: Any, **options: Any) -> list[Message]:
        messages = super().pop(*args, **options)
        self.held.update((message.id, message.extra) for message in messages)
        return messages

    def ack(self, *messages: Message) -> None:
        self._settle(super().ack, *messages)

    def retry(self, *messages: Message) -> None:
        self._settle(super().retry, *messages)

    def dead_letter(self, *messages: Message) -> None:
        self._settle(super().dead_letter, *messages)

    def release(self, *messages: Message) -> None:
        self._settle(super().release, *messages)

    def _settle(self, operation: Any, *messages: Message) -> None:
        with self._world.lock:
            self._call(self._settled, operation, *messages)

    def _settled(self, operation: Any, *messages: Message) -> None:
        operation(*messages)
        for message in messages:
            del self.held[message.id]

    def _call(self, operation: Any, *args: Any, **options: Any) -> Any:
        self.calls += 1
        dies = self.calls == self._dies_at
        self.is_dead = self.is_dead or (dies and not self._after)
        if self.is_dead:
            raise QueueClosed("the process is dead")
        answer = operation(*args, **options)
        self.is_dead = dies
        if dies:
            raise QueueClosed("the process is dead")
        return answer

    def to_run_alone(self) -> set[str]:
        """Those that it holds to run alone."""
        return {id for id, extra in self.held.items() if b'"quarantined":true' in extra}


class NoRelease(Process):
    """The queue of a driver without the capability Releaser."""

    release = None


class World:
    """One job that kills its process and some that do not, until all have come to an end."""

    def __init__(
        self,
        queue: type[Process],
        *,
        exact: bool,
        retries: int,
        claims: dict[str, object] | None = None,
    ) -> None:
        self.exact = exact
        self.lock = threading.RLock()
        self.now = 0.0
        self.store = MemoryStore(clock=lambda: self.now)
        self.runs: Counter[str] = Counter()
        #: What was held beside a job that ran alone.
        self.beside: list[set[str]] = []
        #: Those besides the killer that were in the hands of a dying process to be run alone.
        self.exposed: set[str] = set()
        #: How many calls each process made.
        self.calls: list[int] = []
        self._queue = queue
        self._retries = retries
        self._process = queue(self, 0, after=False)
        for text in (*GOOD[:1], "killer", *GOOD[1:]):
            message = self._jobs().message(Note(text), id=text)
            if text == "killer" and claims:
                message.extra = json.dumps({"v": 1, "retries": retries} | claims).encode()
            self._process.push(message)

    def run(self, dying: int = -1, dies_at: int = 0, *, after: bool = False) -> None:
        """Start processes until one has nothing left to do; the `dying`-th dies by itself."""
        for number in range(20):
            self._process = self._queue(self, dies_at if number == dying else 0, after=after)
            with suppress(QueueClosed):
                Worker(self._jobs(), concurrency=4, stop_when_empty=True).run()
            self.calls.append(self._process.calls)
            if self._process.is_dead:
                self.exposed |= self._process.to_run_alone() - {"killer"}
            self.now += 2 * LEASE.total_seconds()
            if not self._process.is_dead:
                return
        raise AssertionError("it never comes to an end")

    def outcome(self) -> dict[str, str]:
        """What became of each job that is not done: its error."""
        jobs = Jobs(MemoryQueue(self.store))
        stats = jobs.queue.stats("default")
        assert (stats.ready, stats.delayed, stats.in_flight) == (0, 0, 0)
        return {failed.id: failed.failure.type for failed in jobs.failed() if failed.failure}

    def _jobs(self) -> Jobs:
        process = self._process
        jobs = Jobs(process)
        jobs.declare("note", Note, retries=self._retries)

        @jobs.handler("note")
        def note(job: Note) -> None:
            attempt = current_attempt()
            assert attempt is not None
            with self.lock:
                self.runs[job.text] += 1
                if attempt.id in process.to_run_alone():
                    self.beside.append(set(process.held) - {attempt.id})
                if job.text == "killer":
                    process.is_dead = True

        return jobs


CONFIGURATIONS = pytest.mark.parametrize(
    ("queue", "exact"),
    [(Process, True), (Process, False), (NoRelease, True), (NoRelease, False)],
    ids=["release, exact", "release, inexact", "no release, exact", "no release, inexact"],
)


@CONFIGURATIONS
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_job_that_kills_its_process_is_dead_and_no_other(
    queue: type[Process], exact: bool, retries: int
) -> None:
    """Once among others, then alone, as often as it has attempts (ATT-3, ATT-4)."""
    world = World(queue, exact=exact, retries=retries)
    world.run()

    assert world.outcome() == {"killer": "hypercube_jobs.WorkerLost"}
    assert world.runs["killer"] == retries + 2
    assert world.beside
    assert all(not others for others in world.beside)


@CONFIGURATIONS
@pytest.mark.parametrize("retries", [0, 1])
def test_a_process_may_die_at_any_point(queue: type[Process], exact: bool, retries: int) -> None:
    """It costs a retry of those jobs only that had been handed out to be run alone."""
    whole = World(queue, exact=exact, retries=retries)
    whole.run()
    points = [
        (number, call, after)
        for number, calls in enumerate(whole.calls)
        for call in range(1, calls + 1)
        for after in (False, True)
    ]
    assert len(points) > 20
    for number, call, after in points:
        world = World(queue, exact=exact, retries=retries)
        world.run(number, call, after=after)

        where = f"process {number} died {'after' if after else 'before'} its call {call}"
        exposed = world.exposed if retries == 0 else set()
        outcome = world.outcome()
        assert set(outcome.values()) == {"hypercube_jobs.WorkerLost"}, where
        assert {"killer"} <= set(outcome) <= {"killer"} | exposed, where
        assert len(world.exposed) <= 2, where
        assert retries + 1 <= world.runs["killer"] <= retries + 3, where
        assert all(not others for others in world.beside), where


@CONFIGURATIONS
@pytest.mark.parametrize(
    "claims",
    [
        {"free": 9_007_199_254_740_992},
        {"free": 3},
        {"deliveries": 9_007_199_254_740_992},
        {"deliveries": 3},
        {"deliveries": 3, "free": 3, "quarantined": True, "lost": -1},
        {"quarantined": "yes", "lost": "none"},
    ],
    ids=str,
)
def test_no_record_makes_it_immortal(
    queue: type[Process], exact: bool, claims: dict[str, object]
) -> None:
    """Whoever pushed it can claim what he likes; what it was delivered counts."""
    world = World(queue, exact=exact, retries=1, claims=claims)
    world.run()

    assert world.outcome() == {"killer": "hypercube_jobs.WorkerLost"}
    assert world.runs["killer"] <= 5
