"""What the tests of the shop have in common."""

from __future__ import annotations

import plain_orders
import pytest

from hypercube_jobs import Jobs

pytest_plugins = ["hypercube_jobs.testing.fixtures"]


@pytest.fixture
def jobs() -> Jobs:
    """The jobs that `fake_jobs` and `inline_jobs` are about."""
    return plain_orders.jobs
