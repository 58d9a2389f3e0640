"""The README's table of the names in vukem's queue."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import is_typeddict

import pytest
from typer.testing import CliRunner

from hypercube_jobs._command import app

README = Path(__file__).parents[1] / "README.md"
MODULES = [
    "hypercube_jobs.testing",
    "hypercube_jobs",
    "hypercube_queue_memory",
    "hypercube_queue_sql",
    "hypercube_queue",
]
#: What the package exports in version 0.30; fields and methods after a point.
EXPORTS = re.findall(
    r"\S+",
    """
    DefaultTable DefaultFailedTable MaxFreeInterruptions MigrationID ErrDuplicateKind
    ErrInlineDelay ErrNoTx ErrPermanent ErrReservationLost ErrUnknownKind Constant
    Dispatched Exponential Migrations Attempt Attempt.Number Attempt.MaxRetries AttemptFrom
    Attempt.Last Clock Clock.SetClock Database NewDatabase Database.CreateTables
    Database.Pending Database.PushTx Database.SetClock DatabaseOptions.Table
    DatabaseOptions.FailedTable DatabaseOptions.Grace DatabaseOptions.Now Driver Driver.Push
    Driver.Pop Driver.Ack Driver.Release Driver.Fail FailedJob FailedJob.FailedAt
    FailedStore FailedStore.Failed FailedStore.Retry FailedStore.Forget Fake NewFake
    Fake.Messages Fake.Push Inline Job Job.Kind JobEvent JobEvent.Status JobEvent.Final
    JobEvent.Duration JobEvent.Err JobStatus JobDispatched JobProcessed JobFailed Memory
    NewMemory Memory.Failed Memory.Pending Memory.SetClock Message Message.AvailableAt
    Observer Observer.ObserveJob Option Backoff Delay OnQueue Retries Timeout New
    Queue.AddObserver Queue.Dispatch Queue.DispatchKind Queue.DispatchKindTx
    Queue.DispatchTx Queue.Driver Queue.Message Queue.Process Queue.Register Queue.SetClock
    Queue.SetObserver Queue.Work Registration Handle HandleKind Registration.Kind Sync
    TxPusher TxPusher.PushTx WorkOptions.Queues WorkOptions.Concurrency WorkOptions.Sleep
    WorkOptions.MaxJobs WorkOptions.StopWhenEmpty WorkOptions.StopTimeout queuetest
    QUEUE_CONNECTION
    """,
)


def _rows() -> list[tuple[str, str]]:
    table = README.read_text().partition("## Names in vukem's queue")[2]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE)
    return [row for row in rows if row[0] not in {"vukem", "---"}]


ROWS = _rows()


def _resolve(name: str) -> None:
    """Find a dotted name, or a parameter as in `Worker(queues=)`. Raises AssertionError."""
    path, _, parameter = name.rstrip("=)").partition("(")
    module = next((each for each in MODULES if path.startswith(f"{each}.")), "hypercube_jobs")
    value = importlib.import_module(module)
    for part in path.removeprefix(f"{module}.").split("."):
        if is_typeddict(value):
            assert part in value.__annotations__, name
            return
        known = part in getattr(value, "__annotations__", {})
        assert known or hasattr(value, part), name
        value = getattr(value, part, None)
    if parameter:
        assert parameter in inspect.signature(value).parameters, name


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_name_on_the_side_of_python_exists(row: tuple[str, str]) -> None:
    """Names, options, fields and commands; URLs and variables are told by how they look."""
    others = re.compile(r"\w+://|\w+=\w+|[A-Z]+_(?!FREE)[A-Z_]+|hypercube \w+|table")
    for quoted in re.findall(r"`([^`]+)`", row[1]):
        if quoted.startswith("hypercube "):
            done = CliRunner().invoke(app, [quoted.removeprefix("hypercube "), "--help"])
            assert done.exit_code == 0, quoted
        elif not others.fullmatch(quoted):
            _resolve(quoted)


def test_every_export_of_the_other_side_has_its_row() -> None:
    """With a counterpart, or with the reason why there is none."""
    left = {quoted for row in ROWS for quoted in re.findall(r"`([^`]+)`", row[0])}

    assert [name for name in EXPORTS if name not in left] == []
    assert all(row[1].strip() for row in ROWS)


@pytest.mark.parametrize("name", ["Jobs.nothing", "Worker(nothing=)", "KindOptions.nothing"])
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    """Or the test above could not fail."""
    with pytest.raises(AssertionError):
        _resolve(name)
