"""Whether a web address answers."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

TIMEOUT_S = 10.0

#: Answers to HEAD that say nothing about GET.
_ASK_WITH_GET = frozenset(
    {HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
)
_HEADERS = {"User-Agent": "hypercube-link-check/1.0", "Accept": "*/*"}


class Unreachable(Exception):
    """The address did not answer, or told to come again: it may answer later."""


def why_unwanted(address: str) -> str | None:
    """Why `address` is no good, or None if it answers well.

    Raises Unreachable for status 429 or 5xx, after a time-out of ten seconds, and when there
    is no connection.
    """
    try:
        url = _as_ascii(address)
    except ValueError:
        return "it is not a valid address"
    status = _status(url, "HEAD")
    if status in _ASK_WITH_GET:
        status = _status(url, "GET")
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Unreachable(_named(status))
    # urllib follows redirects, but not for ever.
    return _named(status) if status >= HTTPStatus.MULTIPLE_CHOICES else None


def _status(url: str, method: str) -> int:
    request = Request(url, headers=_HEADERS, method=method)  # noqa: S310  # web addresses only
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310  # as above
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return _BAD_CERTIFICATE
        if isinstance(reason, TimeoutError):
            raise Unreachable(f"no answer within {TIMEOUT_S:.0f} s") from error
        raise Unreachable(f"no connection: {reason}") from error


#: No server sends it, and trying again does not help.
_BAD_CERTIFICATE = 495


def _named(status: int) -> str:
    if status == _BAD_CERTIFICATE:
        return "its certificate is not valid"
    try:
        return f"status {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"status {status}"


def _as_ascii(address: str) -> str:
    """The address as it goes over the wire. Raises ValueError for what is none."""
    parts = urlsplit(f"https:{address}" if address.startswith("//") else address)
    host = (parts.hostname or "").encode("idna").decode("ascii")
    if not host:
        raise ValueError
    if ":" in host:
        host = f"[{host}]"
    port = "" if parts.port is None else f":{parts.port}"
    safe = "%/:=&?~+!$,;'@()*[]"
    return urlunsplit(
        (parts.scheme, host + port, quote(parts.path, safe), quote(parts.query, safe), "")
    )
