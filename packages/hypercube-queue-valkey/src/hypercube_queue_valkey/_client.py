"""Script calls over GLIDE."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from glide_sync import (
    Batch,
    BatchOptions,
    ClusterBatch,
    ClusterBatchOptions,
    GlideClient,
    GlideClusterClient,
    GlideError,
    TEncodable,
)

from hypercube_queue import BackendError, QueueError
from hypercube_queue.driver import Deadline
from hypercube_queue_lua import Call, Reply
from hypercube_queue_valkey._errors import code_of, translation

AnyClient: TypeAlias = "GlideClient | GlideClusterClient"
Command: TypeAlias = list[TEncodable]


class ValkeyClient:
    """The `Client` of hypercube_queue_lua, over GLIDE.

    One client serves all threads. A command that blocks would stop everything else on it, so
    each waiting pop has another one, which the next one uses after it.

    `make` gives a client that has not connected yet; `shared` is the one to use, if there is
    one already that belongs to the caller.
    """

    def __init__(
        self, make: Callable[[], AnyClient], place: str, *, shared: AnyClient | None = None
    ) -> None:
        self._make = make
        self._place = place
        self._borrowed = shared
        self._lock = threading.Lock()
        self._shared = shared
        self._idle: list[AnyClient] = []
        self._waiting: set[AnyClient] = set()

    def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
        client = self._main()
        answers = _exchange(client, [_evalsha(call) for call in calls], end)
        unknown = [
            index
            for index, answer in enumerate(answers)
            if isinstance(answer, GlideError) and code_of(answer) == "NOSCRIPT"
        ]
        if unknown:
            again = _exchange(client, [_eval(calls[index]) for index in unknown], end)
            for index, answer in zip(unknown, again, strict=True):
                answers[index] = answer
        return [
            translation(answer, self._place)
            if isinstance(answer, GlideError)
            else cast("Reply", answer)
            for answer in answers
        ]

    def block(self, keys: tuple[bytes, ...], seconds: float, end: Deadline) -> None:
        client = self._take()
        try:
            [answer] = _exchange(client, [[b"BLPOP", *keys, f"{seconds:.3f}"]], end)
        finally:
            self._give_back(client)
        if isinstance(answer, GlideError) and code_of(answer) not in ("MOVED", "UNBLOCKED"):
            raise translation(answer, self._place) from answer

    def in_child(self) -> None:
        if self._borrowed is not None:
            raise BackendError(
                f"{self._place}: the client belongs to the process that this one was forked "
                "from; make a client and a queue after the fork, or open the queue by URL"
            )
        self._lock = threading.Lock()
        self._shared = None
        self._idle = []
        self._waiting = set()

    def close(self) -> None:
        with self._lock:
            clients = [*self._idle, *self._waiting]
            if self._borrowed is None and self._shared is not None:
                clients.append(self._shared)
            self._idle = []
        for client in clients:
            client.close()

    def _main(self) -> AnyClient:
        with self._lock:
            if self._shared is None:
                self._shared = self._make()
            return self._shared

    def _take(self) -> AnyClient:
        with self._lock:
            client = self._idle.pop() if self._idle else self._make()
            self._waiting.add(client)
            return client

    def _give_back(self, client: AnyClient) -> None:
        with self._lock:
            self._waiting.discard(client)
            self._idle.append(client)


def _exchange(client: AnyClient, commands: Sequence[Command], end: Deadline) -> list[object]:
    """The answers; those that failed are GlideErrors.

    A batch even for one command: GLIDE writes the errors of single ones to stderr.
    """
    milliseconds = max(1, int(end.seconds_left() * 1000))
    answers: Sequence[object] | None
    try:
        if isinstance(client, GlideClusterClient):
            cluster_batch = ClusterBatch(is_atomic=False)
            for command in commands:
                cluster_batch.custom_command(command)
            answers = client.exec(
                cluster_batch, raise_on_error=False, options=ClusterBatchOptions(milliseconds)
            )
        else:
            batch = Batch(is_atomic=False)
            for command in commands:
                batch.custom_command(command)
            answers = client.exec(batch, raise_on_error=False, options=BatchOptions(milliseconds))
    except GlideError as error:
        return [error] * len(commands)
    return list(answers or ())


def _evalsha(call: Call) -> Command:
    return [b"EVALSHA", call.script.sha, *_arguments(call)]


def _eval(call: Call) -> Command:
    return [b"EVAL", call.script.source, *_arguments(call)]


def _arguments(call: Call) -> Command:
    args = [arg if isinstance(arg, bytes) else b"%d" % arg for arg in call.args]
    return [b"%d" % len(call.keys), *call.keys, *args]
