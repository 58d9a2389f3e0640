"""From what pika raises to the errors of the contract: the one place for it."""

from __future__ import annotations

import re

from pika.exceptions import (  # type: ignore[import-untyped]  # pika ships no types
    AMQPHeartbeatTimeout,
    ChannelClosedByBroker,
    ConnectionClosed,
    ConsumerCancelled,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    StreamLostError,
)

from hypercube_queue import BackendError, QueueError

#: What the broker calls the reasons for which it closes a channel.
ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, PRECONDITION_FAILED = 403, 404, 405, 406

_REMEDIES = {
    ACCESS_REFUSED: "grant the user this permission in the vhost, or open the queue with "
    "declare=false where only declaring is refused",
    NOT_FOUND: "create it, or open the queue with declare=true",
    RESOURCE_LOCKED: "close the connection that has it exclusively, or use another queue",
}

_TEXTS = {
    ProbableAuthenticationError: "the broker refused the user name or the password",
    ProbableAccessDeniedError: (
        "the broker refused the vhost: does it exist, and may this user use it?"
    ),
    ConsumerCancelled: "the queue was deleted while a pop waited, or lost its node",
}


#: What only a person can repair: how the broker refuses a channel, and a connection.
_PERMANENT = frozenset({ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED})
_REFUSED_CONNECTION = re.compile(r"\((?:403|530)\)")


def translation(error: BaseException, place: str, *, sent: bool) -> QueueError:
    """What the contract calls it; `sent`: the broker may have received the request."""
    translated = BackendError(
        f"{place}: {_explained(error, sent=sent)}",
        outcome_unknown=sent,
        permanent=not sent and _is_permanent(error),
    )
    translated.__cause__ = error
    return translated


def _is_permanent(error: BaseException) -> bool:
    if isinstance(error, ChannelClosedByBroker):
        return error.reply_code in _PERMANENT
    if isinstance(error, ProbableAuthenticationError | ProbableAccessDeniedError):
        # Pika says so, too, of a connection that was lost at this stage.
        return bool(_REFUSED_CONNECTION.search(str(error.args))) and "is down" not in str(
            error.args
        )
    return False


def closed_with(error: BaseException | None, code: int) -> bool:
    """Whether the broker closed a channel for this reason."""
    return isinstance(error, ChannelClosedByBroker) and error.reply_code == code


def _explained(error: BaseException, *, sent: bool) -> str:
    if isinstance(error, ChannelClosedByBroker):
        return _refusal(error.reply_code, error.reply_text)
    for kind, text in _TEXTS.items():
        if isinstance(error, kind):
            return text
    if isinstance(error, TimeoutError):
        return "no answer in time" if sent else "it cannot be reached in time"
    lost = sent or isinstance(error, StreamLostError | ConnectionClosed | AMQPHeartbeatTimeout)
    what = "the connection was lost" if lost else "no connection"
    return f"{what}: {innermost(error)}"


def _refusal(code: int, reason: str) -> str:
    text = f"the broker refused: {reason}"
    if code == PRECONDITION_FAILED and "inequivalent arg" in reason:
        return (
            f"{text}. It exists with another argument, and a queue keeps the arguments that it was "
            "declared with: open the queue with the queue_type it has, delete it once it is "
            "empty, or use it as it is with declare=false"
        )
    remedy = _REMEDIES.get(code)
    return text if remedy is None else f"{text}; {remedy}"


def innermost(error: BaseException) -> str:
    """The reason that pika wraps several times over while it connects."""
    while True:
        inner = error.args[0] if error.args else None
        several = getattr(inner, "exceptions", None) or getattr(error, "exceptions", None)
        if several:
            error = several[-1]
        elif isinstance(each := getattr(error, "exception", inner), BaseException):
            error = each
        else:
            return f"{type(error).__name__}: {error}"
