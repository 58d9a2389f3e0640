"""Script calls over GLIDE."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, cast

from glide_sync import (
    Batch,
    BatchOptions,
    ClusterBatch,
    ClusterBatchOptions,
    GlideClusterClient,
    GlideError,
    NodeAddress,
    RandomNode,
    TEncodable,
)
from glide_sync import TimeoutError as GlideTimeoutError

from hypercube_queue import BackendError, QueueError
from hypercube_queue.driver import Deadline
from hypercube_queue_lua import WRONG_SERVER, Call, Reply
from hypercube_queue_valkey._clients import AnyClient, Clients
from hypercube_queue_valkey._errors import code_of, translation

Command: TypeAlias = list[TEncodable]


#: How long a call is repeated before a cluster is said to be in disorder.
_PATIENCE = timedelta(seconds=5)
#: How long to leave a cluster alone that is in disorder, in seconds: at first, and at most.
_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
#: After so many turns a client that still follows the old map of a cluster is given up.
_TURNS_WITH_ONE_CLIENT = 3

#: Says to a waiting pop that its server is another one's replica now.
_UNBLOCKED = "UNBLOCKED"
#: Replies of a cluster that GLIDE follows, but not for as long as a failover takes.
_REDIRECTIONS = frozenset({"ASK", "MOVED", "TRYAGAIN"})


class ValkeyClient:
    """The `Client` of hypercube_queue_lua, over GLIDE.

    `make` gives a client that has not connected yet, and that knows the addresses given beside
    its own; `place` is what error texts call the server. A client stays with the server, or with
    the nodes of the cluster, that it knows, and keeps a connection that fell silent. So another
    one is made when the server refuses to serve, when an answer does not come in time, or, where
    several were named (`has_choice`), when there is no connection.
    """

    def __init__(
        self,
        make: Callable[[Sequence[NodeAddress]], AnyClient],
        place: str,
        *,
        cluster: bool,
        borrowed: AnyClient | None = None,
        has_choice: bool = False,
    ) -> None:
        self._place = place
        self._cluster = cluster
        self._has_choice = has_choice
        #: The nodes of the cluster, where a client was given up; those of the URL may be gone.
        self._known: Sequence[NodeAddress] = ()
        self._clients = Clients(lambda: make(self._known), borrowed)

    def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
        answers: list[object] = [None] * len(calls)
        waiting = list(range(len(calls)))
        patience = Deadline(_PATIENCE)
        turns = 0
        while waiting:
            for index, answer in zip(
                waiting, self._round_trip([calls[index] for index in waiting], end), strict=True
            ):
                answers[index] = answer
            failed = {
                index: each for index in waiting if isinstance(each := answers[index], GlideError)
            }
            if any(self._tells_of_failover(each, turns) for each in failed.values()):
                self._renew()
            waiting = []
            if not (end.passed or patience.passed):
                waiting = [index for index, each in failed.items() if self._is_not_run(each, turns)]
            turns += 1
            if waiting and self._cluster:
                pause = min(_PAUSE * 2 ** (turns - 1), _LONGEST_PAUSE)
                time.sleep(min(pause, end.seconds_left()))
        return [
            self._translation(answer) if isinstance(answer, GlideError) else cast("Reply", answer)
            for answer in answers
        ]

    def block(self, keys: tuple[bytes, ...], seconds: float, end: Deadline) -> None:
        with self._clients.own() as client:
            [answer] = _exchange(client, [[b"BLPOP", *keys, f"{seconds:.3f}"]], end)
        if not isinstance(answer, GlideError):
            return
        if self._tells_of_failover(answer, 0):
            self._renew()
        code = code_of(answer)
        if code != _UNBLOCKED and code not in WRONG_SERVER | _REDIRECTIONS:
            raise self._translation(answer) from answer
        # The look that follows finds the right server, or tells what is wrong with this one.
        time.sleep(min(_PAUSE, seconds, end.seconds_left()))

    def in_child(self) -> None:
        if self._clients.borrowed is not None:
            raise BackendError(
                f"{self._place}: the client belongs to the process that this one was forked "
                "from; make a client and a queue after the fork, or open the queue by URL"
            )
        self._clients.forget()

    def close(self) -> None:
        self._clients.retire()

    # Internal

    def _renew(self) -> None:
        """Use other clients from now on, which are not worse off than those that are there."""
        if self._clients.borrowed is not None or not self._clients.is_renewal_due:
            return
        if self._cluster:
            with self._clients.shared() as client:
                self._known = _nodes_of(client) or self._known
            if not self._known:
                return
        self._clients.renew()

    def _round_trip(self, calls: Sequence[Call], end: Deadline) -> list[object]:
        """An answer or a GlideError for each call."""
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
        return answers

    def _tells_of_failover(self, error: GlideError, turns: int) -> bool:
        """Whether another client may find a server that serves."""
        code = code_of(error)
        if code == "MOVED":
            return turns >= _TURNS_WITH_ONE_CLIENT
        if isinstance(error, GlideTimeoutError):
            return True  # a connection that lost something stays silent, and GLIDE keeps it
        return code in WRONG_SERVER or code == _UNBLOCKED or (not code and self._has_choice)

    def _is_not_run(self, error: GlideError, turns: int) -> bool:
        """Whether no server has run the call, and another turn may help."""
        code = code_of(error)
        if self._cluster:
            return code in WRONG_SERVER or code in _REDIRECTIONS
        # A new client may be led to another server.
        return code in WRONG_SERVER and not turns and self._clients.borrowed is None

    def _translation(self, error: GlideError) -> QueueError:
        return translation(error, self._place, cluster=self._cluster)


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


def _nodes_of(client: AnyClient) -> list[NodeAddress]:
    """The nodes of a cluster, as one of them says; nothing where it does not answer."""
    try:
        reply = cast("GlideClusterClient", client).custom_command(
            ["CLUSTER", "SLOTS"], route=RandomNode()
        )
    except GlideError:
        return []
    named = {
        (bytes(host).decode(), int(port))
        for _, _, *nodes in cast("list[Any]", reply)
        for host, port, *_ in nodes
        if host
    }
    return [NodeAddress(*each) for each in sorted(named)]


def _evalsha(call: Call) -> Command:
    return [b"EVALSHA", call.script.sha, *_arguments(call)]


def _eval(call: Call) -> Command:
    return [b"EVAL", call.script.source, *_arguments(call)]


def _arguments(call: Call) -> Command:
    args = [arg if isinstance(arg, bytes) else b"%d" % arg for arg in call.args]
    return [b"%d" % len(call.keys), *call.keys, *args]
