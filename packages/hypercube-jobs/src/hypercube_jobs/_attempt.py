"""What a handler can learn about the attempt it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The attempt that a handler is running on. To be read only."""

    #: The message's id, the same on every attempt.
    id: str
    kind: str
    #: Empty but for the jobs of `jobs.under(namespace)`.
    namespace: str = ""
    queue: str
    #: 1 on the first run. Deliveries that cost nothing are not counted (ATT-1).
    number: int
    #: How many retries the job was dispatched with.
    max_retries: int
    #: If this attempt fails, there is no other.
    last: bool
    #: The lease was lost: somebody else may be running the job by now, and what this attempt
    #: comes to is dropped. It becomes true while a synchronous handler runs; an asynchronous
    #: one is cancelled.
    lost: bool = False
    #: What came with the job for whoever traces, such as `traceparent`.
    trace: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Whether the kind is declared here. Others are named by whoever pushes, so label no metric
    #: with them.
    declared: bool = True


class Run(Protocol):
    """What runs a handler."""

    @property
    def attempt(self) -> Attempt: ...


#: Set in the context of each handler.
running: ContextVar[Run] = ContextVar("hypercube_jobs.running")


def current_attempt() -> Attempt | None:
    """The attempt that the calling handler runs on; None outside a handler.

        attempt = current_attempt()
        if attempt is not None and attempt.last:
            mark_as_failed(job.order_id)

    It is found in the handler's context, which `asyncio.create_task` and `asyncio.to_thread`
    pass on; a thread of your own does not have it.
    """
    run = running.get(None)
    return None if run is None else run.attempt
