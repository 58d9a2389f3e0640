"""From the error replies of servers to the errors of the contract: the one place for it."""

from __future__ import annotations

from hypercube_queue import BackendError, CapacityExceeded, QueueError
from hypercube_queue.driver import copy_error

#: The first word of an error reply, and what to tell people. After each of these nothing was
#: changed: the server looks before it runs a script.
_TEXTS = {
    "BUSY": "the server is busy with a script of somebody's that does not end",
    "CLUSTERDOWN": "the cluster is down: some of its slots are served by nobody",
    "CROSSSLOT": "the server is a node of a cluster, and asks for a client that knows clusters",
    "HYPERCUBELAYOUT": "the queue was stored by a newer release of this driver, in a layout that "
    "this one does not know; upgrade it here too",
    "LOADING": "the server is still loading its data",
    "MASTERDOWN": "the server is a replica that has lost its primary",
    "MISCONF": "the server cannot save to its disk and refuses to change anything",
    "MOVED": "the server is a node of a cluster, and asks for a client that knows clusters",
    "NOAUTH": "the server asks for a password, and none was given",
    "NOPERM": "the user may not do this on the server; scripts and the keys under the prefix "
    "must be allowed",
    "NOREPLICAS": "the server has too few replicas to take changes",
    "READONLY": "the server is a read-only replica; the queue needs its primary",
    "TRYAGAIN": "the cluster is moving the queue from one node to another",
    "WRONGPASS": "the server refuses the user name or the password, or asks for none",
}
#: The same from a node that was asked by a client for clusters.
_CLUSTER_TEXTS = {
    "ASK": "the cluster is moving the queue from one node to another",
    "MOVED": "the nodes of the cluster do not agree yet on which of them has the queue",
}
#: What only a person can repair.
_PERMANENT = frozenset({"CROSSSLOT", "HYPERCUBELAYOUT", "MOVED", "NOAUTH", "NOPERM", "WRONGPASS"})
#: What a server says to a password when it has none, as of Redis 6 and before.
_UNEXPECTED_PASSWORD = ("called without any password configured", "but no password is set")

#: Codes that say that another server should be asked, or will be asked in place of this one after
#: a failover. A connection that met one is closed, and nothing was run.
WRONG_SERVER = frozenset({"CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOREPLICAS", "READONLY"})


def is_password_unexpected(text: str) -> bool:
    """Whether an error reply says that a password was given to a server that has none."""
    return any(each in text for each in _UNEXPECTED_PASSWORD)


def server_error(text: str, place: str, *, cluster: bool = False) -> QueueError:
    """What the contract calls an error reply.

    `place` names the server, `cluster` says that it was asked by a client that knows clusters.
    """
    code = text.partition(" ")[0]
    if cluster and code in _CLUSTER_TEXTS:
        return BackendError(f"{place}: {_CLUSTER_TEXTS[code]}")
    if code == "OOM":
        return CapacityExceeded(
            f"{place}: the server has reached its maxmemory; nothing was stored"
        )
    if explanation := _explained(text):
        return BackendError(f"{place}: {explanation}", permanent=True)
    if code in _TEXTS:
        return BackendError(f"{place}: {_TEXTS[code]}", permanent=code in _PERMANENT)
    return BackendError(f"{place}: {text}", outcome_unknown=True)


def _explained(text: str) -> str:
    """What only a person can repair, of replies that have no code of their own; or nothing."""
    if is_password_unexpected(text):
        return (
            "a password was given, and the server asks for none; leave it out, or set one on the "
            "server (requirepass, or a user by ACL SETUSER)"
        )
    if "unknown command" in text.lower():
        # The server quotes the arguments, payloads included.
        return (
            "the server does not know a command that the queue needs; it takes Redis 7 or Valkey, "
            "or something that speaks as they do"
        )
    if "DB index is out of range" in text:
        return "the server has no database of this number"
    return ""


def unsent(error: QueueError) -> QueueError:
    """The error for items that were not even sent because of it."""
    if not isinstance(error, BackendError):
        return copy_error(error)
    other = BackendError(str(error), permanent=error.permanent)
    other.__cause__ = error.__cause__
    return other
