"""What is said, and how often, while calls to the backend fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

#: How long after a line the next one comes, in seconds: at first, and at most.
_FIRST_GAP = 10.0
_LONGEST_GAP = 600.0


class Outage:
    """Logs failures of one kind of call: the first one at once, then at growing distances.

    `what` names the call, as in "fetching jobs".
    """

    def __init__(
        self, what: str, log: logging.Logger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._log = log
        self._clock = clock
        self._began_at: float | None = None
        self._next_at = 0.0
        self._gap = _FIRST_GAP

    def note(self, error: Exception, pause: float) -> None:
        """Note a failure, after which the call is repeated in `pause` seconds."""
        now = self._clock()
        since = ""
        if self._began_at is None:
            self._began_at = now
            self._gap = _FIRST_GAP
        elif now < self._next_at:
            return
        else:
            since = f" for {duration_text(now - self._began_at)}"
            self._gap = min(2 * self._gap, _LONGEST_GAP)
        self._next_at = now + self._gap
        self._log.warning("%s failed%s: %s; retrying in %g s", self._what, since, error, pause)

    def end(self) -> None:
        """Note a success."""
        if self._began_at is not None:
            lasted = duration_text(self._clock() - self._began_at)
            self._began_at = None
            self._log.info("%s works again, after %s", self._what, lasted)


def duration_text(seconds: float) -> str:
    """A duration as people say it: `8 s`, `12 min`, `3 h 5 min`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"
