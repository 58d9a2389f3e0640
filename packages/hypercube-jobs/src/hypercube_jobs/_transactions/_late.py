"""What is done after a commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Late:
    """Something to do after a commit. It raises nothing: nobody is there to catch it."""

    #: What does it.
    call: Callable[[], None]
    #: What does it where an event loop must not be blocked.
    call_async: Callable[[], Awaitable[None]]
