"""One delivery, run and settled by whoever popped it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time

from hypercube_jobs import _call
from hypercube_jobs._jobs import Jobs
from hypercube_jobs._policy import DispatchLimits
from hypercube_jobs.worker._call import call, call_async
from hypercube_jobs.worker._decision import Ack, DeadLetter, is_exhausted
from hypercube_jobs.worker._held import Cause, Held, Holding, Policies, held_for
from hypercube_jobs.worker._leases import Leases
from hypercube_jobs.worker._report import Reporter
from hypercube_jobs.worker._verdict import Judge
from hypercube_queue import BatchError, Message, NotFound

_log = logging.getLogger("hypercube_jobs.worker")


def process(jobs: Jobs, message: Message) -> None:
    """Run the job of one delivery here, and settle it as a worker would.

        for message in jobs.queue.pop("default"):
            process(jobs, message)

    It is for loops of your own; a Worker does it with less waiting and stops in good order. A
    synchronous handler runs in the calling thread, an asynchronous one on an event loop of its
    own. The lease is extended meanwhile. What the handler raises is recorded and not raised;
    KeyboardInterrupt is, and the job comes back when its lease ends. A job that waits for longer
    than the backend's longest delay, and whose time has not come, goes back without being run.

    If the calling thread is in a transaction of Django's, so are both.

    Blocks until the job is settled. Raises what the settlement raised, which is NotFound if
    the lease was lost: then the result is dropped, and the job runs again.
    """
    process_with(None, jobs, message)


def process_with(runner: asyncio.Runner | None, jobs: Jobs, message: Message) -> None:
    """`process`, with the event loop of `runner` for several deliveries in turn."""
    judge = Judge(jobs.queue.guarantees, jobs.clock)
    reporter = Reporter(jobs)
    holding = Holding()
    leases = Leases(jobs.queue, holding, _lose, _leases_failed)
    [held] = held_for(
        jobs,
        [message],
        Policies(DispatchLimits()),
        default_lease=leases.default,
        now=time.monotonic(),
    )
    holding.add([held])
    leases.start()
    leases.added([held])
    try:
        if judge.put_off(held):
            pass  # its delay is not over
        elif is_exhausted(held.standing, held.record, held.policy):
            judge.bury(held)
        elif held.standing.isolation.is_unrecorded:
            judge.quarantine(held)
        else:
            _run(held, runner)
            judge.judge(held)
        held.settling = True
        _settle(jobs, held)
    except NotFound:
        reporter.lost([held])
        raise
    finally:
        leases.close()
    reporter.settled([held])


def _run(held: Held, runner: asyncio.Runner | None) -> None:
    context = contextvars.copy_context()
    held.started_at = time.monotonic()
    try:
        if held.is_async:
            _call.run_to_end(lambda: _limited(held), context, runner)
        else:
            context.run(call, held)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # even sys.exit() is a failed attempt
        held.error = error
    held.duration = time.monotonic() - held.started_at
    if held.duration > held.timeout:
        held.cause = held.cause or Cause.TIME_LIMIT


async def _limited(held: Held) -> None:
    async with asyncio.timeout(held.timeout):
        await call_async(held)


def _settle(jobs: Jobs, held: Held) -> None:
    if held.lost:
        raise NotFound(f"the lease of job {held.attempt.id} was lost; its result is dropped")
    decision = held.decision
    try:
        if isinstance(decision, Ack):
            jobs.queue.ack(held.message)
        elif isinstance(decision, DeadLetter):
            jobs.queue.dead_letter(held.message)
        else:
            jobs.queue.retry(held.message)
    except BatchError as failures:
        error = failures.failed[0].error
        raise error from error.__cause__


def _leases_failed(thread: str, error: BaseException) -> None:
    _log.critical("%s has died; the lease of the job is not extended", thread, exc_info=error)


def _lose(held: Held) -> None:
    held.cause = Cause.LOST
    held.attempt.lost = True
