"""Opening a queue by URL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypercube_queue._errors import InvalidArgument, QueueError
from hypercube_queue._queue import Queue

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Drivers register `scheme = "module:from_url"` here; from_url takes the whole URL.
ENTRY_POINT_GROUP = "hypercube.drivers"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

#: The distribution to install for a scheme that no installed driver offers.
_DISTRIBUTIONS = {
    "memory": "hypercube-queue-memory",
    "sqlite": "hypercube-queue-sql",
    "postgresql": "hypercube-queue-sql[postgresql]",
    "mysql": "hypercube-queue-sql[mysql]",
    "mariadb": "hypercube-queue-sql[mysql]",
    "redis": "hypercube-queue-redis",
    "rediss": "hypercube-queue-redis",
    "valkey": "hypercube-queue-valkey",
    "valkeys": "hypercube-queue-valkey",
    "sqs": "hypercube-queue-sqs",
    "amqp": "hypercube-queue-rabbitmq",
    "amqps": "hypercube-queue-rabbitmq",
}

#: Schemes of other libraries, by ours.
_SYNONYMS = {
    "file": "sqlite",
    "sqlite3": "sqlite",
    "pg": "postgresql",
    "pgsql": "postgresql",
    "postgres": "postgresql",
    "psql": "postgresql",
    "maria": "mariadb",
    "pyamqp": "amqp",
    "librabbitmq": "amqp",
    "rabbit": "amqp",
    "rabbitmq": "amqp",
    "rabbitmqs": "amqps",
    "sentinel": "redis",
    "aws": "sqs",
    "mem": "memory",
}


def open_queue(url: str) -> Queue:
    """The queue that `url` names, through the installed driver of its scheme (LIFE-3).

        open_queue("sqlite:///jobs.db?visibility_timeout=60")

    Makes no connection: tables and queues are made and servers reached at the first call
    (LIFE-1). A scheme like `postgresql+psycopg` that no driver offers as it stands is looked
    up by the part before the plus. Raises `InvalidArgument` for an unknown scheme, which
    says what to install, and for an option or value that the driver does not know.
    """
    scheme = scheme_of(url)
    from importlib.metadata import entry_points  # slow to import, and used here only

    base = scheme.partition("+")[0]
    for candidate in dict.fromkeys((scheme, base)):
        offers = {
            point.value: point for point in entry_points(group=ENTRY_POINT_GROUP, name=candidate)
        }
        if len(offers) > 1:
            raise InvalidArgument(
                f"several installed drivers offer the scheme '{candidate}': "
                f"{', '.join(sorted(map(_whose, offers.values())))}; uninstall all but one, or "
                "construct the queue from its class"
            )
        for point in offers.values():
            queue = point.load()(url)
            if not isinstance(queue, Queue):
                raise QueueError(
                    f"the driver of the scheme '{candidate}' in {_whose(point)} returned no queue"
                )
            return queue
    raise InvalidArgument(
        f"no installed driver offers the scheme '{scheme}': {_remedy(scheme, base)}"
    )


def scheme_of(url: object) -> str:
    """The scheme of a queue URL, in lower case; InvalidArgument if there is none."""
    if not isinstance(url, str):
        raise InvalidArgument(
            f"a queue URL is a str such as 'sqlite:///jobs.db', not {type(url).__name__}"
        )
    scheme, separator, _ = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        # The text may hold a password even where it is no URL, so none of it is shown.
        raise InvalidArgument("a queue URL starts with a scheme, such as 'sqlite:///jobs.db'")
    return scheme.lower()


def _whose(point: EntryPoint) -> str:
    """The distribution that an entry point comes from, as pip names it."""
    return point.dist.name if point.dist is not None else point.value


def _remedy(scheme: str, base: str) -> str:
    if base in _DISTRIBUTIONS:
        return f"pip install '{_DISTRIBUTIONS[base]}'"
    from difflib import get_close_matches
    from importlib.metadata import entry_points

    installed = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    known = sorted(installed | _DISTRIBUTIONS.keys())
    meant = _SYNONYMS.get(scheme) or _SYNONYMS.get(base)
    for near in [meant] if meant else get_close_matches(base, known, n=1, cutoff=0.75):
        missing = "" if near in installed else f" pip install '{_DISTRIBUTIONS[near]}' has it"
        return f"did you mean '{near}://'?{missing}"
    others = sorted(set(known) - installed)
    return f"installed are drivers for {', '.join(sorted(installed)) or 'none'}" + (
        f"; there are others for {', '.join(others)}" if others else ""
    )
