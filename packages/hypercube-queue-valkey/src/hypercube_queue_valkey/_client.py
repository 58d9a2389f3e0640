"""Script calls over GLIDE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from glide_sync import (
    Batch,
    BatchOptions,
    ClusterBatch,
    ClusterBatchOptions,
    GlideClusterClient,
    GlideError,
    TEncodable,
)

from hypercube_queue import BackendError, QueueError
from hypercube_queue.driver import Deadline
from hypercube_queue_lua import Call, Reply
from hypercube_queue_valkey._clients import AnyClient, Clients
from hypercube_queue_valkey._errors import code_of, translation

Command: TypeAlias = list[TEncodable]


class ValkeyClient:
    """The `Client` of hypercube_queue_lua, over GLIDE.

    `make` gives a client that has not connected yet, and `place` is what error texts call the
    server. A client for one server stays with the server that it found at first. So after a
    failover another one is made: when the server says that it is a replica now, or, where
    several were named (`has_choice`), when it does not answer.
    """

    def __init__(
        self,
        make: Callable[[], AnyClient],
        place: str,
        *,
        borrowed: AnyClient | None = None,
        has_choice: bool = False,
    ) -> None:
        self._place = place
        self._has_choice = has_choice
        self._clients = Clients(make, borrowed)

    def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
        with self._clients.shared() as client:
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
        if self._clients.borrowed is None and any(map(self._tells_of_failover, answers)):
            self._clients.renew()
        return [
            translation(answer, self._place)
            if isinstance(answer, GlideError)
            else cast("Reply", answer)
            for answer in answers
        ]

    def block(self, keys: tuple[bytes, ...], seconds: float, end: Deadline) -> None:
        with self._clients.own() as client:
            [answer] = _exchange(client, [[b"BLPOP", *keys, f"{seconds:.3f}"]], end)
        if isinstance(answer, GlideError) and code_of(answer) not in ("MOVED", "UNBLOCKED"):
            raise translation(answer, self._place) from answer

    def in_child(self) -> None:
        if self._clients.borrowed is not None:
            raise BackendError(
                f"{self._place}: the client belongs to the process that this one was forked "
                "from; make a client and a queue after the fork, or open the queue by URL"
            )
        self._clients.forget()

    def close(self) -> None:
        self._clients.retire()

    def _tells_of_failover(self, answer: object) -> bool:
        if not isinstance(answer, GlideError):
            return False
        code = code_of(answer)
        return code == "READONLY" or (not code and self._has_choice)


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
