"""The benchmarks run; what they find is for people."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tools.bench.contestants import PEERS

import workspace


def test_a_quick_run_measures_a_driver_beside_its_raw_limit() -> None:
    """Each figure has its line, with what part of the limit it is where there is one."""
    done = _bench("memory", "--quick")

    assert done.returncode == 0, done.stderr
    lines = [line.split("│")[1:-1] for line in done.stdout.splitlines() if "│" in line]
    figures = {name.strip(): [cell.strip() for cell in cells] for name, *cells in lines}
    assert list(figures) == [
        "push(1)",
        "pop+ack(1)",
        "push(100)",
        "pop+ack(100)",
        "pop before 100 ready",
        "pop before 10,000 ready",
        "pop before 100 ready, 10,000 dead",
        "pop cost, many ready by few",
        "pop cost, many dead by none",
        "worker drain of 1,000, sync",
        "worker drain of 1,000, async",
        "worker drain by pop+ack(100), sync",
        "worker drain by pop+ack(100), async",
        "idle pop",
    ]
    beside_raw = [name for name, cells in figures.items() if re.fullmatch(r"\d+\.\d\d", cells[2])]
    assert beside_raw == ["push(1)", "pop+ack(1)", "push(100)", "pop+ack(100)"]


def test_a_server_that_cannot_be_had_is_an_error_with_the_reason() -> None:
    """Who asks for a figure must not get a table without it."""
    done = _bench("postgresql", HYPERCUBE_TEST_POSTGRES_URL="postgresql://127.0.0.1:1/none")

    assert done.returncode != 0
    assert "postgres cannot be had: PostgreSQL at 127.0.0.1:1 does not answer" in done.stderr


def test_every_contestant_has_its_script() -> None:
    """And no script is there for nobody."""
    scripts = {file.stem for file in (workspace.ROOT / "tools/bench/peers").glob("*.py")}

    assert {peer.name for peers in PEERS.values() for peer in peers} == scripts


def _bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.bench", *arguments],
        cwd=workspace.ROOT,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
