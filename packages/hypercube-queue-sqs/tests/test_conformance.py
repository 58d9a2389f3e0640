"""The contract, kept on a strict SQS, on two emulators and, when asked for, on AWS."""

from __future__ import annotations

import atexit
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import boto3
import pytest
from tools.backends import server
from tools.backends.relay import Relay
from tools.strict_sqs import strict_process

from hypercube_queue import Guarantees, Queue, Redriver, VisibilityExtender, open_queue
from hypercube_queue_conformance import (
    Borrowed,
    Harness,
    QueueConformance,
    Silenceable,
    Unavailable,
    compare_with_model,
)
from hypercube_queue_sqs import SQSQueue

#: Set where every configuration is tested, and not only those that each change has to pass.
ALL = os.environ.get("HYPERCUBE_TEST_ALL") == "1"


@cache
def strict_endpoint() -> str:
    """Of a server for all tests of this process: polls are quick, and short ones miss messages."""
    server = ExitStack()
    atexit.register(server.close)
    return server.enter_context(strict_process("--poll-second", "0.1", "--sampling"))


def lateness(_delay: timedelta) -> timedelta:
    return timedelta(seconds=2)


class StrictHarness(Harness):
    """Queues that start with a prefix of their own."""

    guarantees = Guarantees(
        durable=True,
        retention=timedelta(days=14),
        exclusive_delivery=False,
        stale_settlement="process",
        ack_final=False,
        exact_attempts=False,
        unique_ids="store",
        queue_name_pattern=r"(?!.*(?:\.fifo|\-dead)\Z).+",
        ordered_redrive=False,
        full_batches=False,
        bounded_pops=False,
        empty_is_certain=False,
        max_delay=timedelta(minutes=15),
        delay_lateness=lateness,
        max_visibility=timedelta(hours=11, minutes=59),
        visibility_resolution=timedelta(seconds=1),
        max_message_bytes=768_997,
    )
    capabilities = frozenset({VisibilityExtender, Redriver})
    backlog = 1_000
    restart = Unavailable("these servers forget everything when they stop; AWS does not stop")
    region: ClassVar[str] = "eu-west-1"

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._prefix = f"s{secrets.token_hex(4)}-"

    def endpoint(self) -> str:
        return strict_endpoint()

    def close(self) -> None:
        self._undo.close()

    def url(self) -> str:
        return (
            f"sqs://testing:testing@{self.region}?endpoint={self.endpoint()}"
            f"&prefix={self._prefix}&ensure_queues=true"
        )

    def open(self, **options: timedelta) -> Queue:
        seconds = "".join(f"&{name}={value.total_seconds()}" for name, value in options.items())
        return open_queue(self.url() + seconds)

    def opener(self) -> Callable[[], Queue]:
        # A poll of a process that was killed goes on at SQS, and what it takes is hidden so long.
        return partial(open_queue, f"{self.url()}&visibility_timeout={5 + self.pace}")

    def client(self) -> Any:
        made = boto3.client(
            "sqs",
            region_name=self.region,
            endpoint_url=self.endpoint(),
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        self._undo.callback(made.close)
        return made

    def borrow(self) -> Borrowed:
        client = self.client()
        queue = SQSQueue(client, prefix=self._prefix, ensure_queues=True)
        return Borrowed(queue, lambda: "ResponseMetadata" in client.list_queues())

    def open_unreachable(self) -> Queue:
        """Somebody listens, and says nothing."""
        silent = self._undo.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = silent.getsockname()[1]
        return open_queue(
            f"sqs://testing:testing@eu-west-1?endpoint=http://127.0.0.1:{port}&operation_timeout=1"
        )

    def open_silenceable(self) -> Silenceable:
        """A way to the service that is cut in the midst."""
        endpoint = urlsplit(self.endpoint())
        relay = self._undo.enter_context(Relay(endpoint.hostname or "", endpoint.port or 0))
        url = self.url().replace(endpoint.netloc, f"{relay.host}:{relay.port}")
        queue = open_queue(f"{url}&operation_timeout=3")
        return Silenceable(queue, relay.cut, timedelta(seconds=3))

    def open_misconfigured(self) -> Queue:
        """Queues that do not exist, and are not to be created."""
        return open_queue(self.url().replace("ensure_queues=true", "ensure_queues=false"))

    def insert_unreadable(self, queue_name: str) -> bytes:
        """A message of somebody who does not know the format."""
        with self.open() as queue:
            assert isinstance(queue, SQSQueue)
            queue.redrive(queue_name, 1)  # it is there now
        client = self.client()
        url = client.get_queue_url(QueueName=self._prefix + queue_name)["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody="foreign")
        return b"foreign"


class TestStrict(QueueConformance):
    """As AWS documents itself."""

    harness = StrictHarness


def test_random_calls_agree_with_the_model_where_nothing_comes_twice() -> None:
    """AWS may now and then, so the suite leaves this out for the driver."""
    compare_with_model(StrictHarness, examples=40 if ALL else 4, repeatable=not ALL)


if ALL:

    class NoIdsHarness(StrictHarness):
        """Where nobody knows which ids are taken."""

        guarantees = replace(StrictHarness.guarantees, unique_ids="none")

        def url(self) -> str:
            return f"{super().url()}&ids=none"

    class TestNoIds(QueueConformance):
        """Without an IDStore."""

        harness = NoIdsHarness

    class EmulatorHarness(StrictHarness):
        """Polls take their time there, so leases must outlast the three that show emptiness.

        Both are slower than SQS by far: a thousand messages may take longer than a usual lease.
        """

        pace = 20.0
        backlog = 1_000

        def open(self, **options: timedelta) -> Queue:
            return super().open(**{"visibility_timeout": timedelta(minutes=5), **options})

    class MotoHarness(EmulatorHarness):
        """It gives one message to two requests of one moment, so they come singly, and slowly."""

        def url(self) -> str:
            return f"{super().url()}&connections=1&operation_timeout=300"

        def endpoint(self) -> str:
            place = server("moto")
            return f"http://{place.host}:{place.port}"

    @pytest.mark.server("moto")
    class TestMoto(QueueConformance):
        """An emulator."""

        harness = MotoHarness

    class MinistackHarness(EmulatorHarness):
        def endpoint(self) -> str:
            place = server("ministack")
            return f"http://{place.host}:{place.port}"

    @pytest.mark.server("ministack")
    class TestMinistack(QueueConformance):
        """Another one, by other authors."""

        harness = MinistackHarness


#: A URL with a prefix, such as sqs://eu-west-1?prefix=hypercube-test-; never set by default.
AWS_URL = os.environ.get("HYPERCUBE_TEST_SQS_URL")

if AWS_URL is not None:

    class AWSHarness(StrictHarness):
        """The service itself, with credentials from boto3's usual places."""

        pace = 20.0
        backlog = 1_000

        def __init__(self) -> None:
            super().__init__()
            base, _, options = AWS_URL.partition("?")
            given = dict(parse_qsl(options))
            self._prefix = f"{given.pop('prefix')}{secrets.token_hex(3)}-"
            self._given = given
            self._base = base

        def url(self) -> str:
            options = {**self._given, "prefix": self._prefix, "ensure_queues": "true"}
            return f"{self._base}?{urlencode(options)}"

        def client(self) -> Any:
            made = boto3.client(
                "sqs",
                region_name=self._base.partition("://")[2].rpartition("@")[2] or None,
                endpoint_url=self._given.get("endpoint"),
            )
            self._undo.callback(made.close)
            return made

        def close(self) -> None:
            client = self.client()
            for url in client.list_queues(QueueNamePrefix=self._prefix).get("QueueUrls", ()):
                client.delete_queue(QueueUrl=url)
            super().close()

    class TestAWS(QueueConformance):
        """Not an emulator."""

        harness = AWSHarness
