"""A worker that is to stop and has no limit for what runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest


@dataclass
class Note:
    """A job."""

    text: str


@pytest.mark.parametrize("limit", [None, timedelta(0)])
def test_without_a_stop_timeout_it_waits_for_what_runs(box: Any, limit: timedelta | None) -> None:
    """Zero is no limit either: the handler is not cancelled, and its job is done."""
    running: list[str] = []

    @box.jobs.handler("note")
    async def note(job: Note) -> None:
        running.append("began")
        await asyncio.sleep(0.3)
        running.append("ended")

    box.jobs.dispatch(Note("x"))
    worker = box.start(stop_timeout=limit)
    box.until(lambda: running)
    worker.stop()
    worker.end()

    assert running == ["began", "ended"]
    assert box.recorder.steps() == ["dispatched", "processed"]
