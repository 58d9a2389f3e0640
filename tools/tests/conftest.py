"""Makes the tools importable, as they are for each other; runs of pytest within a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))


@pytest.hookimpl(optionalhook=True)
def pytest_hypercube_servers() -> list[str]:
    """One server in each of the ways to get it, as most get it; and what documents speak of."""
    ways = ["redis", "redis@container", "redis@binary", "redis@apt", "redis-cluster@binary"]
    return [*ways, "rabbitmq", "postgres", "mysql"]


class Inner:
    """A run of pytest with the plugin, on a test module given as text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str) -> list[str]:
        plugins = ["-p", "tools.backends", "-p", "no:cacheprovider"]
        if "-n" in arguments:
            plugins += ["-p", "xdist"]
        place = ("--rootdir", str(self.folder), str(self.folder))
        return [sys.executable, "-m", "pytest", *plugins, *place, *arguments]

    def write(self, tests: str, servers: list[str]) -> None:
        head = "import os, sys, time, pytest\nfrom tools.backends import exclusive, server\n"
        (self.folder / "test_inner.py").write_text(head + tests)
        (self.folder / "conftest.py").write_text(
            f"def pytest_hypercube_servers(): return {servers}\n" if servers else ""
        )

    def environment(self, **variables: str) -> dict[str, str]:
        """Without what this run was told, and without what xdist tells its processes."""
        ours = ("HYPERCUBE_TEST_", "PYTEST_", "COV_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | variables

    def __call__(
        self, tests: str, *arguments: str, servers: list[str], **variables: str
    ) -> subprocess.CompletedProcess[str]:
        self.write(tests, servers)
        return subprocess.run(
            self.command(*arguments),
            cwd=ROOT,
            env=self.environment(**variables),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def inner(tmp_path: Path) -> Inner:
    return Inner(tmp_path)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until something holds."""
    import time

    def wait(condition: Callable[[], object]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, "it never came to this"
            time.sleep(0.05)

    return wait
