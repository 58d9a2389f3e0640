"""Jobs are declared without a driver, and the command line says which one is missing."""

import subprocess
import sys
from pathlib import Path

from hypercube_jobs import PermanentError

assert issubclass(PermanentError, Exception)


command = Path(sys.executable).with_name("hypercube")
shown = subprocess.run([command, "--help"], check=True, capture_output=True, text=True)
assert "work" in shown.stdout
failed = subprocess.run(
    [command, "stats", "--url", "redis://localhost"], check=False, capture_output=True, text=True
)
assert failed.returncode != 0
assert "hypercube-queue-redis" in failed.stderr + failed.stdout
