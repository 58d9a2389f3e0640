"""What is left of the servers after a run, however it ended."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.backends import ports
from tools.backends.kind import Address
from tools.backends.redis import ask

import workspace

_WAYS = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.server(name))
        for name in ("redis@container", "redis@binary")
    ],
)

#: Says where its servers are, and then, if it shall, waits until somebody ends it.
_TELLS = """
def test_it():
    [name] = {names}
    with exclusive(name) as own:
        with open({file!r} + ".new", "w") as file:
            print(server(name).port, own.port, os.environ["HYPERCUBE_TEST_RUN"], file=file)
        os.rename({file!r} + ".new", {file!r})
        {then}
"""


class _Told:
    """What an inner run said of its servers."""

    def __init__(self, file: Path) -> None:
        shared, own, folder = file.read_text().split()
        self.servers = [Address(host="127.0.0.1", port=int(port)) for port in (shared, own)]
        self.folder = Path(folder)

    def answering(self) -> int:
        count = 0
        for place in self.servers:
            try:
                count += ask(place, "PING") == "PONG"
            except OSError:
                continue
        return count


@pytest.fixture
def started(inner: Any) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts an inner run that goes on until it is ended."""
    runs = []

    def start(name: str) -> subprocess.Popen[str]:
        file = str(inner.folder / "told")
        inner.write(_TELLS.format(names=[name], file=file, then="time.sleep(600)"), [name])
        run = subprocess.Popen(
            inner.command(),
            cwd=workspace.ROOT,
            env=inner.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        runs.append(run)
        return run

    yield start
    for run in runs:
        if run.poll() is None:
            run.kill()
            run.communicate()


def test_generated_input_may_be_slow(inner: Any) -> None:
    """On a loaded machine it is, and the test has found nothing."""
    done = inner(
        """
from hypothesis import HealthCheck, given, settings, strategies

@given(strategies.just(None))
def test_it(_):
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
    assert HealthCheck.filter_too_much not in settings().suppress_health_check
""",
        servers=[],
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "then"),
    [
        pytest.param("redis@binary", "pass", marks=pytest.mark.server("redis@binary")),
        pytest.param("redis@binary", "1 / 0", marks=pytest.mark.server("redis@binary")),
        pytest.param("redis@container", "os._exit(3)", marks=pytest.mark.server("redis@container")),
    ],
)
def test_nothing_is_left_after_a_run(inner: Any, name: str, then: str) -> None:
    """Whether its tests pass, fail, or end a process of xdist."""
    file = inner.folder / "told"
    tests = _TELLS.format(names=[name], file=str(file), then=then)
    done = inner(tests, "-n", "1", "--max-worker-restart=0", servers=[name])
    told = _Told(file)

    assert (done.returncode == 0) == (then == "pass"), done.stdout + done.stderr
    assert told.answering() == 0
    assert not told.folder.exists()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param("redis@binary", signal.SIGINT, marks=pytest.mark.server("redis@binary")),
        pytest.param(
            "redis@container", signal.SIGTERM, marks=pytest.mark.server("redis@container")
        ),
    ],
)
def test_nothing_is_left_after_a_run_that_was_told_to_end(
    inner: Any,
    started: Callable[[str], subprocess.Popen[str]],
    until: Callable[..., None],
    name: str,
    number: signal.Signals,
) -> None:
    """From the keyboard, or by whoever started it."""
    run = started(name)
    until((inner.folder / "told").exists)
    told = _Told(inner.folder / "told")
    assert told.answering() == 2
    run.send_signal(number)
    output, _ = run.communicate(timeout=60)

    assert run.returncode == pytest.ExitCode.INTERRUPTED, output
    assert told.answering() == 0
    assert not told.folder.exists()


@_WAYS
def test_the_next_run_removes_what_a_killed_one_left(
    inner: Any,
    started: Callable[[str], subprocess.Popen[str]],
    until: Callable[..., None],
    name: str,
) -> None:
    """Not before: as long as the other lives, its servers are its own."""
    run = started(name)
    until((inner.folder / "told").exists)
    told = _Told(inner.folder / "told")
    inner("def test_it(): pass", servers=[name])
    assert told.answering() == 2

    run.kill()
    run.communicate()
    assert told.answering() == 2
    inner("def test_it(): pass", servers=[name])

    assert told.answering() == 0
    assert not told.folder.exists()


def test_ports_are_given_once_and_leave_room_for_their_neighbours() -> None:
    given = ports.free(50)

    assert len(set(given)) == 50
    assert all(port % 2 == 0 and port + 10_001 < 32_768 for port in given)
