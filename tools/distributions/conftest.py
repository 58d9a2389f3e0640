"""Clean environments, and the wheels that are installed into them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import workspace  # noqa: E402  # tools/ is on the path only now

DIST = ROOT / "dist"


class Environment:
    """A virtual environment with nothing in it but what is installed here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self._uv("venv", "--python", sys.executable, str(folder)).check_returncode()

    def install(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What uv said; its return code tells whether the requirements can be met."""
        return self._uv("pip", "install", "--python", str(self.python), *arguments)

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """What a program of Python's prints; it has to succeed."""
        done = subprocess.run(
            [str(self.python), "-W", "error", *arguments],
            cwd=cwd or self._folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            env=_environment(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def installed(self) -> dict[str, str]:
        """The versions of all distributions, by name."""
        listing = self._uv("pip", "list", "--python", str(self.python), "--format", "json")
        listing.check_returncode()
        return {each["name"]: each["version"] for each in json.loads(listing.stdout)}

    @staticmethod
    def _uv(*arguments: str) -> subprocess.CompletedProcess[str]:
        uv = shutil.which("uv")
        assert uv is not None, "uv is not installed; `nox -s tests` brings it"
        return subprocess.run(
            [uv, "--quiet", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            env=_environment(),
        )


def _environment() -> dict[str, str]:
    """Without what would let the checkout be imported, or another environment be used."""
    left_out = {"PYTHONPATH", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An empty one."""
    return Environment(tmp_path / "environment")


@pytest.fixture
def constraints() -> str:
    """Where the wheels of this workspace are, in a file that lets nothing else be taken."""
    file = DIST / "constraints.txt"
    assert file.exists(), "the wheels are not built; `nox -s wheels` does it"
    return str(file)


@pytest.fixture
def wheel() -> Callable[[Path, Path], None]:
    """Builds the wheel of one folder into another, with the build backend of this environment."""

    def built(source: Path, into: Path) -> None:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
        subprocess.run(
            [*command, "--outdir", str(into), str(source)],
            check=True,
            capture_output=True,
            timeout=300,
        )

    return built


@pytest.fixture
def wheel_of_version(
    tmp_path: Path, wheel: Callable[[Path, Path], None]
) -> Callable[[workspace.Package, str, Path], None]:
    """Builds the wheel that a distribution would have under another version."""

    def built(package: workspace.Package, version: str, into: Path) -> None:
        source = tmp_path / f"{package.name}-{version}"
        shutil.copytree(ROOT / package.folder, source, ignore=_ignored)
        about = source / "src" / package.import_name / "__about__.py"
        about.write_text(f'"""The version."""\n\n__version__ = "{version}"\n')
        wheel(source, into)

    return built


def _ignored(_folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if name in {"__pycache__", "tests", ".venv"}}
