"""What a user is told who uses the wrong client, server, password or setting."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from glide_sync import GlideClient, GlideClientConfiguration, NodeAddress
from tools.backends import exclusive

from hypercube_queue import (
    BackendError,
    BatchError,
    CapacityExceeded,
    InvalidArgument,
    Message,
    Queue,
    open_queue,
)
from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_valkey import ValkeyQueue

pytestmark = pytest.mark.server("valkey")

_NOW = timedelta(0)
_SECRET = "s3cr3t-Zq9"


class Broken:
    """A server that may be set up badly, as another client of it sees it."""

    def __init__(self, place: Any) -> None:
        self.address = f"{place.host}:{place.port}"
        self._client = GlideClient.create(
            GlideClientConfiguration([NodeAddress(place.host, place.port)], request_timeout=10_000)
        )

    def tell(self, *words: str) -> Any:
        return self._client.custom_command(list(words))

    def set(self, name: str, value: str) -> None:
        assert self.tell("CONFIG", "SET", name, value) in (b"OK", "OK")

    def mend(self) -> None:
        self.set("requirepass", "")
        self.tell("ACL", "DELUSER", "worker")
        self.set("maxmemory", "0")
        self.set("maxmemory-policy", "noeviction")
        self.tell("REPLICAOF", "NO", "ONE")
        self._client.close()


@pytest.fixture
def broken() -> Iterator[Broken]:
    """One that works again afterwards."""
    with exclusive("valkey") as place:
        server = Broken(place)
        try:
            yield server
        finally:
            server.mend()


@pytest.fixture
def opened(broken: Broken, prefix: str) -> Iterator[Queue]:
    """A queue on that server."""
    with open_queue(f"valkey://{broken.address}/0?prefix={prefix}&operation_timeout=5") as queue:
        yield queue


def _error(call: object, *args: object) -> Exception:
    with pytest.raises(BatchError) as caught:
        call(*args)
    [failure] = caught.value.failed
    return failure.error


def test_something_else_than_a_client_is_refused() -> None:
    """When the object is made, with a word on what to do instead."""
    for client in (None, "valkey://localhost", GlideClient):
        with pytest.raises(InvalidArgument, match="open_queue"):
            ValkeyQueue(client)


def test_a_read_only_replica_is_told_from_a_primary(broken: Broken, opened: Queue) -> None:
    """BackendError with a known outcome; when it is a primary again, the object works."""
    broken.tell("REPLICAOF", "127.0.0.1", "1")
    error = _error(opened.push, Message("q"))
    assert isinstance(error, BackendError)
    assert "read-only replica" in str(error)
    assert not error.outcome_unknown
    broken.tell("REPLICAOF", "NO", "ONE")
    opened.push(Message("q"))
    assert len(opened.pop("q", wait=_NOW)) == 1


def test_a_server_without_memory_refuses_pushes_and_nothing_else(
    broken: Broken, opened: ValkeyQueue
) -> None:
    """CapacityExceeded; what is there can be worked off, looked at and forgotten."""
    opened.push(*(Message("q", id=str(number)) for number in range(5)))
    opened.dead_letter(*opened.pop("q"))
    broken.set("maxmemory", "1")
    assert isinstance(_error(opened.push, Message("q")), CapacityExceeded)
    acked, retried, dead, released = opened.pop("q", 4, wait=_NOW)
    opened.ack(acked)
    retried.extra = b"a record of the failure"
    opened.retry(retried)
    opened.dead_letter(dead)
    opened.release(released)
    assert [each.message.id for each in opened.dead_letters("q", 10)] == ["3", "0"]
    assert opened.forget("q", "0") == 1
    assert opened.stats("q").ready == 2


@pytest.mark.parametrize("scheme", ["valkey", "valkey+cluster"])
def test_a_wrong_password_is_named_as_such_and_not_shown(
    broken: Broken, scheme: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """BackendError with a known outcome."""
    broken.set("requirepass", "another")
    url = f"{scheme}://:{_SECRET}@{broken.address}/0?operation_timeout=3"
    with open_queue(url) as queue, pytest.raises(BackendError, match="password") as caught:
        queue.pop("q", wait=_NOW)
    assert not caught.value.outcome_unknown
    chain: BaseException | None = caught.value
    while chain is not None:
        assert _SECRET not in f"{chain} {chain!r}"
        chain = chain.__cause__ or chain.__context__
    assert _SECRET not in "".join(capfd.readouterr())


def test_a_password_that_nobody_asks_for_is_named_as_such(broken: Broken) -> None:
    """And not as a missing one; nothing was changed. GLIDE does not tell it from a wrong one."""
    address = broken.address
    with (
        open_queue(f"valkey://:{_SECRET}@{address}/0?protocol=2") as queue,
        pytest.raises(
            BackendError, match="refuses the user name or the password, or asks for none"
        ) as caught,
    ):
        queue.stats("q")
    assert not caught.value.outcome_unknown
    assert _SECRET not in str(caught.value)


def test_a_missing_password_is_named_as_such(broken: Broken, opened: Queue) -> None:
    """BackendError, as for a wrong one."""
    broken.set("requirepass", "another")
    with pytest.raises(BackendError, match="asks for a password"):
        opened.pop("q", wait=_NOW)


@pytest.mark.parametrize(
    ("policy", "lost"),
    [("allkeys-lru", "loses all of its messages"), ("volatile-ttl", "given one")],
)
def test_an_eviction_policy_is_warned_of_once(
    broken: Broken, opened: Queue, caplog: pytest.LogCaptureFixture, policy: str, lost: str
) -> None:
    """With a word on what would be lost (LIFE-6)."""
    broken.set("maxmemory-policy", policy)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            opened.push(Message("q"))
            opened.pop("q", wait=_NOW)
    [record] = caplog.records
    assert policy in record.getMessage()
    assert lost in record.getMessage()


def test_a_newer_layout_is_refused_and_left_alone(
    queue: ValkeyQueue, client: GlideClient, prefix: str
) -> None:
    """Nothing of the queue changes."""
    queue.push(Message("q", id="0"), Message("q", id="1"))
    [held] = queue.pop("q")
    keys = queue_keys(prefix, "q").all
    client.hset(keys[0], {"layout": "2"})
    before = [client.dump(key) for key in keys]
    for batch, message in ((queue.push, Message("q")), (queue.ack, held), (queue.retry, held)):
        error = _error(batch, message)
        assert isinstance(error, BackendError)
        assert "layout" in str(error)
    with pytest.raises(BackendError, match="layout"):
        queue.pop("q", wait=_NOW)
    assert [client.dump(key) for key in keys] == before


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("valkey://host/first", "database"),
        ("valkey+cluster://host/1", "database"),
        ("valkey+sentinel://host/service", "scheme"),
        ("valkey://host/0?protocol=4", "protocol"),
        ("valkey://host/0?ssl_ca_certs=file", "ssl_ca_certs"),
        ("valkey+cluster://host?also=a,b@c", "also"),
        ("valkey://host/0?prefix=a{b}", "prefix"),
        ("valkey://host/0?operation_timeout=0", "operation_timeout"),
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str, named: str) -> None:
    """With the part of it that is wrong, before anything is opened."""
    with pytest.raises(InvalidArgument, match=named):
        open_queue(url)


def test_nothing_is_written_to_stderr(
    queue: ValkeyQueue, client: GlideClient, capfd: pytest.CaptureFixture[str]
) -> None:
    """GLIDE would write the errors of single commands there, and one of them is daily routine."""
    client.custom_command(["SCRIPT", "FLUSH"])
    queue.push(Message("q"))
    queue.ack(*queue.pop("q", wait=_NOW))
    assert capfd.readouterr().err == ""


def test_the_rights_that_the_documentation_names_are_enough(broken: Broken, prefix: str) -> None:
    """For the keys of the prefix and no others; nothing can be emptied."""
    groups = ("scripting", "hash", "list", "set", "sortedset", "keyspace")
    rights = (*(f"+@{group}" for group in groups), "+time", "-@dangerous", "+info")
    broken.tell("ACL", "SETUSER", "worker", "reset", "on", "nopass", f"~{prefix}:*", *rights)
    address = f"valkey://worker:any@{broken.address}/0"
    with open_queue(f"{address}?prefix={prefix}") as queue:
        queue.push(Message("q"))
        [delivery] = queue.pop("q")
        queue.retry(delivery)
        queue.dead_letter(*queue.pop("q"))
        assert queue.redrive("q", 1) == 1
        queue.ack(*queue.pop("q"))
        assert queue.queues() == []
    with open_queue(f"{address}?prefix=foreign") as queue:
        error = _error(queue.push, Message("q"))
        assert isinstance(error, BackendError)
        assert "may not" in str(error)
