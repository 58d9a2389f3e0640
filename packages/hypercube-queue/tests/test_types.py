"""What a type checker makes of the package as it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
from datetime import timedelta
from typing import assert_type

from hypercube_queue import (
    AsyncQueue, AsyncRedriver, BatchError, DeadLetterStore, Guarantees, ItemFailure, Message, Queue,
    QueueStats, StatsProvider, capability, open_queue,
)
from hypercube_queue_memory import MemoryQueue

queue = open_queue("memory://")
assert_type(queue, Queue)
assert_type(queue.guarantees, Guarantees)
assert_type(queue.pop("q", 10, wait=timedelta(0)), list[Message])
if stats := capability(queue, StatsProvider):
    assert_type(stats, StatsProvider)
    assert_type(stats.stats("q"), QueueStats)
assert_type(capability(queue, DeadLetterStore), DeadLetterStore | None)
with MemoryQueue() as memory:
    as_queue: Queue = memory
    as_store: DeadLetterStore = memory
try:
    queue.push(Message("q", b"1"))
except BatchError as error:
    assert_type(error.failed, tuple[ItemFailure, ...])


async def asynchronous() -> None:
    async with AsyncQueue(queue) as other:
        assert_type(await other.pop("q"), list[Message])
        assert_type(capability(other, AsyncRedriver), AsyncRedriver | None)
"""


def _checked(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy_cache", "program.py"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )


def test_an_application_is_checked_against_our_types(tmp_path: Path) -> None:
    """py.typed is shipped, drivers are queues, and a capability has its methods."""
    done = _checked(_PROGRAM, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_mistake_is_found_by_the_type_checker(tmp_path: Path) -> None:
    """Rather than by the backend."""
    done = _checked(
        "from hypercube_queue import Message, open_queue\n"
        "open_queue('memory://').pop('q', wait=5)\n"
        "Message('q', 'text')\n"
        "open_queue('memory://').redrive('q', 1)\n",
        tmp_path,
    )

    assert 'Argument "wait" to "pop" of "Queue" has incompatible type "int"' in done.stdout
    assert 'Argument 2 to "Message" has incompatible type "str"' in done.stdout
    assert '"Queue" has no attribute "redrive"' in done.stdout
