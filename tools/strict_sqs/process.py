"""The server in a process of its own, so that its work is not its client's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def strict_process(*arguments: str) -> Iterator[str]:
    """Its endpoint, as long as the block runs; the arguments are those of the command."""
    command = [sys.executable, "-m", "tools.strict_sqs", *arguments]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield "" if process.stdout is None else process.stdout.readline().strip()
        finally:
            process.kill()
