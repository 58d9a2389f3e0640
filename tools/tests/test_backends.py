"""The pytest plugin for servers, as the sessions load it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import workspace


def test_a_run_may_allow_installing_servers_and_says_which_it_needs(tmp_path: Path) -> None:
    """The option is taken, and the header says that no server is needed so far."""
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tools.backends", "-p", "no:cacheprovider"),
            *("--rootdir", str(tmp_path), "--install-servers", str(tmp_path)),
        ],
        cwd=workspace.ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "servers: none needed" in done.stdout
