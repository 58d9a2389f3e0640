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
from tools.backends.relay import Relay

from hypercube_queue import open_queue
from hypercube_queue_rabbitmq import RabbitMQQueue

#: Set where every configuration is tested, and not only those that each change has to pass.
ALL = os.environ.get("HYPERCUBE_TEST_ALL") == "1"


@pytest.hookimpl(optionalhook=True)
def pytest_hypercube_servers() -> list[str]:
    """For the plugin that provides them."""
    return ["rabbitmq", "rabbitmq-4.0", "rabbitmq@binary"] if ALL else ["rabbitmq"]


@pytest.fixture
def prefix() -> str:
    """The start of names that nobody else uses."""
    return f"test-{secrets.token_hex(8)}."


@pytest.fixture
def url(prefix: str) -> str:
    """The URL of queues with that prefix, to which options can be added."""
    return server("rabbitmq").url("amqp", prefix=prefix)


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
def broken() -> Iterator[Any]:
    """A broker for this test alone, which may be broken."""
    with exclusive("rabbitmq") as place:
        yield place


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A way to the shared broker that can be cut."""
    place = server("rabbitmq")
    with Relay(place.host, place.port) as made:
        yield made


@pytest.fixture
def relayed(url: str, relay: Relay) -> str:
    """The URL by that way."""
    return url.replace(f":{server('rabbitmq').port}/", f":{relay.port}/")


@pytest.fixture
def connect() -> Iterator[Callable[..., BlockingChannel]]:
    """Channels of a client that has nothing to do with the queue."""
    with ExitStack() as stack:

        def connected(place: Any = None) -> BlockingChannel:
            place = place or server("rabbitmq")
            connection = BlockingConnection(
                ConnectionParameters(
                    place.host,
                    place.port,
                    place.database,
                    credentials=PlainCredentials(place.username, place.password),
                )
            )
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
