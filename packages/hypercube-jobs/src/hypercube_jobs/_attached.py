"""Queues that have to know the jobs they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import Closing

if TYPE_CHECKING:
    from hypercube_jobs._jobs import Jobs


class AttachedQueue(Closing):
    """A base for queues that work with the `Jobs` object they were given to, and no other."""

    def __init__(self) -> None:
        self._jobs: Jobs | None = None

    @property
    def attached(self) -> Jobs:
        """The jobs it is for. Raises InvalidArgument if it is for none yet."""
        if self._jobs is None:
            name = type(self).__name__
            raise InvalidArgument(f"this {name} is for no jobs yet: make them with Jobs(queue)")
        return self._jobs

    def attach(self, jobs: Jobs) -> None:
        """Work with `jobs` from now on; `Jobs` calls it."""
        if self._jobs is not None and self._jobs is not jobs:
            raise InvalidArgument(
                f"this {type(self).__name__} is for another Jobs object; make one for each"
            )
        self._jobs = jobs
