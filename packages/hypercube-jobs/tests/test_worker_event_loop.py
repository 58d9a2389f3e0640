"""Asynchronous handlers that block the event loop, or do not end when they are cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs import Constant, Ending, TimeLimitExceeded
from hypercube_jobs.worker import _coordinator, _execution, _watch

AT_ONCE = Constant(timedelta(0))
SHORT = timedelta(seconds=0.1)
DEAD = (0, 0, 0, 1)


@dataclass
class Note:
    """The job of these tests."""

    text: str


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes a fraction of one."""
    monkeypatch.setattr(_watch, "CLEAN_UP", 0.2)
    monkeypatch.setattr(_coordinator, "CLEAN_UP", 0.2)
    monkeypatch.setattr(_watch, "_BLOCKED", 0.3)
    monkeypatch.setattr(_execution, "_LOOK_AT_LOOP", 0.1)


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """What blocked handlers wait for; in the end they get it."""
    event = threading.Event()
    yield event
    event.set()


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_who_blocks_the_event_loop_is_told(
    box: Any, go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Which job and which line, once, though nothing is over its time-out; and when it is over."""
    caplog.set_level("INFO")
    began = threading.Event()
    done: list[str] = []

    @box.jobs.handler("blocking")
    async def block(job: Note) -> None:
        await asyncio.sleep(0)
        began.set()
        go.wait()  # the line that blocks
        done.append("blocking")

    @box.jobs.handler("innocent")
    async def innocent(job: Note) -> None:
        done.append("innocent")

    box.jobs.dispatch_kind("blocking", Note("x"), id="culprit")
    running = box.start(concurrency=4)
    assert began.wait(30)
    box.jobs.dispatch_kind("innocent", Note("x"))
    box.until(lambda: warnings(caplog, "no asynchronous job of this process has got on"))
    time.sleep(0.5)

    [warning] = warnings(caplog, "no asynchronous job of this process has got on")
    assert "job blocking culprit blocks the event loop" in warning
    assert "go.wait()  # the line that blocks" in warning
    assert "call_async" not in warning, "how the worker came there is of no interest"
    go.set()
    box.until(lambda: warnings(caplog, "asynchronous jobs get on again"))
    box.until(lambda: sorted(done) == ["blocking", "innocent"])
    running.stop()
    running.end()
    assert box.counts() == (0, 0, 0, 0)


@pytest.mark.parametrize("way", ["first step", "task", "callback"])
def test_the_job_is_known_however_it_blocks(
    box: Any, go: threading.Event, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """In its first step, in a task or in a callback of its own."""

    async def sub() -> None:
        go.wait()

    @box.jobs.handler("note")
    async def handle(job: Note) -> None:
        if way == "first step":
            go.wait()
        elif way == "task":
            await asyncio.gather(sub())
        else:
            asyncio.get_running_loop().call_soon(go.wait)
            await asyncio.sleep(0)

    box.jobs.dispatch(Note("x"), id="culprit")
    box.start()
    box.until(lambda: warnings(caplog, "job note culprit blocks the event loop"))


def test_a_blocked_time_out_is_told_and_the_attempt_fails(
    box: Any, go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """When it ends, though it ends well: as with a synchronous handler."""

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    async def handle(job: Note) -> None:
        go.wait()  # the line that blocks

    box.jobs.dispatch(Note("x"), id="one")
    running = box.start()
    box.until(lambda: warnings(caplog, "job note one is over its time-out of 0.1 s"))
    [warning] = warnings(caplog, "job note one is over its time-out")
    assert "it cannot be cancelled, because it blocks the event loop itself" in warning
    assert "go.wait()  # the line that blocks" in warning
    assert box.counts() == (0, 0, 1, 0), "it is not settled while it runs"
    go.set()
    box.until(lambda: box.counts() == DEAD)
    running.stop()
    running.end()

    [event] = box.recorder.of("failed")
    assert isinstance(event.error, TimeLimitExceeded)
    assert "go.wait()  # the line that blocks" in box.jobs.failed()[0].failure.traceback


def test_an_attempt_that_blocked_past_its_time_out_has_failed(box: Any) -> None:
    """Also if nobody had to be told."""

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    async def handle(job: Note) -> None:
        time.sleep(0.25)

    box.jobs.dispatch(Note("x"))
    box.drain()
    assert box.counts() == DEAD


def test_a_victim_of_a_blocked_loop_is_no_culprit(
    box: Any, go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Its time-out cannot be kept, and the log says because of whom."""

    @box.jobs.handler("blocking")
    async def block(job: Note) -> None:
        await asyncio.sleep(0.01)
        go.wait()  # the line that blocks

    @box.jobs.handler("waiting", timeout=SHORT)
    async def wait(job: Note) -> None:
        await asyncio.sleep(60)

    box.jobs.dispatch_kind("waiting", Note("x"), id="victim", retries=0)
    box.jobs.dispatch_kind("blocking", Note("x"), id="culprit")
    running = box.start(concurrency=2)
    box.until(lambda: warnings(caplog, "job waiting victim is over its time-out"))
    [warning] = warnings(caplog, "job waiting victim is over its time-out")
    assert "it cannot be cancelled, because job blocking culprit blocks the event loop" in warning
    assert "go.wait()  # the line that blocks" in warning
    go.set()
    box.until(lambda: box.counts() == DEAD)
    running.stop()
    running.end()


def stubborn(box: Any, ends: threading.Event, **options: Any) -> None:
    @box.jobs.handler("note", timeout=SHORT, retries=0, **options)
    async def handle(job: Note) -> None:
        while not ends.is_set():
            try:
                await asyncio.sleep(0.02)  # the line that waits
            except asyncio.CancelledError:
                continue


def test_who_swallows_the_cancellation_is_told(
    box: Any, go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The attempt has failed, and is settled when it ends."""
    stubborn(box, go)
    box.jobs.dispatch(Note("x"), id="one")
    running = box.start()
    box.until(lambda: warnings(caplog, "job note one is over its time-out of 0.1 s"))
    [warning] = warnings(caplog, "job note one is over its time-out")
    assert "it goes on although it has been cancelled; its attempt has failed" in warning
    assert "await asyncio.sleep(0.02)  # the line that waits" in warning
    assert box.counts() == (0, 0, 1, 0)
    go.set()
    box.until(lambda: box.counts() == DEAD)
    running.stop()
    running.end()


def test_an_overrun_of_the_event_loop_ends_a_worker_that_may_be_replaced(
    box: Any, go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The culprit has failed, those whom it stopped go back at no cost, and threads may end."""
    began = threading.Barrier(3)
    done: list[str] = []

    @box.jobs.handler("blocking", timeout=SHORT, retries=0)
    async def block(job: Note) -> None:
        await asyncio.sleep(0.01)
        began.wait(30)
        go.wait()

    @box.jobs.handler("waiting", timeout=timedelta(hours=1))
    async def wait(job: Note) -> None:
        await asyncio.sleep(1e9)

    @box.jobs.handler("thread")
    def thread(job: Note) -> None:
        began.wait(30)
        time.sleep(0.5)
        done.append("thread")

    box.jobs.dispatch_kind("waiting", Note("x"), id="victim")
    running = box.start(concurrency=3, process_ends=True, end_on_overrun=True)
    box.until(lambda: box.counts() == (0, 0, 1, 0))
    box.jobs.dispatch_kind("blocking", Note("x"), id="culprit")
    box.jobs.dispatch_kind("thread", Note("x"))
    began.wait(30)
    running.end()

    assert running.returned is Ending.OVERRUN
    assert running.worker.abandoned == 2
    assert done == ["thread"]
    assert box.counts() == (0, 1, 0, 1)
    [failed] = box.jobs.failed()
    assert (failed.id, failed.failure.type) == ("culprit", "hypercube_jobs.TimeLimitExceeded")
    assert [event.id for event in box.recorder.of("interrupted")] == ["victim"]
    assert "nothing but the end of this process can end it" in caplog.text


def test_a_stubborn_overrun_ends_such_a_worker_too(box: Any, go: threading.Event) -> None:
    """It would keep its slot for good."""
    stubborn(box, go)
    box.jobs.dispatch(Note("x"))
    running = box.start(process_ends=True, end_on_overrun=True)
    running.end()

    assert running.returned is Ending.OVERRUN
    assert box.counts() == DEAD


def test_a_handler_that_cleans_up_in_time_ends_no_process(box: Any) -> None:
    """As long as it takes no longer than others would wait for it."""

    @box.jobs.handler("note", timeout=SHORT, retries=0)
    async def handle(job: Note) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)

    box.jobs.dispatch(Note("x"))
    running = box.start(process_ends=True, end_on_overrun=True)
    box.until(lambda: box.counts() == DEAD)
    time.sleep(0.4)
    assert not running.ended
    running.stop()
    running.end()
    assert running.returned is Ending.STOPPED
