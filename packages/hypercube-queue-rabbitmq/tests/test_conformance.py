"""The contract, kept by quorum and by classic queues."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import ClassVar, Self

import pytest
from pika import BasicProperties, BlockingConnection, ConnectionParameters, PlainCredentials
from tools.backends import exclusive, server

from hypercube_queue import Guarantees, Queue, Redriver, open_queue
from hypercube_queue_conformance import Harness, QueueConformance, Silenceable, Unavailable
from hypercube_queue_rabbitmq._ladder import MAX_DELAY, lateness


class QuorumHarness(Harness):
    """A prefix of its own on the broker that all tests share."""

    guarantees = Guarantees(
        durable=True,
        leases=False,
        max_hold=timedelta(minutes=30),
        stale_settlement="connection",
        ack_confirmed=False,
        unique_ids="none",
        bounded_pops=False,
        ordering="fifo",
        queue_name_pattern=r"(?!amq\.|hypercube\.).+",
        max_delay=MAX_DELAY,
        delay_lateness=lateness,
        max_message_bytes=16_759_781,
    )
    capabilities = frozenset({Redriver})
    borrow = Unavailable("pika's connections belong to one thread, so the queue makes its own")
    backend: ClassVar[str] = "rabbitmq"
    queue_type: ClassVar[str] = "quorum"

    def __init__(self) -> None:
        self._place = server(self.backend)
        self._undo = ExitStack()
        self._prefix = f"suite-{secrets.token_hex(8)}."

    @classmethod
    def restartable(cls) -> Self:
        harness = cls()
        harness._place = harness._undo.enter_context(exclusive(cls.backend))
        return harness

    def close(self) -> None:
        self._undo.close()

    def url(self) -> str:
        return self._place.url("amqp", prefix=self._prefix, queue_type=self.queue_type)

    def open(self, **options: timedelta) -> Queue:
        seconds = "".join(f"&{name}={value.total_seconds()}" for name, value in options.items())
        return open_queue(self.url() + seconds)

    def opener(self) -> Callable[[], Queue]:
        return partial(open_queue, self.url())

    def restart(self) -> None:
        # A broker that is killed forgets quorum queues that it has known for less than a moment.
        time.sleep(1.5)
        self._place.kill()
        self._place.start()

    def open_unreachable(self) -> Queue:
        """Somebody listens, and says nothing."""
        silent = self._undo.enter_context(socket.create_server(("127.0.0.1", 0)))
        return open_queue(f"amqp://127.0.0.1:{silent.getsockname()[1]}/?operation_timeout=1")

    def open_silenceable(self) -> Silenceable:
        """A broker that is stopped in the midst."""
        place = self._undo.enter_context(exclusive(self.backend))
        options = {"prefix": self._prefix, "queue_type": self.queue_type}
        url = place.url("amqp", **options, operation_timeout=3)
        return Silenceable(open_queue(url), place.pause, timedelta(seconds=3))

    def open_misconfigured(self) -> Queue:
        """A vhost that does not exist."""
        return open_queue(self._place.url("amqp", "missing"))

    def insert_unreadable(self, queue_name: str) -> bytes:
        """A message of somebody who does not know the format."""
        with self.open() as queue:
            queue.pop(queue_name, wait=timedelta(0))  # it is there now
        place = self._place
        credentials = PlainCredentials(place.username, place.password)
        parameters = ConnectionParameters(
            place.host, place.port, place.database, credentials=credentials
        )
        connection = BlockingConnection(parameters)
        connection.channel().basic_publish(
            "", self._prefix + queue_name, b"foreign", BasicProperties(delivery_mode=2)
        )
        connection.close()
        return b"foreign"


@pytest.mark.server("rabbitmq")
class TestQuorum(QueueConformance):
    """Replicated queues, which count attempts."""

    harness = QuorumHarness


class ClassicHarness(QuorumHarness):
    """The same with queues that are on one node, and count no attempts."""

    guarantees = replace(QuorumHarness.guarantees, exact_attempts=False)
    queue_type = "classic"


@pytest.mark.server("rabbitmq")
class TestClassic(QueueConformance):
    """Queues of one node."""

    harness = ClassicHarness


if os.environ.get("HYPERCUBE_TEST_ALL") == "1":

    class Quorum40Harness(QuorumHarness):
        backend = "rabbitmq-4.0"

    class Classic40Harness(ClassicHarness):
        backend = "rabbitmq-4.0"

    class PlainQuorumHarness(QuorumHarness):
        backend = "rabbitmq@binary"

    class PlainClassicHarness(ClassicHarness):
        backend = "rabbitmq@binary"

    @pytest.mark.server("rabbitmq-4.0")
    class TestQuorum40(QueueConformance):
        """Where a cancelled consumer would spoil attempts."""

        harness = Quorum40Harness

    @pytest.mark.server("rabbitmq-4.0")
    class TestClassic40(QueueConformance):
        """Queues of one node, on an older broker."""

        harness = Classic40Harness

    @pytest.mark.server("rabbitmq@binary")
    class TestPlainQuorum(QueueConformance):
        """A broker of this machine, which is an old one."""

        harness = PlainQuorumHarness

    @pytest.mark.server("rabbitmq@binary")
    class TestPlainClassic(QueueConformance):
        """The same, with queues of one node."""

        harness = PlainClassicHarness
