"""Real servers for tests: a pytest plugin, loaded by `-p tools.backends` from the root.

README.md says how tests ask for servers, and where they come from.
"""

from __future__ import annotations

from tools.backends.places import exclusive, server, servers
from tools.backends.plugin import (
    pytest_addhooks,
    pytest_addoption,
    pytest_configure,
)

__all__ = [
    "exclusive",
    "pytest_addhooks",
    "pytest_addoption",
    "pytest_configure",
    "server",
    "servers",
]
