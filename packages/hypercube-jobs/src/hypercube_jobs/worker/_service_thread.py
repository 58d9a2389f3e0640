"""The threads that a worker cannot go on without."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from hypercube_jobs._failure import Frames, frames_of_thread
from hypercube_jobs.worker._held import NEVER


def service_thread(
    name: str, run: Callable[[], None], failed: Callable[[str, BaseException], None]
) -> threading.Thread:
    """A daemon thread that runs `run`; `failed` is called, in it, with what escapes from there.

    Without that it would end without a word where the error is SystemExit.
    """

    def watched() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001  # told, whatever it is
            failed(name, error)

    return threading.Thread(target=watched, name=name, daemon=True)


class Progress:
    """How long a thread has been at one piece of its work; it is at one within a `with` block."""

    def __init__(self, work: str) -> None:
        #: What it does, for people.
        self.work = work
        self._thread_id: int | None = None
        self._since = NEVER

    def __enter__(self) -> None:
        self._thread_id = threading.get_ident()
        self._since = time.monotonic()

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._since = NEVER

    def seconds(self) -> float:
        """How long it has been at it; less than zero if it is at nothing."""
        return time.monotonic() - self._since

    def stack(self) -> Frames:
        """Where it is."""
        return frames_of_thread(self._thread_id)
