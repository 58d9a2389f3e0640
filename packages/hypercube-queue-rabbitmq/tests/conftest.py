"""The servers that these tests need, queues on them, and a client to look behind the queues."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pika import BlockingConnection, ConnectionParameters, PlainCredentials
from pika.adapters.blocking_connection import BlockingChannel
from tools.backends import exclusive, server
from tools.backends.instance import Server
from tools.backends.relay import Relay

from hypercube_queue import open_queue
from hypercube_queue_rabbitmq import RabbitMQQueue

#: Set where every configuration is tested, and not only those that each change has to pass.
ALL = os.environ.get("HYPERCUBE_TEST_ALL") == "1"


_BACKENDS = ["rabbitmq", "rabbitmq-4.0", "rabbitmq@binary"] if ALL else ["rabbitmq"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "nightly: takes its time, and is left out unless HYPERCUBE_TEST_ALL is 1"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is left out is counted in the last line of the run."""
    left_out = [] if ALL else [item for item in items if item.get_closest_marker("nightly")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_hypercube_servers() -> list[str]:
    """For the plugin that provides them."""
    return [*_BACKENDS, "rabbitmq-cluster"] if ALL else _BACKENDS


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.server(name)) for name in _BACKENDS])
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the broker."""
    return str(request.param)


@pytest.fixture
def shared(backend: str) -> Server:
    """The broker that all tests share."""
    return server(backend)


@pytest.fixture
def prefix() -> str:
    """The start of names that nobody else uses."""
    return f"test-{secrets.token_hex(8)}."


@pytest.fixture
def url(shared: Server, prefix: str) -> str:
    """The URL of queues with that prefix, to which options can be added."""
    return shared.url("amqp", prefix=prefix)


@pytest.fixture
def open_() -> Iterator[Callable[[str], RabbitMQQueue]]:
    """Opens queues that are closed at the end."""
    with ExitStack() as stack:

        def opened(url: str) -> RabbitMQQueue:
            queue = stack.enter_context(open_queue(url))
            assert isinstance(queue, RabbitMQQueue)
            return queue

        yield opened


@pytest.fixture
def queue(url: str, open_: Callable[[str], RabbitMQQueue]) -> RabbitMQQueue:
    """A queue opened by that URL."""
    return open_(url)


@pytest.fixture
def broken(backend: str) -> Iterator[Any]:
    """A broker for this test alone, which may be broken."""
    with exclusive(backend) as place:
        yield place


@pytest.fixture
def relay(shared: Server) -> Iterator[Relay]:
    """A way to the shared broker that can be cut."""
    with Relay(shared.host, shared.port) as made:
        yield made


@pytest.fixture
def relayed(url: str, shared: Server, relay: Relay) -> str:
    """The URL by that way."""
    return url.replace(f":{shared.port}/", f":{relay.port}/")


def _parameters(place: Any) -> ConnectionParameters:
    return ConnectionParameters(
        place.host,
        place.port,
        place.database,
        credentials=PlainCredentials(place.username, place.password),
    )


@pytest.fixture
def parameters(shared: Server) -> ConnectionParameters:
    """Where the shared broker is, in pika's words."""
    return _parameters(shared)


@pytest.fixture
def connect(shared: Server) -> Iterator[Callable[..., BlockingChannel]]:
    """Channels of a client that has nothing to do with the queue."""
    with ExitStack() as stack:

        def connected(place: Any = None) -> BlockingChannel:
            connection = BlockingConnection(_parameters(place or shared))
            stack.callback(lambda: connection.is_open and connection.close())
            return connection.channel()

        yield connected


@pytest.fixture
def channel(connect: Callable[..., BlockingChannel]) -> BlockingChannel:
    """One of them, on the broker that all tests share."""
    return connect()


@pytest.fixture
def rabbitmqctl() -> Callable[..., str]:
    """Runs the broker's own tool where a broker runs."""

    def run(place: Any, *arguments: str) -> str:
        if "container" in place.handle:
            command = ["docker", "exec", place.handle["container"], "rabbitmqctl"]
            environment = None
        else:
            command = ["/usr/lib/rabbitmq/bin/rabbitmqctl"]
            folder = place.handle["folder"]
            environment = {
                "PATH": f"{os.environ['PATH']}:/usr/sbin",
                "HOME": str(Path(folder)),
                "RABBITMQ_NODENAME": f"hypercube-{place.port}@localhost",
                "ERL_EPMD_PORT": str(place.port + 10_000),
            }
        done = subprocess.run(
            [*command, "-q", *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
        )
        return done.stdout

    return run
