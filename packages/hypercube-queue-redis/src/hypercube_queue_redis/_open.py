"""Opening a queue by URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import QueueURL, safe_repr
from hypercube_queue_lua import Options, addresses
from hypercube_queue_redis._nodes import ClusterNodes, Nodes, OneServer, pool_of
from hypercube_queue_redis._queue import RedisQueue
from hypercube_queue_redis._sentinels import Sentinels

_PORT = 6379
_SENTINEL_PORT = 26379
_CONNECT_PARTS = 3


def from_url(url: str) -> RedisQueue:
    """The queue that a URL names; nothing is contacted before the first call.

    `redis://host:6379/0` is one server and the number of a database, `redis+cluster://host` a
    cluster by one of its nodes, `redis+sentinel://host:26379/service` the primary that Sentinel
    knows under the name of the service. `rediss` for each of them is the same over TLS.

    Options: `prefix`, `protocol` (2 or 3), `also` (further nodes or Sentinels, `host:port` with
    commas between), `sentinel_username`, `sentinel_password`, `db` (with Sentinel),
    `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_check_hostname` (with TLS), and in
    seconds `poll_timeout`, `visibility_timeout` and `operation_timeout`.
    """
    parts = QueueURL(url)
    base, _, how = parts.scheme.partition("+")
    if base not in ("redis", "rediss") or how not in _WAYS:
        raise InvalidArgument(
            f"the scheme is {safe_repr(parts.scheme)}; it takes redis, redis+cluster, "
            "redis+sentinel, "
            "and the same with rediss"
        )
    if "@" in parts.path:
        # Not shown: it is the rest of the password.
        raise InvalidArgument(f"the {parts.scheme} URL has a '/' in its password; write it as %2F")
    options = Options.from_url(parts)
    settings = _settings(parts, options, tls=base == "rediss")
    make = _WAYS[how](parts, settings)
    parts.options.refuse_unknown()
    return RedisQueue._opened(make, repr(parts), options)


def _settings(parts: QueueURL, options: Options, *, tls: bool) -> dict[str, Any]:
    """What every connection is made with."""
    # Reaching a server is a connect, a handshake and a reply, one after the other.
    seconds = options.operation_timeout.total_seconds() / _CONNECT_PARTS
    settings: dict[str, Any] = {
        "username": parts.username or None,
        "password": parts.password or None,
        "protocol": int(parts.options.choice("protocol", "2", ("2", "3"))),
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
    }
    if tls:
        settings["ssl"] = True
        settings["ssl_check_hostname"] = parts.options.flag("ssl_check_hostname", True)
        for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
            if (value := parts.options.text(name, None)) is not None:
                settings[name] = value
    return settings


def _one_server(parts: QueueURL, settings: dict[str, Any]) -> Callable[[], Nodes]:
    db = _database(parts.path.strip("/") or "0")
    host, port = parts.hostname or "localhost", parts.port or _PORT
    return lambda: OneServer(Redis(host=host, port=port, db=db, **settings))


def _cluster(parts: QueueURL, settings: dict[str, Any]) -> Callable[[], Nodes]:
    if parts.path.strip("/") not in ("", "0"):
        raise InvalidArgument(
            f"the URL names the database {safe_repr(parts.path.strip('/'))}; a cluster has only 0"
        )
    nodes = addresses(parts, _PORT)

    return lambda: ClusterNodes(
        nodes, lambda address: pool_of(Redis(host=address[0], port=address[1], **settings))
    )


def _sentinel(parts: QueueURL, settings: dict[str, Any]) -> Callable[[], Nodes]:
    service = parts.path.strip("/")
    if not service:
        raise InvalidArgument(
            "a redis+sentinel URL ends with the name of the service: "
            "redis+sentinel://host:26379/mymaster"
        )
    sentinels = addresses(parts, _SENTINEL_PORT)
    db = _database(parts.options.text("db", "0"))
    own = {name: value for name, value in settings.items() if name not in ("username", "password")}
    own["username"] = parts.options.text("sentinel_username", None)
    own["password"] = parts.options.text("sentinel_password", None)
    # Together they may take as long as one of the steps that lead to a server.
    own["socket_timeout"] = settings["socket_timeout"] / (2 * len(sentinels))
    own["socket_connect_timeout"] = own["socket_timeout"]

    def make() -> Nodes:
        watching: Any = Sentinels(sentinels, sentinel_kwargs=own)
        return OneServer(watching.master_for(service, db=db, **settings))

    return make


_WAYS: dict[str, Callable[[QueueURL, dict[str, Any]], Callable[[], Nodes]]] = {
    "": _one_server,
    "cluster": _cluster,
    "sentinel": _sentinel,
}


def _database(text: str) -> int:
    if text.isascii() and text.isdecimal():
        return int(text)
    raise InvalidArgument(f"the URL names the database {safe_repr(text)}; it takes a number")
