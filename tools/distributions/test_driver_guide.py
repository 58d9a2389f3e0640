"""The driver of the guide, built and certified where nothing of this repository is at hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import workspace

PACKAGES = workspace.load()
EXAMPLE = workspace.ROOT / "examples/hypercube-queue-files"
GUIDE = workspace.ROOT / "docs/driver-guide.md"
_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def _quick_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each push waits for the disk; where there is a file system in memory, that is quick."""
    if _IN_MEMORY.is_dir():
        monkeypatch.setenv("TMPDIR", str(_IN_MEMORY))


@pytest.mark.usefixtures("_quick_files")
def test_the_driver_of_the_guide_is_certified_from_wheels_alone(
    environment, constraints: str, wheel: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    """By the command and the harness that the guide shows, with the outcome that it shows."""
    source = tmp_path / "source"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "dist", ".*"))
    wheel(source, tmp_path)
    [built] = tmp_path.glob("*.whl")
    wanted = ("hypercube-queue-conformance", "pytest-xdist", "mypy")
    done = environment.install("--constraint", constraints, str(built), *wanted)
    assert done.returncode == 0, done.stderr
    ours = {"hypercube-queue", "hypercube-queue-conformance"}
    assert set(environment.installed()) & set(PACKAGES) == ours

    command = environment.python.with_name("hypercube-conformance")
    report = tmp_path / "report.json"
    options = ("-q", "-n", "2", f"--conformance-report={report}")
    said = environment.run(
        str(command), "files_harness:FilesHarness", *options, cwd=source / "tests"
    )

    [shown] = [line for line in GUIDE.read_text().splitlines() if ": certified; of " in line]
    assert shown in said.splitlines()
    content = json.loads(report.read_text())
    assert content["suite"] == PACKAGES["hypercube-queue-conformance"].version
    assert content["contract"] == PACKAGES["hypercube-queue"].version
    [driver] = content["drivers"]
    assert driver["certified"] is True
    assert driver["driver"] == "hypercube_queue_files._queue.FilesQueue"
    assert driver["denied"] == driver["absent"] != []
    assert driver["weakened"] == ["queue_name_pattern", "max_message_bytes"]
    badge = json.loads(report.with_suffix(".badge.json").read_text())
    assert badge["color"] == "brightgreen"

    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n")
    mypy = ("-m", "mypy", "--config-file", str(settings), "--cache-dir", str(tmp_path / "cache"))
    environment.run(*mypy, "-p", "hypercube_queue_files", cwd=tmp_path)
