"""Tasks that take their first step at once, which Python has from 3.12 on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any


class FirstSteps:
    """Starts tasks on one event loop, outside of any other task.

    The first step is taken here and now: a pass through the event loop costs several times as
    much as a short handler.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._attributes: dict[str, Any] = getattr(loop, "__dict__", {})
        self._step: Callable[[], object] | None = None

    def start(self, attempt: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        """A task of its own for an attempt."""
        if sys.version_info >= (3, 12):
            return asyncio.Task(attempt, loop=self._loop, context=context, eager_start=True)
        # A new task asks its loop to call its first step soon. The answer is to call it now.
        self._attributes["call_soon"] = self._keep
        try:
            task = asyncio.Task(attempt, loop=self._loop, context=context)
        finally:
            del self._attributes["call_soon"]
        step, self._step = self._step, None
        if step is not None:
            context.run(step)
        return task

    def _keep(self, step: Callable[[], object], *, context: Context) -> None:  # noqa: ARG002
        self._step = step
