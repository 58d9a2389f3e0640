"""The command knows its options, and the plugin is found by pytest."""

import subprocess
import sys
from pathlib import Path

from hypercube_queue_conformance import Harness, QueueConformance

assert Harness.__doc__
assert QueueConformance.__doc__
command = Path(sys.executable).with_name("hypercube-conformance")
shown = subprocess.run([command, "--help"], check=True, capture_output=True, text=True)
assert "MODULE:HARNESS" in shown.stdout
listed = subprocess.run(
    [sys.executable, "-m", "pytest", "--help"], check=True, capture_output=True, text=True
)
assert "--conformance-report" in listed.stdout
