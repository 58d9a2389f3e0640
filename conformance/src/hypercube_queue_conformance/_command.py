"""The command `hypercube-conformance`: certify a driver without writing a test file."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypercube_queue_conformance.__about__ import __version__

_REFERENCE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")
_TEST = """\
from {module} import {name} as _Harness
from hypercube_queue_conformance import QueueConformance


class Test{name}(QueueConformance):
    harness = _Harness
"""
_SETTINGS = """\
[pytest]
addopts = -p no:cacheprovider --import-mode=importlib
xfail_strict = true
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite against `module:Harness`; the exit status is pytest's."""
    parser = argparse.ArgumentParser(
        prog="hypercube-conformance",
        description="Certify a queue driver.",
        epilog="All other options go to pytest: -x, -k, -n, --conformance-report FILE.",
    )
    parser.add_argument("harness", metavar="MODULE:HARNESS", help="your subclass of Harness")
    parser.add_argument("--version", action="version", version=__version__)
    options, for_pytest = parser.parse_known_args(arguments)
    reference = _REFERENCE.fullmatch(options.harness)
    if reference is None:
        parser.error(f"{options.harness!r} is not of the form package.module:HarnessClass")
    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder, "hypercube_certified.py")
        test.write_text(_TEST.format_map(reference.groupdict()), encoding="utf-8")
        settings = Path(folder, "pytest.ini")
        settings.write_text(_SETTINGS, encoding="utf-8")
        # An interpreter of its own: `-m` finds the author's module in the current folder, and
        # pytest can rewrite the suite's asserts, which this process has imported already.
        command = [sys.executable, "-m", "pytest", "-c", str(settings), *for_pytest, str(test)]
        return subprocess.run(command, check=False).returncode  # noqa: S603 - our interpreter
