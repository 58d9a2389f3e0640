"""Python scripts in processes of their own, as tests start them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast


class Script:
    """A script that a fresh interpreter runs, with warnings as errors.

    What it writes to stderr goes where the test's own does.
    """

    def __init__(self, code: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stdin = cast("IO[str]", self.process.stdin)
        self._stdout = cast("IO[str]", self.process.stdout)

    def tell(self, line: str) -> None:
        """Write a line to its stdin."""
        self._stdin.write(f"{line}\n")
        self._stdin.flush()

    def line(self) -> str:
        """What it prints next, without the end of the line; empty if it has ended."""
        return self._stdout.readline().rstrip("\n")

    def rest(self, seconds: float) -> str:
        """What else it prints until it ends, which it has to do in so many seconds.

        Raises CalledProcessError if it fails, which a script does that is late and so killed.
        """
        # Not by communicate, which loses what reading a line has read ahead.
        watch = threading.Timer(seconds, self.process.kill)
        watch.start()
        try:
            self._stdin.close()
            rest = self._stdout.read()
            self.process.wait()
        finally:
            watch.cancel()
        if self.process.returncode:
            raise subprocess.CalledProcessError(self.process.returncode, "the script", rest)
        return rest

    def kill(self) -> str:
        """End it without warning. What it had printed."""
        self.process.kill()
        rest = self._stdout.read()
        self.process.wait()
        return rest


@contextmanager
def started(code: str, *arguments: str) -> Iterator[Script]:
    """Start a script; it is killed at the end of the block."""
    script = Script(code, *arguments)
    with script.process:
        try:
            yield script
        finally:
            script.process.kill()
