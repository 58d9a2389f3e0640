"""`hypercube-conformance`, and the example of the README that it is shown with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from hypercube_queue_conformance import __version__

pytest_plugins = ["pytester"]

_HERE = Path(__file__).parent
_FILE = re.compile(r"<!-- file: ([\w.]+) -->\n```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def command(tmp_path):
    """Runs the command as people do, in a folder that has the README's files."""
    for name, text in _FILE.findall((_HERE.parent / "README.md").read_text("utf-8")):
        (tmp_path / name).write_text(text, "utf-8")

    def run(*arguments):
        [script] = entry_points(group="console_scripts", name="hypercube-conformance")
        call = f"import sys; from {script.module} import {script.attr}; sys.exit({script.attr}())"
        # Pytest's variable would make the inner run believe that it is not the outermost.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        return subprocess.run(
            [sys.executable, "-c", call, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def test_the_readme_s_harness_is_certified_without_a_test_file(command, tmp_path):
    """Every rule, and the report that was asked for."""
    done = command("my_harness:MyHarness", "-q", "-n2", "--conformance-report=report.json")
    assert done.returncode == 0, done.stdout
    assert "TestMyHarness: certified; of 66 rules" in done.stdout
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [driver["certified"] for driver in report["drivers"]] == [True]


def test_the_readme_s_test_file_runs(command, tmp_path):
    """The class of the README is collected, and its tests pass."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "push"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "TestMyDriver: not certified" in done.stdout


def test_pytest_s_options_are_passed_on(command):
    """Such as a choice of tests."""
    done = command("my_harness:MyHarness", "-k", "push_6", "-v")
    assert done.returncode == 0
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("reference", ["my_harness", "my_harness:", ":MyHarness", "a b:C", "m:c()"])
def test_what_is_no_reference_is_refused(command, reference):
    """With a word on what one looks like."""
    done = command(reference)
    assert done.returncode == 2
    assert "is not of the form package.module:HarnessClass" in done.stderr


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("no_such_module:MyHarness", "No module named 'no_such_module'"),
        ("my_harness:NoSuchHarness", "cannot import name 'NoSuchHarness'"),
        ("my_harness:Unavailable", "harness is not a subclass of Harness"),
    ],
)
def test_what_is_no_harness_is_an_error(command, reference, told):
    """And nothing is certified."""
    done = command(reference)
    assert done.returncode == 2
    assert told in done.stdout


def test_the_version_is_the_suite_s(command):
    """As the report has it."""
    assert command("--version").stdout == f"{__version__}\n"
