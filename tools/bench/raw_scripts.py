"""The limit of Redis and Valkey: the drivers' own scripts, called by hand."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from typing import Protocol, cast

from glide_sync import GlideClient, GlideClientConfiguration, NodeAddress, ServerCredentials
from redis import Redis
from tools.backends.instance import Server
from tools.bench.raw import PAYLOAD, Ids

from hypercube_queue_lua._keys import queue_keys
from hypercube_queue_lua._scripts import Script, script

_KEYS = queue_keys("raw", "raw").all
#: What a body starts with: no visibility timeout of its own.
_BODY = bytes(8) + PAYLOAD
#: Lengths of id and body, delay.
_SENT = struct.Struct(">BId")
#: Lengths of id and body, attempt.
_TAKEN = struct.Struct(">BII")
#: Any more are not asked for, in bytes; and the lease, in microseconds.
_BUDGET, _LEASE = b"4194304", b"30000000"


class _Server(Protocol):
    """A client that can run a script."""

    def run(self, script: Script, *args: bytes) -> list[bytes]: ...

    def close(self) -> None: ...


class RawScripts:
    """One call for each push, pop and ack, and no more of a message than its bytes."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._ids = Ids()

    def push(self, count: int) -> None:
        heads: list[bytes] = []
        parts: list[bytes] = []
        for id in self._ids.take(count):
            encoded = id.encode()
            heads.append(_SENT.pack(len(encoded), len(_BODY), 0))
            parts += (encoded, _BODY)
        self._server.run(script("push"), b"".join(heads), b"".join(parts))

    def pop_and_ack(self, count: int) -> None:
        token = secrets.token_bytes(8)
        asked = (b"%d" % count, _BUDGET, _LEASE, token)
        _, _, heads, parts = self._server.run(script("pop"), *asked)
        ids = [id for id, _ in _taken(heads, parts)]
        self._server.run(script("ack"), bytes(map(len, ids)), b"".join(ids), token)

    def close(self) -> None:
        self._server.close()


def _taken(heads: bytes, parts: bytes) -> Iterator[tuple[bytes, bytes]]:
    start = 0
    for id_length, body_length, _ in _TAKEN.iter_unpack(heads):
        middle = start + id_length
        end = middle + body_length
        yield parts[start:middle], parts[middle + 8 : end]
        start = end


class RedisPy:
    """redis-py, with its compiled parser."""

    def __init__(self, place: Server, database: int) -> None:
        self._client = connect_redis(place, database)
        for name in ("push", "pop", "ack"):
            self._client.script_load(script(name).source)

    def run(self, script: Script, *args: bytes) -> list[bytes]:
        called = ("EVALSHA", script.sha, len(_KEYS), *_KEYS, *args)
        found: list[bytes] = self._client.execute_command(*called)  # type: ignore[no-untyped-call]
        return found

    def close(self) -> None:
        self._client.close()


class Glide:
    """GLIDE's synchronous client."""

    def __init__(self, place: Server, database: int) -> None:
        self._client = GlideClient.create(
            GlideClientConfiguration(
                [NodeAddress(place.host, place.port)],
                database_id=database,
                credentials=_credentials(place),
            )
        )
        for name in ("push", "pop", "ack"):
            self._client.custom_command(["SCRIPT", "LOAD", script(name).source])

    def run(self, script: Script, *args: bytes) -> list[bytes]:
        called = [b"EVALSHA", script.sha, b"%d" % len(_KEYS), *_KEYS, *args]
        return cast("list[bytes]", self._client.custom_command([*called]))

    def close(self) -> None:
        self._client.close()


def connect_redis(place: Server, database: int) -> Redis:
    return Redis(
        host=place.host,
        port=place.port,
        db=database,
        username=place.username or None,
        password=place.password or None,
    )


def _credentials(place: Server) -> ServerCredentials | None:
    if not place.password:
        return None
    return ServerCredentials(password=place.password, username=place.username or None)
