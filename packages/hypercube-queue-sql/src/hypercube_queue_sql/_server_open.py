"""Opening a queue on a database server by URL."""

from __future__ import annotations

import math
from datetime import timedelta

from sqlalchemy import URL, Engine, create_engine

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import QueueURL, checked_visibility, safe_repr
from hypercube_queue_sql._dialects import client_for
from hypercube_queue_sql._queue import SQLQueue
from hypercube_queue_sql._server_connections import CONNECTIONS
from hypercube_queue_sql._tables import DEFAULT_TABLE

#: The client library for each scheme, and for the longer ones that name it.
_CLIENTS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
#: Of a host that is named without one.
_POSTGRESQL_PORT = 5432
#: SQLAlchemy's dialects where they have another name: "mariadb" refuses a server that is MySQL,
#: and "mysql" takes both.
_DIALECTS = {"mariadb": "mysql"}


def from_url(url: str) -> SQLQueue:
    """The queue that a `postgresql:`, `mysql:` or `mariadb:` URL names; contacts nobody.

    `postgresql://user:password@host:5432/database`, with more hosts behind commas as libpq has it;
    `postgresql+psycopg:` and the like are the same. Options: `table`, `schema`, `create_tables`
    (false), and in seconds `poll_timeout`, `visibility_timeout` and `operation_timeout`; on
    PostgreSQL `prepared_statements` (true), too. All that the client library knows in a URL is
    passed on to it.
    """
    parts = QueueURL(url, several_hosts=_names_several_hosts(url))
    backend, _, library = parts.scheme.partition("+")
    if backend not in _CLIENTS or library not in ("", _CLIENTS[backend]):
        raise InvalidArgument(
            f"the scheme is {safe_repr(parts.scheme)}; it takes "
            f"{', '.join(f'{name} or {name}+{client}' for name, client in _CLIENTS.items())}, "
            "and AsyncQueue makes the queue asynchronous"
        )
    options = parts.options
    table = options.text("table", DEFAULT_TABLE)
    schema = options.text("schema", None)
    create_tables = options.flag("create_tables", False)
    poll_timeout = options.duration("poll_timeout", timedelta(seconds=1))
    visibility_timeout = options.duration("visibility_timeout", timedelta(seconds=30))
    operation_timeout = options.duration("operation_timeout", timedelta(seconds=30))
    client = client_for(backend)
    own = client.connect_options(options)
    rest = {name: options.text(name, "") for name in sorted(client.PARAMETERS)}
    options.refuse_unknown()
    checked_visibility(operation_timeout, field="operation_timeout")
    client.check_parameters(rest)
    several = len(parts.addresses(0)) > 1
    if several and "host" not in client.PARAMETERS:
        raise InvalidArgument(
            f"the {backend} URL names several hosts, and {_CLIENTS[backend]} takes one: use a name "
            "or a proxy that leads to the server in charge"
        )
    if parts.hostname is not None and (rest.get("host") or rest.get("port")):
        raise InvalidArgument(
            f"the {backend} URL names a host before the database and as an option; write one of "
            "both"
        )
    if several:
        rest |= _hosts(parts)
    database = URL.create(
        f"{_DIALECTS.get(backend, backend)}+{_CLIENTS[backend]}",
        username=parts.username,
        password=parts.password,
        host=None if several else parts.hostname,
        port=None if several else parts.port,
        database=parts.path.removeprefix("/") or None,
        query={name: value for name, value in rest.items() if value},
    )
    seconds = operation_timeout.total_seconds() / max(1, len(rest.get("host", "").split(",")))
    arguments = client.connect_arguments(math.ceil(seconds))
    return SQLQueue(
        _engine(database, {**arguments, **own}),
        table=table,
        schema=schema,
        create_tables=create_tables,
        poll_timeout=poll_timeout,
        visibility_timeout=visibility_timeout,
        operation_timeout=operation_timeout,
        _owned=True,
    )


def _names_several_hosts(url: str) -> bool:
    authority = url.partition("://")[2].partition("?")[0].partition("/")[0]
    return "," in authority.rpartition("@")[2]


def _hosts(parts: QueueURL) -> dict[str, str]:
    """Hosts and ports as libpq has them beside each other."""
    hosts, ports = zip(*parts.addresses(_POSTGRESQL_PORT), strict=True)
    return {"host": ",".join(hosts), "port": ",".join(map(str, ports))}


def _engine(database: URL, arguments: dict[str, object]) -> Engine:
    return create_engine(
        database,
        # The queue itself sees to it that there are no more, by each call's own time limit.
        pool_size=CONNECTIONS,
        max_overflow=-1,
        # Calls leave nothing open, and undoing nothing would cost a round trip each time.
        pool_reset_on_return=None,
        # The URL's own word counts more.
        connect_args={
            name: value for name, value in arguments.items() if name not in database.query
        },
    )
