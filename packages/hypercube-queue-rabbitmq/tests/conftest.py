"""The servers that these tests need, and queues on them."""

from __future__ import annotations

import os

import pytest

#: Set where every configuration is tested, and not only those that each change has to pass.
ALL = os.environ.get("HYPERCUBE_TEST_ALL") == "1"


@pytest.hookimpl(optionalhook=True)
def pytest_hypercube_servers() -> list[str]:
    """For the plugin that provides them."""
    return ["rabbitmq", "rabbitmq-4.0", "rabbitmq@binary"] if ALL else ["rabbitmq"]
