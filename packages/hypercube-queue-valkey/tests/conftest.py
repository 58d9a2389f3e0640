"""Which servers the tests need, and what most of them ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from glide_sync import GlideClient, GlideClientConfiguration, NodeAddress
from tools.backends import server

from hypercube_queue import open_queue
from hypercube_queue_valkey import ValkeyQueue

#: Set where every configuration is tested, and not only those that each change has to pass.
ALL = os.environ.get("HYPERCUBE_TEST_ALL") == "1"


def pytest_hypercube_servers() -> list[str]:
    """The plugin of tools/backends asks."""
    few = ["valkey", "valkey-cluster"]
    more = ["redis", "redis-cluster", "redis-sentinel", "redis@binary", "redis-cluster@binary"]
    more.append("valkey-cluster-replica")
    return few + more if ALL else few


@pytest.fixture
def prefix() -> str:
    """A namespace that nobody else uses."""
    return f"test-{uuid4().hex}"


@pytest.fixture
def url(prefix: str) -> str:
    """The URL of a queue in that namespace, to which options can be added."""
    return server("valkey").url("valkey", "0", prefix=prefix)


@pytest.fixture
def queue(url: str) -> Iterator[ValkeyQueue]:
    """A queue opened by that URL."""
    with open_queue(url) as opened:
        assert isinstance(opened, ValkeyQueue)
        yield opened


@pytest.fixture
def client() -> Iterator[GlideClient]:
    """A client of the server, to look behind the queue."""
    place = server("valkey")
    configuration = GlideClientConfiguration(
        [NodeAddress(place.host, place.port)], request_timeout=10_000
    )
    with GlideClient.create(configuration) as client:
        yield client
