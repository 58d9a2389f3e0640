"""What a conftest may define."""

from __future__ import annotations


def pytest_hypercube_servers() -> list[str]:
    """The names of the servers that the tests below need.

    Called once, before collection, so only of conftests that pytest loads at its start. A name
    like "redis@binary" asks for one way of getting it.
    """
    raise NotImplementedError
