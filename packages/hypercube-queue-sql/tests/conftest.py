"""The servers that these tests need."""

from __future__ import annotations

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_hypercube_servers() -> list[str]:
    """For the plugin that provides them."""
    return ["postgres", "mysql", "mariadb"]
