"""What the environment says of servers; README.md explains each variable."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tools.backends.kind import Kind
from tools.backends.kinds import KINDS

#: In this order; each can be forced for all servers, or for one as in "redis@apt".
WAYS = ("url", "container", "binary", "apt")


def variable(name: str, what: str) -> str:
    """The variable that says something of one server."""
    return f"HYPERCUBE_TEST_{re.sub('[-.]', '_', name).upper()}_{what}"


def kind_of(wanted: str) -> Kind:
    """The kind that is asked for, with or without a way."""
    return KINDS[wanted.partition("@")[0]]


def way_of(wanted: str) -> str:
    """The only way to get it, or nothing."""
    return wanted.partition("@")[2] or os.environ.get("HYPERCUBE_TEST_FROM", "")


def is_required(wanted: str) -> bool:
    """Whether the run fails without it."""
    required = _required()
    return bool({"all", wanted, wanted.partition("@")[0]} & required)


def check(wanted: Iterable[str]) -> None:
    """Raises ValueError for a way or a server that does not exist, here or in the environment."""
    ways = ["", *WAYS]
    forced = os.environ.get("HYPERCUBE_TEST_FROM", "")
    if forced not in ways:
        raise ValueError(f"HYPERCUBE_TEST_FROM={forced} is none of {', '.join(WAYS)}")
    for name in wanted:
        kind, _, way = name.partition("@")
        if kind not in KINDS or way not in ways:
            raise ValueError(f"no server is called {name!r}; there are {', '.join(KINDS)}")
    unknown = {name.partition("@")[0] for name in _required()} - {"all", *KINDS}
    if unknown:
        raise ValueError(
            f"HYPERCUBE_TEST_REQUIRE names {', '.join(sorted(unknown))}; there are all, "
            + ", ".join(KINDS)
        )


def _required() -> set[str]:
    text = os.environ.get("HYPERCUBE_TEST_REQUIRE", "")
    return {name.strip() for name in text.split(",") if name.strip()}
