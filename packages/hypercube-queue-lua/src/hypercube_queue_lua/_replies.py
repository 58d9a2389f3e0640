"""Replies as the types that scripts return."""

from __future__ import annotations

from hypercube_queue import BackendError
from hypercube_queue_lua._client import Reply


def as_int(reply: Reply) -> int:
    if isinstance(reply, int):
        return reply
    raise _foreign(reply)


def as_bytes(reply: Reply) -> bytes:
    if isinstance(reply, bytes):
        return reply
    raise _foreign(reply)


def as_list(reply: Reply) -> list[Reply]:
    if isinstance(reply, list):
        return reply
    raise _foreign(reply)


def _foreign(reply: Reply) -> BackendError:
    return BackendError(
        f"the server answered a script with a {type(reply).__name__}, which no script returns",
        outcome_unknown=True,
    )
