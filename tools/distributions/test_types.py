"""The types of what is installed, as an application sees them."""

from __future__ import annotations

from pathlib import Path

SAMPLE = Path(__file__).parent / "sample_application.py"


def test_an_application_is_checked_strictly_against_the_wheels(
    environment, constraints: str, tmp_path: Path
) -> None:
    """And does what it says."""
    wanted = ("hypercube-jobs", "hypercube-queue-memory", "hypercube-queue-sql", "mypy")
    done = environment.install("--constraint", constraints, *wanted)
    assert done.returncode == 0, done.stderr

    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n")
    mypy = ("-m", "mypy", "--config-file", str(settings), "--cache-dir", str(tmp_path / "cache"))
    environment.run(*mypy, str(SAMPLE), cwd=tmp_path)
    assert environment.run(str(SAMPLE), cwd=tmp_path) == "3 invoices sent, 1 dead\n"
