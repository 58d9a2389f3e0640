"""Queue URLs and their options."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from hypercube_queue._checks import safe_repr
from hypercube_queue._errors import InvalidArgument
from hypercube_queue._open import scheme_of

T = TypeVar("T")
V = TypeVar("V")

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_OPTION = re.compile(r"[A-Za-z0-9_.-]+")
_MAX_PORT = 65_535
#: A host and perhaps its port; an IPv6 address stands in brackets.
_ADDRESS = re.compile(r"(?:\[([^\[\]@/]+)\]|([^\[\]@/:]+))(?::(\d{1,5}))?")


class QueueURL:
    """A queue URL in its parts, percent-escapes decoded. Its repr hides the password.

    With `several_hosts` it may name more than one, with commas between, each with a port or
    without: `scheme://user:password@one:1,two/path`. `hostname` and `port` are the first one's,
    and an '@' that belongs to a password or a path has to be escaped.
    """

    def __init__(self, url: str, *, several_hosts: bool = False) -> None:
        self.scheme = scheme_of(url)
        try:
            first, further = _apart(url) if several_hosts else (url, [])
            parts = urlsplit(first)
            self.port = parts.port
            self._further = _addresses(further)
        except ValueError:
            parts = None
        if parts is None:
            # Not within the handler above: the parser's text can quote the part with the
            # password, and it would go along as the context of this error.
            raise InvalidArgument(
                f"the {self.scheme} URL cannot be parsed: is its port a number, and are '@', '/' "
                "and '#' in its password escaped?"
            )
        self.username = None if parts.username is None else unquote(parts.username)
        self.password = None if parts.password is None else unquote(parts.password)
        self.hostname = None if parts.hostname is None else unquote(parts.hostname)
        #: Decoded, with its leading slash: "sqlite:///jobs.db" has the path "/jobs.db".
        self.path = unquote(parts.path)
        if parts.fragment:
            raise InvalidArgument(
                f"the {self.scheme} URL has a part after '#', which means nothing here; write "
                "a '#' that belongs to a value as %23"
            )
        self.options = URLOptions(self.scheme, parts.query)

    def addresses(self, default_port: int) -> list[tuple[str, int]]:
        """Hosts and ports, in the order of the URL; "localhost" if it names none."""
        named = [(self.hostname or "localhost", self.port), *self._further]
        return [(host, port or default_port) for host, port in named]

    def __repr__(self) -> str:
        user = "" if self.username is None else f"{self.username}@"
        host = self.hostname or ""
        port = "" if self.port is None else f":{self.port}"
        for other, its_port in self._further:
            port += f",{other}" if its_port is None else f",{other}:{its_port}"
        # A '/' in a password that was not escaped makes the rest of it a path.
        path = "/..." if "@" in self.path else self.path
        return f"{self.scheme}://{user}{host}{port}{path}"


class URLOptions:
    """The query parameters of a queue URL, taken out one by one.

    `refuse_unknown` at the end makes a misspelt option an error instead of a surprise.
    """

    def __init__(self, scheme: str, query: str) -> None:
        self._scheme = scheme
        self._values: dict[str, str] = {}
        self._known: list[str] = []
        for name, value in parse_qsl(query, keep_blank_values=True):
            if not _OPTION.fullmatch(name):
                # Not shown: it can be the rest of a password with a '?' or an '&' in it.
                raise InvalidArgument(
                    f"the {scheme} URL has an option whose name is no word; is a '?' or an '&' in "
                    "its password or in a value not escaped?"
                )
            if name in self._values:
                raise InvalidArgument(f"option '{name}' is in the {scheme} URL twice")
            self._values[name] = value

    def text(self, name: str, default: T) -> str | T:
        """The option as it is."""
        return self._take(name, default, str, "a text")

    def integer(self, name: str, default: T) -> int | T:
        """The option as a whole number."""
        return self._take(name, default, int, "a whole number")

    def flag(self, name: str, default: T) -> bool | T:
        """The option as true or false."""
        return self._take(name, default, _flag, "true or false")

    def duration(self, name: str, default: T) -> timedelta | T:
        """The option, written in seconds."""
        return self._take(name, default, _seconds, "a number of seconds, not negative")

    def choice(self, name: str, default: T, choices: tuple[str, ...]) -> str | T:
        """The option, one of `choices`."""

        def one_of(value: str) -> str:
            if value not in choices:
                raise ValueError
            return value

        return self._take(name, default, one_of, f"one of {', '.join(choices)}")

    def rest(self) -> dict[str, str]:
        """All that was not taken, for a client with options of its own."""
        rest, self._values = self._values, {}
        return rest

    def refuse_unknown(self) -> None:
        """Raise InvalidArgument if an option was not taken."""
        for name in self._values:
            near = difflib.get_close_matches(name, self._known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise InvalidArgument(
                f"the {self._scheme} URL has the unknown option {safe_repr(name)}.{hint} Known "
                "are: "
                f"{', '.join(sorted(self._known))}"
            )

    def _take(self, name: str, default: T, read: Callable[[str], V], expected: str) -> V | T:
        self._known.append(name)
        if name not in self._values:
            return default
        value = self._values.pop(name)
        try:
            return read(value)
        except ValueError:
            raise InvalidArgument(
                f"option '{name}' of the {self._scheme} URL is {safe_repr(value)}; it takes "
                f"{expected}"
            ) from None


def _apart(url: str) -> tuple[str, list[str]]:
    """The URL with its first host alone, and the others; raises ValueError."""
    start = url.find("://") + len("://")
    end = next((at for at in range(start, len(url)) if url[at] in "/?#"), len(url))
    authority, rest = url[start:end], url[end:]
    if authority.count("@") > 1 or "@" in rest.partition("?")[0]:
        # What looks like hosts is then a part of a password, and hosts are shown.
        raise ValueError
    user, at, hosts = authority.rpartition("@")
    first, *further = hosts.split(",")
    return f"{url[:start]}{user}{at}{first}{rest}", further


def _addresses(texts: Iterable[str]) -> list[tuple[str, int | None]]:
    """Hosts and their ports; raises ValueError."""
    found: list[tuple[str, int | None]] = []
    for each in texts:
        match = _ADDRESS.fullmatch(each)
        port = None if match is None or match[3] is None else int(match[3])
        if match is None or (port or 0) > _MAX_PORT:
            raise ValueError
        found.append((unquote(match[1] or match[2]), port))
    return found


def _flag(value: str) -> bool:
    lowered = value.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError


def _seconds(value: str) -> timedelta:
    seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError from None
