"""One application on every backend, by URL alone: all of them tell the same story."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from hypercube_jobs import (
    Constant,
    Exponential,
    JobEvent,
    Jobs,
    Observer,
    PermanentError,
    Retry,
    Worker,
    current_attempt,
)
from hypercube_queue import Message, open_queue

PATIENCE_S = 60.0
SECOND = timedelta(seconds=1)


@dataclass
class Order:
    """The job of the application."""

    number: int


class Story(Observer):
    """What happened to each job, and when."""

    def __init__(self) -> None:
        #: Attempts as their handlers see them, and what became of them. A next attempt may
        #: begin before observers are told of the one before it, so these are two stories.
        self.attempts: dict[str, list[str]] = {}
        self.outcomes: dict[str, list[str]] = {}
        self.moments: dict[str, list[float]] = {}

    def runs(self) -> int:
        """The handler that calls has begun to run; the number of its attempt."""
        attempt = current_attempt()
        assert attempt is not None
        self.moments.setdefault(attempt.id, []).append(time.monotonic())
        last = ", the last" if attempt.last else ""
        text = f"{attempt.number} of {attempt.max_retries + 1}{last}"
        self.attempts.setdefault(attempt.id, []).append(text)
        return attempt.number

    def processed(self, event: JobEvent) -> None:
        self.outcomes.setdefault(event.id, []).append(f"{event.attempt} done")

    def failed(self, event: JobEvent) -> None:
        end = "dead" if event.final else "failed"
        text = f"{event.attempt} {end}: {type(event.error).__name__}"
        self.outcomes.setdefault(event.id, []).append(text)

    def ended(self, ids: set[str]) -> bool:
        last = {id: outcomes[-1] for id, outcomes in list(self.outcomes.items())}
        return all("done" in last.get(id, "") or "dead" in last.get(id, "") for id in ids)


class Application:
    """Orders that are paid, refused, forgotten and repeated."""

    def __init__(self, jobs: Jobs, story: Story) -> None:
        #: Somebody has seen to what let jobs die.
        self.mended = False
        self._story = story
        jobs.declare("paid", Order)
        jobs.declare("flaky", Order, backoff=Exponential(SECOND))
        jobs.declare("hopeless", Order, retries=2, backoff=Constant(timedelta(0)))
        jobs.declare("refused", Order)
        jobs.declare("patient", Order, retries=1)
        jobs.declare("slow", Order, retries=0, timeout=timedelta(seconds=0.3))
        for kind in KINDS:
            jobs.handler(kind)(getattr(self, kind))

    def paid(self, job: Order) -> None:
        self._story.runs()

    def flaky(self, job: Order) -> None:
        if self._story.runs() < 3:
            raise ConnectionError("the bank does not answer")

    async def hopeless(self, job: Order) -> None:
        self._story.runs()
        if not self.mended:
            raise ValueError("it never will")

    def refused(self, job: Order) -> None:
        self._story.runs()
        if not self.mended:
            raise PermanentError("there is no such order")

    def patient(self, job: Order) -> None:
        if self._story.runs() == 1:
            raise Retry("not yet", delay=SECOND)

    async def slow(self, job: Order) -> None:
        self._story.runs()
        if not self.mended:
            await asyncio.sleep(60)


KINDS = ["paid", "flaky", "hopeless", "refused", "patient", "slow"]

#: The story, the same everywhere: attempts, and what became of them.
ATTEMPTS = {
    "paid": ["1 of 4"],
    "later": ["1 of 4"],
    "flaky": ["1 of 4", "2 of 4", "3 of 4"],
    "hopeless": ["1 of 3", "2 of 3", "3 of 3, the last"],
    "refused": ["1 of 4"],
    "patient": ["1 of 2", "2 of 2, the last"],
    "slow": ["1 of 1, the last"],
}
OUTCOMES = {
    "paid": ["1 done"],
    "later": ["1 done"],
    "flaky": ["1 failed: ConnectionError", "2 failed: ConnectionError", "3 done"],
    "hopeless": ["1 failed: ValueError", "2 failed: ValueError", "3 dead: ValueError"],
    "refused": ["1 dead: PermanentError"],
    "patient": ["1 failed: Retry", "2 done"],
    "slow": ["1 dead: TimeLimitExceeded"],
    "unknown": ["1 dead: UnknownKind"],
    "unreadable": ["1 dead: InvalidPayload"],
}
#: And what follows when the dead are brought back, after the application was mended.
MENDED_ATTEMPTS = {"hopeless": ["1 of 3"], "refused": ["1 of 4"], "slow": ["1 of 1, the last"]}
MENDED_OUTCOMES = {
    "hopeless": ["1 done"],
    "refused": ["1 done"],
    "slow": ["1 done"],
    "unknown": ["1 dead: UnknownKind"],
    "unreadable": ["1 dead: InvalidPayload"],
}
#: How long each of these waited: before its first attempt, before its second and so on.
WAITED = {"later": [SECOND], "flaky": [None, SECOND, 2 * SECOND], "patient": [None, SECOND]}


def test_every_backend_tells_the_same_story(url_of_each: str) -> None:
    """The same attempts, the same backoff, the same dead letters."""
    story = Story()
    with open_queue(url_of_each) as queue:
        jobs = Jobs(queue, observers=[story])
        application = Application(jobs, story)
        for number, kind in enumerate(KINDS):
            story.moments[kind] = [time.monotonic()]
            jobs.dispatch_kind(kind, Order(number), id=kind)
        story.moments["later"] = [time.monotonic()]
        jobs.dispatch_kind("paid", Order(7), id="later", delay=SECOND)
        policy = b'{"v":1,"retries":0}'
        queue.push(
            Message("default", b"{}", "nobodys", id="unknown", extra=policy),
            Message("default", b'{"number":"seven"}', "paid", id="unreadable"),
        )
        worked_until_ended(jobs, story, set(OUTCOMES))
        assert (story.attempts, story.outcomes) == (ATTEMPTS, OUTCOMES)
        for id, delays in WAITED.items():
            check_delays(jobs, story.moments[id], delays)

        application.mended = True
        story.attempts.clear()
        story.outcomes.clear()
        assert jobs.retry_all("default") == len(MENDED_OUTCOMES)
        worked_until_ended(jobs, story, set(MENDED_OUTCOMES))
        assert (story.attempts, story.outcomes) == (MENDED_ATTEMPTS, MENDED_OUTCOMES)


def worked_until_ended(jobs: Jobs, story: Story, ids: set[str]) -> None:
    worker = Worker(jobs, concurrency=4, sleep=timedelta(seconds=0.1))
    thread = threading.Thread(target=worker.run)
    thread.start()
    end = time.monotonic() + PATIENCE_S
    while not story.ended(ids) and time.monotonic() < end:
        time.sleep(0.02)
    worker.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def check_delays(jobs: Jobs, moments: list[float], delays: list[timedelta | None]) -> None:
    """Never early, and late by no more than the backend says, and a busy machine."""
    for number, delay in enumerate(delays):
        if delay is not None:
            waited = timedelta(seconds=moments[number + 1] - moments[number])
            late = jobs.queue.guarantees.delay_lateness(delay) + 5 * SECOND
            assert delay - timedelta(milliseconds=5) <= waited <= delay + late


def test_the_dead_of_every_backend_say_the_same(url_of_each: str) -> None:
    """Where they can be looked at, with the reason, the attempt and the policy."""
    story = Story()
    with open_queue(url_of_each) as queue:
        jobs = Jobs(queue, observers=[story])
        Application(jobs, story)
        jobs.dispatch_kind("hopeless", Order(1), id="hopeless")
        worked_until_ended(jobs, story, {"hopeless"})
        if not looks_at_the_dead(jobs):
            assert jobs.retry_all("default") == 1
            return
        (failed,) = jobs.failed("default", payloads=True)

    assert (failed.id, failed.kind, failed.attempt, failed.reason) == (
        "hopeless",
        "hopeless",
        3,
        "ValueError: it never will",
    )
    assert failed.payload == b'{"number":1}'
    assert failed.failure is not None
    assert "it never will" in failed.failure.traceback
    assert isinstance(failed.dispatched_at, datetime)


def looks_at_the_dead(jobs: Jobs) -> bool:
    from hypercube_queue import DeadLetterStore, capability

    return capability(jobs.queue, DeadLetterStore) is not None
