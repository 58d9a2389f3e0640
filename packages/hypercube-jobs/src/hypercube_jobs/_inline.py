"""A queue for development: jobs run at their dispatch."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

from hypercube_jobs import _attempt, _call
from hypercube_jobs._attached import AttachedQueue
from hypercube_jobs._attempt import Attempt
from hypercube_jobs._errors import InlineDelay, TimeLimitExceeded
from hypercube_jobs._middleware import processing
from hypercube_jobs._observer import JobEvent, notify
from hypercube_jobs._record import Record
from hypercube_jobs._registry import Handler, Kind
from hypercube_queue import BatchError, Guarantees, Message
from hypercube_queue.driver import (
    MAX_POP,
    Delivery,
    Gate,
    PushBatch,
    SettlementBatch,
    checked_count,
    checked_queue_name,
    checked_wait,
)

_GUARANTEES = Guarantees(durable=False, shared=False, unique_ids="none", ordering="fifo")
#: How long an empty pop waits by default.
_POLL_TIMEOUT = timedelta(seconds=1)


class InlineQueue(AttachedQueue):
    """Runs each job where it is dispatched, and stores none: for development.

        jobs = Jobs(InlineQueue())

    `Jobs.from_env()` takes `inline://` for it. The handler's error reaches who dispatches,
    whatever the job's retries; a delay is refused with InlineDelay. Within a transaction
    (`dispatch_within`) a job runs after the commit, and its error is logged. Each dispatch
    runs, also under an id that was used before. An asynchronous handler runs on the caller's
    event loop for `dispatch_async`, else on one of its own. The time-outs of asynchronous
    handlers hold, those of synchronous ones do not.

    For a worker it is a queue that is always empty.
    """

    def __init__(self) -> None:
        super().__init__()
        # A forked child runs its jobs as its parent does.
        self._gate = Gate("inline queue", in_child=lambda: None)
        self._closed = threading.Event()

    @property
    def guarantees(self) -> Guarantees:
        return _GUARANTEES

    def push(self, *messages: Message) -> None:
        """Run the jobs of all messages; raises their error, or an ExceptionGroup of several."""
        self._gate.check()
        batch = PushBatch(messages, _GUARANTEES)
        errors: list[Exception] = []
        for item in batch.items:
            try:
                self.run(messages[item.index])
            except Exception as error:  # noqa: BLE001  # one failed item stops no other
                errors.append(error)
        try:
            batch.raise_failures()
        except BatchError as failures:
            errors.append(failures)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"several of {len(messages)} jobs failed", errors)

    def pop(
        self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
    ) -> list[Message]:
        with self._gate:
            checked_queue_name(queue_name, _GUARANTEES)
            checked_count("max_messages", max_messages, at_most=MAX_POP)
            self._closed.wait(checked_wait(wait, _POLL_TIMEOUT).total_seconds())
            self._gate.check()
            return []

    def ack(self, *messages: Message) -> None:
        self._refuse("ack", messages)

    def retry(self, *messages: Message) -> None:
        self._refuse("retry", messages)

    def dead_letter(self, *messages: Message) -> None:
        self._refuse("dead_letter", messages)

    def close(self) -> None:
        self._gate.close()
        self._closed.set()

    def _refuse(self, operation: str, messages: Sequence[Message]) -> None:
        with self._gate:
            # It has delivered none of them.
            SettlementBatch(operation, messages, Delivery, self, _GUARANTEES).raise_failures()

    # Running

    def check(self, message: Message) -> None:
        """Raise what is known before the job runs: UnknownKind, InlineDelay, QueueClosed."""
        self._run_of(message)

    def run(self, message: Message) -> None:
        """Run the job to its end, in this thread unless an event loop runs in it."""
        run = self._run_of(message)
        context = contextvars.copy_context()
        with self._gate, run:
            if run.kind.is_async:
                _call.run_to_end(run.call_async, context)
            else:
                context.run(run.call)

    async def run_async(self, message: Message) -> None:
        """Run the job to its end: on this event loop, or in a thread if it is synchronous."""
        run = self._run_of(message)
        context = contextvars.copy_context()
        with self._gate, run:
            if run.kind.is_async:
                await asyncio.create_task(run.call_async(), context=context)
            else:
                await _call.run_in_thread(run.call, context)

    def _run_of(self, message: Message) -> _Run:
        self._gate.check()
        if message.delay:
            raise InlineDelay(
                f"delay is {message.delay}, but an inline queue runs jobs at once: dispatch "
                "without a delay, or use another queue, such as memory:// with a worker in a "
                "thread, or in tests the fake queue"
            )
        jobs = self.attached
        kind = jobs.kind_of(message)
        return _Run(kind, _call.handler_of(kind), message, self)


class _Run:
    """One job that runs, as a context manager that tells observers how it ended."""

    def __init__(self, kind: Kind, handler: Handler, message: Message, queue: InlineQueue) -> None:
        self.kind = kind
        self._handler = handler
        self._payload = message.payload
        self._jobs = queue.attached
        record = Record.read(message.extra)
        self._timeout = record.timeout or kind.policy.timeout
        self.attempt = Attempt(
            id=message.id,
            kind=message.job_name,
            namespace=message.namespace,
            queue=message.queue_name,
            number=1,
            max_retries=0,
            last=True,
            trace=record.trace,
        )
        self._began = 0.0

    def call(self) -> None:
        _attempt.running.set(self)
        with processing(self.attempt, self._jobs.middleware):
            _call.call(self._handler, self.kind.codec.decode(self._payload))

    async def call_async(self) -> None:
        _attempt.running.set(self)
        with processing(self.attempt, self._jobs.middleware):
            job = self.kind.codec.decode(self._payload)
            try:
                async with asyncio.timeout(self._timeout.total_seconds()) as limit:
                    await _call.call_async(self._handler, job)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise TimeLimitExceeded(
                    f"the attempt took longer than its time-out, {self._timeout}"
                ) from error

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if not self._jobs.observers:
            return
        attempt = self.attempt
        event = JobEvent(
            id=attempt.id,
            kind=attempt.kind,
            namespace=attempt.namespace,
            queue=attempt.queue,
            attempt=attempt.number,
            max_retries=0,
            final=error is not None,
            duration=timedelta(seconds=time.monotonic() - self._began),
            error=error,
        )
        notify(self._jobs.observers, "processed" if error is None else "failed", event)
