"""The same object after another server took over from the one that it knew."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from redis import Redis
from tools.backends import exclusive, server

from hypercube_queue import BackendError, BatchError, Message, open_queue

_NOW = timedelta(0)
_MOMENT = timedelta(seconds=0.2)


def _refuse(old: Redis, code: str) -> None:
    """Make a server refuse to serve, while it keeps its connections."""
    if code == "NOREPLICAS":
        old.config_set("min-replicas-to-write", 1)
        return
    old.config_set("replica-serve-stale-data", "yes" if code == "READONLY" else "no")
    old.replicaof("127.0.0.1", 1)


@pytest.mark.server("redis")
@pytest.mark.parametrize("code", ["READONLY", "MASTERDOWN", "NOREPLICAS"])
def test_connections_to_a_server_that_was_replaced_are_replaced(code: str, prefix: str) -> None:
    """A forwarder leads new ones to another server, and the old one lives on (LIFE-2)."""
    new = server("redis")
    with (
        exclusive("redis") as place,
        Redis(host=place.host, port=place.port) as old,
        place.relay() as relay,
        open_queue(f"redis://{relay.host}:{relay.port}/0?prefix={prefix}") as queue,
        open_queue(new.url("redis", "0", prefix=prefix)) as direct,
    ):
        try:
            # As many idle connections as there were calls at once.
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda _: queue.pop("q", wait=_MOMENT), range(4)))
            queue.push(Message("q", id="old"))
            _refuse(old, code)
            with pytest.raises(BatchError) as caught:
                queue.push(Message("q", id="refused"))
            error = caught.value.failed[0].error
            assert isinstance(error, BackendError)
            assert not error.outcome_unknown
            relay.lead_to(new.host, new.port)
            queue.push(Message("q", id="new"))
            assert [each.id for each in queue.pop("q", 10, wait=_NOW)] == ["new"]
            assert direct.stats("q").in_flight == 1
        finally:
            old.config_set("min-replicas-to-write", 0)
            old.config_set("replica-serve-stale-data", "yes")
            old.replicaof("NO", "ONE")
            old.delete(*old.keys(f"{prefix}:*") or ["-"])


@pytest.mark.server("redis")
def test_a_pop_that_waits_on_a_server_that_is_demoted_moves_on(prefix: str) -> None:
    """It goes on waiting on the server that took over, without an error."""
    new = server("redis")
    with (
        exclusive("redis") as place,
        Redis(host=place.host, port=place.port) as old,
        place.relay() as relay,
        open_queue(f"redis://{relay.host}:{relay.port}/0?prefix={prefix}") as queue,
        open_queue(new.url("redis", "0", prefix=prefix)) as direct,
    ):
        try:
            received: list[Message] = []
            popping = threading.Thread(
                target=lambda: received.extend(queue.pop("q", wait=timedelta(seconds=30)))
            )
            popping.start()
            while not any(each["cmd"] == "blpop" for each in old.client_list()):
                time.sleep(0.01)
            relay.lead_to(new.host, new.port)
            old.replicaof("127.0.0.1", 1)
            direct.push(Message("q", id="new"))
            popping.join()
            assert [each.id for each in received] == ["new"]
        finally:
            old.replicaof("NO", "ONE")


class _LoadingOnce(socketserver.StreamRequestHandler):
    """A server that is still loading for its first connection, and loaded for later ones."""

    def handle(self) -> None:
        first = self.server.connections == 0
        self.server.connections += 1
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2])
            if words[0] != b"EVALSHA":
                self.wfile.write(b"+OK\r\n")
            elif first:
                self.wfile.write(b"-LOADING Redis is loading the dataset in memory\r\n")
            else:
                self.wfile.write(b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n")


@contextmanager
def _loading_once() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _LoadingOnce) as listening:
        listening.daemon_threads = True
        listening.connections = 0
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield listening
        finally:
            listening.shutdown()
            thread.join()


def test_a_server_that_loads_is_asked_again_over_another_connection() -> None:
    """The forwarder may have found one that serves; the caller sees no error."""
    with _loading_once() as listening:
        host, port = listening.server_address
        with open_queue(f"redis://{host}:{port}/0") as queue:
            assert queue.stats("q").dead == 4
        assert listening.connections == 2
