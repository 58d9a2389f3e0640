"""From what GLIDE raises to the errors of the contract: the one place for it."""

from __future__ import annotations

import re

from glide_sync import ClosingError, ConfigurationError, GlideError
from glide_sync import TimeoutError as GlideTimeoutError

from hypercube_queue import BackendError, QueueError
from hypercube_queue_lua import server_error

#: The code of an error reply, by the name that GLIDE puts in its place.
_CODES = {
    "Ask": "ASK",
    "AuthenticationFailed": "WRONGPASS",
    "BusyLoadingError": "LOADING",
    "ClusterDown": "CLUSTERDOWN",
    "CrossSlot": "CROSSSLOT",
    "MasterDown": "MASTERDOWN",
    "Moved": "MOVED",
    "NoScriptError": "NOSCRIPT",
    "PermissionDenied": "NOPERM",
    "ReadOnly": "READONLY",
    "ResponseError": "ERR",
    "TryAgain": "TRYAGAIN",
}
#: An error reply: its name, or its code where GLIDE has none for it, and the text.
_REPLY = re.compile(
    r"^(?:An error was signalled by the server: - (?P<name>\w+)|(?P<code>[A-Z]+)): ?(?P<text>.*)",
    re.DOTALL,
)
#: A failed handshake tells the reply within a longer text.
_REFUSED = re.compile(r"\b(?P<code>NOAUTH|WRONGPASS|NOPERM|LOADING|MASTERDOWN)\b")
#: What GLIDE says in words of its own, as the server would have said it.
_WORDS = {
    "No primary node found": "READONLY",
    # With RESP2 it does not say how.
    "Password authentication failed": "WRONGPASS",
    "refused to switch database": "ERR DB index is out of range",
}


def translation(error: GlideError, place: str, *, cluster: bool) -> QueueError:
    """What the contract calls it; `cluster`: the client is one for clusters."""
    translated = _translation(error, place, cluster=cluster)
    translated.__cause__ = error
    return translated


def code_of(error: GlideError) -> str:
    """The first word of an error reply as the server sent it, or nothing."""
    match = _REPLY.match(str(error))
    if match is None:
        return ""
    return match["code"] or _CODES.get(match["name"], match["name"])


def _translation(error: GlideError, place: str, *, cluster: bool) -> QueueError:
    text = str(error).strip()
    if (match := _REPLY.match(text)) is not None:
        return server_error(f"{code_of(error)} {match['text']}", place, cluster=cluster)
    if reply := _refusal(text):
        return server_error(reply, place)
    if isinstance(error, ClosingError | ConfigurationError):
        return BackendError(f"{place}: the client cannot be used: {text}")
    if "connect failed" in text or "FatalSendError" in text:
        return BackendError(f"{place}: no connection: {text}")
    what = f"the connection was lost: {text}"
    if isinstance(error, GlideTimeoutError):
        what = "no answer in time"
    return BackendError(f"{place}: {what}", outcome_unknown=True)


def _refusal(text: str) -> str:
    """The error reply that a failed handshake tells of, or nothing."""
    if (match := _REFUSED.search(text)) is not None:
        return match["code"]
    return next((reply for words, reply in _WORDS.items() if words in text), "")
