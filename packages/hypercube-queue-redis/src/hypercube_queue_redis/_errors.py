"""From what redis-py raises to the errors of the contract: the one place for it."""

from __future__ import annotations

from redis import ConnectionPool
from redis.exceptions import (
    AuthenticationError,
    MaxConnectionsError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from hypercube_queue import BackendError, QueueError
from hypercube_queue_lua import is_password_unexpected, server_error

#: The code of an error reply, by the class that redis-py has for it; it cuts the code off.
_CODES = {
    "AskError": "ASK",
    "AuthenticationError": "WRONGPASS",
    "AuthenticationWrongNumberOfArgsError": "WRONGPASS",
    "BusyLoadingError": "LOADING",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "NoScriptError": "NOSCRIPT",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}


#: What redis-py raises; the errors of its cluster client are a family of their own.
CLIENT_ERRORS = (RedisError, RedisClusterException)


def translation(error: Exception, place: str, *, sent: bool, cluster: bool) -> QueueError:
    """What the contract calls it.

    `sent`: the server may have received the request. `cluster`: it was asked as a node of one.
    """
    translated = _translation(error, place, sent=sent, cluster=cluster)
    translated.__cause__ = error
    return translated


def code_of(error: Exception) -> str:
    """The first word of an error reply as the server sent it, or nothing."""
    code = _CODES.get(type(error).__name__)
    if code == "WRONGPASS" and is_password_unexpected(str(error)):
        return "ERR"
    if code == "WRONGPASS" and not str(error).startswith(("WRONGPASS", "invalid ")):
        return "NOAUTH"
    if code is None and isinstance(error, ResponseError):
        return str(error).partition(" ")[0]
    return code or ""


def redirection(error: Exception, pool: ConnectionPool) -> tuple[int, tuple[str, int]]:
    """The slot and the address that ASK or MOVED names; `pool` leads to the node that said it."""
    slot, address = str(error).split()[-2:]
    host, _, port = address.rpartition(":")
    # A node that does not know the host of another means its own.
    return int(slot), (host or str(pool.connection_kwargs["host"]), int(port))


def _translation(error: Exception, place: str, *, sent: bool, cluster: bool) -> QueueError:
    if code := code_of(error):
        text = str(error)
        reply = text if text.startswith(code) else f"{code} {text}"
        return server_error(reply, place, cluster=cluster)
    if isinstance(error, MaxConnectionsError):
        return BackendError(f"{place}: the client's pool allows no further connection")
    if isinstance(error, RedisClusterException):
        # All nodes have the same users.
        if isinstance(error.__cause__, AuthenticationError):
            return _translation(error.__cause__, place, sent=False, cluster=cluster)
        return BackendError(f"{place}: no node answers as one of a cluster: {error}")
    if isinstance(error, RedisTimeoutError):
        what = "no answer in time" if sent else "it cannot be reached in time"
        return BackendError(f"{place}: {what}", outcome_unknown=sent)
    what = "the connection was lost" if sent else "no connection"
    return BackendError(f"{place}: {what}: {error}", outcome_unknown=sent)
