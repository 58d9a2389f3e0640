"""How the worker's threads tell its coordinator that something has changed."""

from __future__ import annotations

import threading


class Bell:
    """Rings are remembered, and many before a wait are one."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        if not self._rung.is_set():
            self._rung.set()

    def wait(self, seconds: float | None = None) -> None:
        """Return once it has rung since the last wait, or after `seconds`."""
        self._rung.wait(seconds)
        self._rung.clear()
