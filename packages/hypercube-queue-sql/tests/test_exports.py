"""One public door."""

from __future__ import annotations

import subprocess
import sys

import hypercube_queue_sql


def test_everything_public_is_listed_and_sorted() -> None:
    """`__all__` is what the package offers, in the order of the alphabet."""
    public = {
        name
        for name in vars(hypercube_queue_sql)
        if not name.startswith("_") and name != "annotations"
    }

    assert sorted(hypercube_queue_sql.__all__) == hypercube_queue_sql.__all__
    assert public | {"__version__"} == set(hypercube_queue_sql.__all__)


def test_the_orm_is_not_imported() -> None:
    """It would double the time until a worker starts, and only callers with Sessions need it."""
    script = "import sys, hypercube_queue_sql; print('sqlalchemy.orm' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )

    assert done.stdout.strip() == "False"
