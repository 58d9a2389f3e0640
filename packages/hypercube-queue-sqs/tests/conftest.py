"""The strict SQS that most tests talk to, and the emulators."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import boto3
import pytest
from tools.strict_sqs import StrictSQS

from hypercube_queue import open_queue
from hypercube_queue_sqs import SQSQueue

#: Set where every configuration is tested, and not only those that each change has to pass.
ALL = os.environ.get("HYPERCUBE_TEST_ALL") == "1"

#: Any will do: neither the strict server nor an emulator looks at them.
KEY, SECRET = "testing", "se/cr+et"


@pytest.hookimpl(optionalhook=True)
def pytest_hypercube_servers() -> list[str]:
    """For the plugin that provides them."""
    return ["moto", "ministack"]


@pytest.fixture
def strict() -> Iterator[StrictSQS]:
    """A server for this test alone, whose long polls are ten times as fast as time."""
    with StrictSQS() as server:
        server.faults.poll_second = 0.1
        yield server


@pytest.fixture
def prefix() -> str:
    """The start of names that nobody else uses."""
    return f"t{secrets.token_hex(4)}-"


@pytest.fixture
def url(strict: StrictSQS, prefix: str) -> str:
    """The URL of queues with that prefix, to which options can be added."""
    return (
        f"sqs://{KEY}:se%2Fcr%2Bet@eu-west-1?endpoint={strict.endpoint}&prefix={prefix}"
        "&ensure_queues=true"
    )


@pytest.fixture
def open_() -> Iterator[Callable[[str], SQSQueue]]:
    """Opens queues that are closed at the end."""
    with ExitStack() as stack:

        def opened(url: str) -> SQSQueue:
            queue = stack.enter_context(open_queue(url))
            assert isinstance(queue, SQSQueue)
            return queue

        yield opened


@pytest.fixture
def queue(url: str, open_: Callable[[str], SQSQueue]) -> SQSQueue:
    """A queue opened by that URL."""
    return open_(url)


@pytest.fixture
def client(strict: StrictSQS) -> Iterator[Any]:
    """A client that has nothing to do with the queue."""
    made = boto3.client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url=strict.endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    yield made
    made.close()
