"""Versions that are pinned one by one: which go together, and what becomes of those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

import workspace

PACKAGES = workspace.load()
CONTRACT, DRIVER = PACKAGES["hypercube-queue"], PACKAGES["hypercube-queue-memory"]

_PROGRAM = """\
from hypercube_queue import Message, open_queue

with open_queue("memory://") as queue:
    queue.push(Message("work", b"payload"))
    [message] = queue.pop("work")
    queue.ack(message)
    print(message.payload.decode())
"""


@pytest.fixture
def index(wheel_of_version, tmp_path: Path) -> Path:
    """A folder of wheels: two minors and one major of the contract, two minors of a driver."""
    folder = tmp_path / "index"
    for version in ("1.0.0", "1.7.0", "2.0.0"):
        wheel_of_version(CONTRACT, version, folder)
    for version in ("1.0.0", "1.1.0"):
        wheel_of_version(DRIVER, version, folder)
    return folder


def test_a_pinned_driver_works_with_every_contract_of_its_major(environment, index: Path) -> None:
    """The newest one is what an installation without a word about it takes."""
    only = ("--no-index", "--find-links", str(index))
    pinned = f"{DRIVER.name}==1.0.0"
    for asked, resolved in (
        ([f"{CONTRACT.name}==1.0.0"], "1.0.0"),
        ([f"{CONTRACT.name}==1.7.0"], "1.7.0"),
        (["--upgrade"], "1.7.0"),
    ):
        done = environment.install(*only, pinned, *asked)
        assert done.returncode == 0, done.stderr
        assert environment.installed() == {CONTRACT.name: resolved, DRIVER.name: "1.0.0"}
        assert environment.run("-c", _PROGRAM) == "payload\n"


def test_a_driver_and_a_contract_of_another_major_do_not_install_together(
    environment, index: Path
) -> None:
    """The installer says which of the two asks for what, and installs neither."""
    only = ("--no-index", "--find-links", str(index))
    done = environment.install(*only, DRIVER.name, f"{CONTRACT.name}==2.0.0")

    assert done.returncode != 0
    assert f"you require {CONTRACT.name}==2.0.0" in done.stderr
    assert f"{DRIVER.name} depend on {CONTRACT.name}" in " ".join(done.stderr.split())
    assert environment.installed() == {}


def test_a_newer_driver_does_not_move_a_pinned_contract(environment, index: Path) -> None:
    """Each is pinned by itself."""
    only = ("--no-index", "--find-links", str(index))
    environment.install(*only, f"{CONTRACT.name}==1.0.0", f"{DRIVER.name}==1.0.0")
    done = environment.install(*only, "--upgrade", DRIVER.name, f"{CONTRACT.name}==1.0.0")

    assert done.returncode == 0, done.stderr
    assert environment.installed() == {CONTRACT.name: "1.0.0", DRIVER.name: "1.1.0"}
    assert environment.run("-c", _PROGRAM) == "payload\n"
