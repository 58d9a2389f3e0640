"""The pytest plugin that provides the servers which the tests of some drivers need.

Load it with `pytest -p tools.backends` from the root of the repository. No driver of the
workspace needs a server yet, so all it does is to take the option that allows installing them,
and to say so.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("backends", "servers for the tests of drivers")
    group.addoption(
        "--install-servers",
        action="store_true",
        help="install servers that the tests need and this machine lacks (Debian, Ubuntu; root)",
    )


def pytest_report_header() -> str:
    return "servers: none needed; every driver of this workspace runs within its process"
