"""The same object after another server took over from the one that it knew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from glide_sync import GlideClient, GlideClientConfiguration, NodeAddress
from tools.backends import exclusive, server

from hypercube_queue import BackendError, BatchError, Message, QueueError, open_queue

_NOW = timedelta(0)
_PATIENCE_SECONDS = 30.0


def eventually(call: Callable[[], None]) -> None:
    """Repeat a call until it raises no QueueError any more."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return call()
        except QueueError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _connect(place: Any) -> GlideClient:
    return GlideClient.create(
        GlideClientConfiguration([NodeAddress(place.host, place.port)], request_timeout=10_000)
    )


def _refuse(old: GlideClient, code: str) -> None:
    """Make a server refuse to serve, while it keeps its connections."""
    if code == "NOREPLICAS":
        old.config_set({"min-replicas-to-write": "1"})
        return
    old.config_set({"replica-serve-stale-data": "yes" if code == "READONLY" else "no"})
    old.custom_command(["REPLICAOF", "127.0.0.1", "1"])


def _serve(old: GlideClient, prefix: str) -> None:
    old.config_set({"min-replicas-to-write": "0", "replica-serve-stale-data": "yes"})
    old.custom_command(["REPLICAOF", "NO", "ONE"])
    for key in old.custom_command(["KEYS", f"{prefix}:*"]):
        old.delete([key])


@pytest.mark.server("valkey")
@pytest.mark.parametrize("code", ["READONLY", "MASTERDOWN", "NOREPLICAS"])
def test_clients_of_a_server_that_was_replaced_are_replaced(code: str, prefix: str) -> None:
    """A forwarder leads new ones to another server, and the old one lives on (LIFE-2)."""
    new = server("valkey")
    with (
        exclusive("valkey") as place,
        _connect(place) as old,
        place.relay() as relay,
        open_queue(f"valkey://{relay.host}:{relay.port}/0?prefix={prefix}") as queue,
        open_queue(new.url("valkey", "0", prefix=prefix)) as direct,
    ):
        try:
            queue.push(Message("q", id="old"))
            _refuse(old, code)
            with pytest.raises(BatchError) as caught:
                queue.push(Message("q", id="refused"))
            error = caught.value.failed[0].error
            assert isinstance(error, BackendError)
            assert not error.outcome_unknown
            relay.lead_to(new.host, new.port)
            eventually(lambda: queue.push(Message("q", id="new")))
            assert [each.id for each in queue.pop("q", 10, wait=_NOW)] == ["new"]
            assert direct.stats("q").in_flight == 1
        finally:
            _serve(old, prefix)


@pytest.mark.server("valkey")
def test_a_pop_that_waits_on_a_server_that_is_demoted_moves_on(prefix: str) -> None:
    """It goes on waiting on the server that took over, without an error."""
    new = server("valkey")
    with (
        exclusive("valkey") as place,
        _connect(place) as old,
        place.relay() as relay,
        open_queue(f"valkey://{relay.host}:{relay.port}/0?prefix={prefix}") as queue,
        open_queue(new.url("valkey", "0", prefix=prefix)) as direct,
    ):
        try:
            received: list[Message] = []
            popping = threading.Thread(
                target=lambda: received.extend(queue.pop("q", wait=timedelta(seconds=30)))
            )
            popping.start()
            while b" cmd=blpop " not in old.custom_command(["CLIENT", "LIST"]):
                time.sleep(0.01)
            relay.lead_to(new.host, new.port)
            old.custom_command(["REPLICAOF", "127.0.0.1", "1"])
            direct.push(Message("q", id="new"))
            popping.join()
            assert [each.id for each in received] == ["new"]
        finally:
            _serve(old, prefix)
