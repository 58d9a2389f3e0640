"""Each distribution by itself, from its wheel, in an environment that nothing else has entered."""

from __future__ import annotations

from pathlib import Path

import pytest

import workspace

PACKAGES = workspace.load()
USES = Path(__file__).parent / "uses"


def _needed(name: str) -> set[str]:
    """The distributions of the workspace that an installation without extras brings."""
    found = {name}
    for requirement in PACKAGES[name].dependencies:
        needed = workspace.requirement_name(requirement)
        if needed in PACKAGES:
            found |= _needed(needed)
    return found


@pytest.mark.parametrize("name", PACKAGES)
def test_a_distribution_installs_alone_and_works(
    environment, constraints: str, tmp_path: Path, name: str
) -> None:
    """With what it declares and no other driver; `uses/` has a program for each."""
    done = environment.install("--constraint", constraints, name)
    assert done.returncode == 0, done.stderr

    installed = environment.installed()
    assert {each for each in installed if each in PACKAGES} == _needed(name)
    assert installed[name] == PACKAGES[name].version
    environment.run(str(USES / f"{name}.py"), cwd=tmp_path)


def test_every_program_belongs_to_a_distribution() -> None:
    """One that was renamed would be left behind unnoticed."""
    assert {file.stem for file in USES.glob("*.py")} == set(PACKAGES)
