"""Two schedulers on real backends, where jobs are done in between."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypercube_jobs import Every, Jobs, Scheduler, Worker
from hypercube_jobs._scheduler import Horizon
from hypercube_queue import open_queue

#: A tenth of the real one, so that a test takes seconds; what is proven is the same.
HORIZON = Horizon(
    nearest=timedelta(seconds=3), farthest=timedelta(seconds=6), pause=timedelta(seconds=0.5)
)


@dataclass
class Tick:
    """The job of these tests."""

    due: str


def jobs_on(url: str, stack: ExitStack, skew: timedelta = timedelta(0)) -> Jobs:
    """Jobs as another process has them, whose clock goes wrong by `skew`."""
    queue = stack.enter_context(open_queue(url))
    jobs = Jobs(queue, clock=lambda: datetime.now(UTC) + skew)
    jobs.declare("tick", Tick)
    jobs.schedule("tick", Every(timedelta(seconds=1)), lambda due: Tick(due.isoformat()))
    return jobs


@contextmanager
def running(each: Scheduler | Worker) -> Iterator[None]:
    thread = threading.Thread(target=each.run)
    thread.start()
    try:
        yield
    finally:
        each.stop()
        thread.join(30)
        assert not thread.is_alive()


def test_two_schedulers_run_each_due_time_once(url_of_some: str) -> None:
    """Half a second apart, which stands for five, and with clocks that differ by a second."""
    ran: list[str] = []
    with ExitStack() as stack:
        first = Scheduler(jobs_on(url_of_some, stack), _horizon=HORIZON)
        second = Scheduler(jobs_on(url_of_some, stack, timedelta(seconds=-1)), _horizon=HORIZON)
        working = jobs_on(url_of_some, stack)

        @working.handler("tick")
        def tick(job: Tick) -> None:
            ran.append(job.due)

        stack.enter_context(running(Worker(working, sleep=timedelta(seconds=0.1))))
        stack.enter_context(running(first))
        time.sleep(0.5)
        stack.enter_context(running(second))
        time.sleep(10)

    moments = sorted(map(datetime.fromisoformat, ran))
    assert len(moments) >= 4
    assert set(Counter(ran).values()) == {1}
    seconds = [(moment - moments[0]).total_seconds() for moment in moments]
    assert seconds == list(range(len(moments))), "none was missed"
