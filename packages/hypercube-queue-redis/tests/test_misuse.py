"""What a user is told who uses the wrong client, server, password or setting."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis.asyncio
from redis import Redis, RedisCluster
from redis.exceptions import NoPermissionError
from tools.backends import exclusive, server

from hypercube_queue import (
    BackendError,
    BatchError,
    CapacityExceeded,
    InvalidArgument,
    Message,
    open_queue,
)
from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_redis import RedisQueue

pytestmark = pytest.mark.server("redis")

_NOW = timedelta(0)
_SECRET = "s3cr3t-Zq9"


@pytest.fixture
def broken() -> Iterator[Redis]:
    """A client of a server that may be set up badly, and is set up well again afterwards."""
    with exclusive("redis") as place, Redis(host=place.host, port=place.port) as client:
        try:
            yield client
        finally:
            client.config_set("requirepass", "")
            client.config_set("maxmemory", 0)
            client.config_set("maxmemory-policy", "noeviction")
            client.replicaof("NO", "ONE")


def _queue(client: Redis, prefix: str) -> RedisQueue:
    return RedisQueue(Redis(**_address(client)), prefix=prefix)


def _address(client: Redis) -> dict[str, object]:
    kwargs = client.connection_pool.connection_kwargs
    return {"host": kwargs["host"], "port": kwargs["port"]}


def _error(call: object, *args: object) -> Exception:
    with pytest.raises(BatchError) as caught:
        call(*args)
    [failure] = caught.value.failed
    return failure.error


@pytest.mark.server("redis-cluster")
def test_a_client_that_decodes_is_refused() -> None:
    """Payloads are bytes, and what it gives back would be another type or an error."""
    with pytest.raises(InvalidArgument, match="decode_responses"):
        RedisQueue(Redis(decode_responses=True))
    place = server("redis-cluster")
    with (
        RedisCluster(host=place.host, port=place.port, decode_responses=True) as client,
        pytest.raises(InvalidArgument, match="decode_responses"),
    ):
        RedisQueue(client)


def test_something_else_than_a_client_is_refused() -> None:
    """When the object is made, with a word on what to do instead."""
    for client in (None, "redis://localhost", redis.asyncio.Redis()):
        with pytest.raises(InvalidArgument, match="open_queue"):
            RedisQueue(client)


@pytest.mark.parametrize("bad", ["", "a{b}", "a b", "é", "x" * 129, 7, None], ids=repr)
def test_a_prefix_that_keys_cannot_start_with_is_refused(bad: object) -> None:
    """A brace would move the keys of a queue to different slots."""
    with pytest.raises(InvalidArgument, match="prefix"):
        RedisQueue(Redis(), prefix=bad)


def test_a_read_only_replica_is_told_from_a_primary(broken: Redis, prefix: str) -> None:
    """BackendError with a known outcome, for a push and for a pop."""
    queue = _queue(broken, prefix)
    broken.replicaof("127.0.0.1", 1)
    error = _error(queue.push, Message("q"))
    assert isinstance(error, BackendError)
    assert "read-only replica" in str(error)
    assert not error.outcome_unknown
    with pytest.raises(BackendError, match="read-only replica"):
        queue.pop("q", wait=_NOW)


def test_a_server_without_memory_refuses_pushes_and_nothing_else(
    broken: Redis, prefix: str
) -> None:
    """CapacityExceeded; what is there can be worked off, looked at and forgotten."""
    queue = _queue(broken, prefix)
    queue.push(*(Message("q", b"%d" % number, id=str(number)) for number in range(5)))
    queue.dead_letter(*queue.pop("q"))
    broken.config_set("maxmemory", 1)
    error = _error(queue.push, Message("q", id="0123"))
    assert isinstance(error, CapacityExceeded)
    acked, retried, dead, released = queue.pop("q", 4, wait=_NOW)
    queue.ack(acked)
    retried.extra = b"a record of the failure"
    queue.retry(retried)
    queue.dead_letter(dead)
    queue.extend_visibility(timedelta(minutes=1), released)
    queue.release(released)
    assert [each.message.id for each in queue.dead_letters("q", 10)] == ["3", "0"]
    assert queue.forget("q", "0") == 1
    assert queue.redrive("q", 10) == 1
    assert queue.stats("q").ready == 3
    assert queue.queues() == ["q"]
    broken.config_set("maxmemory", 0)
    queue.push(Message("q", id="0123"))
    assert queue.stats("q").ready == 4


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
def test_a_wrong_password_is_named_as_such_and_not_shown(broken: Redis, scheme: str) -> None:
    """BackendError with a known outcome."""
    broken.config_set("requirepass", "another")
    address = "{host}:{port}".format(**_address(broken))
    path = "service" if scheme == "redis+sentinel" else "0"
    queue = open_queue(f"{scheme}://:{_SECRET}@{address}/{path}?operation_timeout=3")
    with pytest.raises(BackendError) as caught:
        queue.pop("q", wait=_NOW)
    if scheme == "redis":
        assert "password" in str(caught.value)
    assert not caught.value.outcome_unknown
    chain: BaseException | None = caught.value
    while chain is not None:
        assert _SECRET not in f"{chain} {chain!r}"
        chain = chain.__cause__ or chain.__context__
    broken.execute_command("AUTH", "another")


def test_a_password_that_nobody_asks_for_is_named_as_such(broken: Redis) -> None:
    """And not as a missing one; nothing was changed."""
    address = "{host}:{port}".format(**_address(broken))
    with (
        open_queue(f"redis://:{_SECRET}@{address}/0?protocol=2") as queue,
        pytest.raises(
            BackendError, match="a password was given, and the server asks for none"
        ) as caught,
    ):
        queue.stats("q")
    assert not caught.value.outcome_unknown
    assert _SECRET not in str(caught.value)


def test_a_missing_password_is_named_as_such(broken: Redis, prefix: str) -> None:
    """BackendError, as for a wrong one."""
    broken.config_set("requirepass", "another")
    with pytest.raises(BackendError, match="asks for a password"):
        _queue(broken, prefix).pop("q", wait=_NOW)
    broken.execute_command("AUTH", "another")


@pytest.mark.parametrize(
    ("policy", "lost"),
    [("allkeys-lru", "loses all of its messages"), ("volatile-ttl", "given one")],
)
def test_an_eviction_policy_is_warned_of_once(
    broken: Redis, prefix: str, caplog: pytest.LogCaptureFixture, policy: str, lost: str
) -> None:
    """With a word on what would be lost (LIFE-6); nothing is said of noeviction."""
    with caplog.at_level(logging.WARNING):
        queue = _queue(broken, prefix)
        queue.push(Message("q"))
        assert caplog.records == []
        broken.config_set("maxmemory-policy", policy)
        queue = _queue(broken, prefix)
        for _ in range(3):
            queue.push(Message("q"))
            queue.pop("q", wait=_NOW)
    [record] = caplog.records
    assert policy in record.getMessage()
    assert lost in record.getMessage()


def test_a_user_who_may_not_ask_for_the_policy_can_work(broken: Redis, prefix: str) -> None:
    """A hosted server may hide its settings; scripts and the keys of the prefix are enough."""
    rights = ["+@scripting", "+@hash", "+@list", "+@set", "+@sortedset", "+@keyspace", "+time"]
    rights.append("-@dangerous")  # else FLUSHDB would be among those of @keyspace
    broken.acl_setuser("worker", enabled=True, nopass=True, keys=[f"{prefix}:*"], commands=rights)
    address = "{host}:{port}".format(**_address(broken))
    with open_queue(f"redis://worker:any@{address}/0?prefix={prefix}") as queue:
        queue.push(Message("q"))
        queue.ack(*queue.pop("q"))
        assert queue.stats("q").ready == 0
    with (
        Redis.from_url(f"redis://worker:any@{address}") as worker,
        pytest.raises(NoPermissionError, match="flushdb"),
    ):
        worker.flushdb()
    with open_queue(f"redis://worker:any@{address}/0?prefix=foreign") as queue:
        error = _error(queue.push, Message("q"))
        assert isinstance(error, BackendError)
        assert "may not" in str(error)


def test_a_newer_layout_is_refused_and_left_alone(
    queue: RedisQueue, client: Redis, prefix: str
) -> None:
    """By every operation; nothing of the queue changes."""
    queue.push(Message("q", b"0", id="0"), Message("q", b"1", id="1"), Message("q", b"2", id="2"))
    dead, held = queue.pop("q", 2)
    queue.dead_letter(dead)
    keys = queue_keys(prefix, "q").all
    client.hset(keys[0], "layout", "2")
    before = [client.dump(key) for key in keys]
    operations = [
        lambda: queue.pop("q", wait=_NOW),
        lambda: queue.redrive("q", 1),
        lambda: queue.redrive_ids("q", "0"),
        lambda: queue.forget("q", "0"),
        lambda: queue.stats("q"),
        lambda: queue.dead_letters("q", 1),
    ]
    for operation in operations:
        with pytest.raises(BackendError, match="layout"):
            operation()
    batches = [
        (queue.push, Message("q")),
        (queue.ack, held),
        (queue.retry, held),
        (queue.dead_letter, held),
        (queue.release, held),
        (lambda message: queue.extend_visibility(timedelta(seconds=1), message), held),
    ]
    for operation, message in batches:
        error = _error(operation, message)
        assert isinstance(error, BackendError)
        assert "layout" in str(error)
        assert not error.outcome_unknown
    assert [client.dump(key) for key in keys] == before
    client.hset(keys[0], "layout", "1")
    queue.ack(held)


def test_a_name_that_no_push_takes_is_set_aside_and_not_logged_as_it_is(
    queue: RedisQueue, client: Redis, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who writes to the server himself forges no line of a log, and stops nobody (POP-8)."""
    queue.push(Message("q", id="good"))
    _meta, bodies, _state, ready, *_ = queue_keys(prefix, "q").all
    forged = "id\nERROR forged"
    client.hset(bodies, forged, client.hget(bodies, "good"))
    client.lpush(ready, forged)
    with caplog.at_level(logging.WARNING):
        assert [each.id for each in queue.pop("q", 10, wait=_NOW)] == ["good"]
    [record] = caplog.records
    assert "invalid name" in record.getMessage()
    assert record.getMessage().isprintable()
    [dead] = queue.dead_letters("q", 10)
    assert dead.message is None
    assert dead.reason.isprintable()


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("redis://host/first", "database"),
        ("redis+cluster://host/1", "database"),
        ("redis+sentinel://host", "service"),
        ("redis+carrier://host", "scheme"),
        ("redis://host/0?protocol=4", "protocol"),
        ("redis://host/0?ssl_ca_certs=file", "ssl_ca_certs"),
        ("redis+cluster://host?also=a,b@c", "also"),
        ("redis://host/0?prefix=a{b}", "prefix"),
        ("redis://host/0?operation_timeout=0", "operation_timeout"),
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str, named: str) -> None:
    """With the part of it that is wrong, before anything is opened."""
    with pytest.raises(InvalidArgument, match=named):
        open_queue(url)


def test_a_pool_without_room_says_so(client: Redis, prefix: str) -> None:
    """A pool of a fixed size is the caller's choice, and may be too small."""
    pool = redis.ConnectionPool(max_connections=1, **_address(client))
    queue = RedisQueue(Redis(connection_pool=pool), prefix=prefix)
    queue.push(Message("q"))
    taken = pool.get_connection()
    with pytest.raises(BackendError, match="pool"):
        queue.pop("q", wait=_NOW)
    pool.release(taken)
    assert len(queue.pop("q", wait=_NOW)) == 1
    pool.disconnect()
