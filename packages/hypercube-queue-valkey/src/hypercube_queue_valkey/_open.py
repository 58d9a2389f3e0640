"""Opening a queue by URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glide_sync import (
    AdvancedGlideClientConfiguration,
    AdvancedGlideClusterClientConfiguration,
    BackoffStrategy,
    GlideClient,
    GlideClientConfiguration,
    GlideClusterClient,
    GlideClusterClientConfiguration,
    NodeAddress,
    ProtocolVersion,
    ServerCredentials,
    TlsAdvancedConfiguration,
)

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import QueueURL, safe_repr
from hypercube_queue_lua import Options, addresses
from hypercube_queue_valkey._clients import AnyClient
from hypercube_queue_valkey._queue import ValkeyQueue

_PORT = 6379
#: A lost connection is tried again soon, and at least twice a second.
_RECONNECT = BackoffStrategy(num_of_retries=3, factor=50, exponent_base=2)
_PROTOCOLS = {"2": ProtocolVersion.RESP2, "3": ProtocolVersion.RESP3}


def from_url(url: str) -> ValkeyQueue:
    """The queue that a URL names; nothing is contacted before the first call.

    `valkey://host:6379/0` is one server and the number of a database, `valkey+cluster://host` a
    cluster by one of its nodes. `valkeys` for each of them is the same over TLS.

    Options: `prefix`, `protocol` (2 or 3), `also` (further nodes of the cluster, or the replicas
    of the server, `host:port` with commas between), `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`
    (with TLS), and in seconds `poll_timeout`, `visibility_timeout` and `operation_timeout`.
    """
    parts = QueueURL(url)
    base, _, how = parts.scheme.partition("+")
    if base not in ("valkey", "valkeys") or how not in ("", "cluster"):
        raise InvalidArgument(
            f"the scheme is {safe_repr(parts.scheme)}; it takes valkey, valkey+cluster, and the "
            "same "
            "with valkeys"
        )
    if "@" in parts.path:
        # Not shown: it is the rest of the password.
        raise InvalidArgument(f"the {parts.scheme} URL has a '/' in its password; write it as %2F")
    options = Options.from_url(parts)
    cluster = how == "cluster"
    nodes = addresses(parts, _PORT)
    make = _maker(parts, options, nodes, tls=base == "valkeys", cluster=cluster)
    parts.options.refuse_unknown()
    has_choice = len(nodes) > 1 and not cluster
    return ValkeyQueue._opened(make, repr(parts), options, cluster=cluster, has_choice=has_choice)


def _maker(
    parts: QueueURL,
    options: Options,
    nodes: list[tuple[str, int]],
    *,
    tls: bool,
    cluster: bool,
) -> Callable[[Sequence[NodeAddress]], AnyClient]:
    """What gives clients that have not connected yet, and know these addresses, too."""
    database = parts.path.strip("/") or "0"
    if not (database.isascii() and database.isdecimal()) or (cluster and int(database)):
        number = "only 0" if cluster else "a number"
        raise InvalidArgument(
            f"the URL names the database {safe_repr(database)}; it takes {number}"
        )
    protocol = _PROTOCOLS[parts.options.choice("protocol", "3", ("2", "3"))]
    files = {name: parts.options.text(option, None) for option, name in _TLS_FILES.items() if tls}
    # Reaching a server is a connect and a reply, one after the other.
    milliseconds = max(1, int(options.operation_timeout.total_seconds() * 500))

    def configuration(known: Sequence[NodeAddress]) -> dict[str, Any]:
        return {
            "addresses": [*(NodeAddress(host, port) for host, port in nodes), *known],
            "use_tls": tls,
            "credentials": _credentials(parts),
            "protocol": protocol,
            "reconnect_strategy": _RECONNECT,
            "lazy_connect": True,
        }

    def advanced() -> dict[str, Any]:
        return {"connection_timeout": milliseconds, "tls_config": _tls(files) if tls else None}

    def make_one(known: Sequence[NodeAddress]) -> AnyClient:
        return GlideClient.create(
            GlideClientConfiguration(
                **configuration(known),
                database_id=int(database),
                advanced_config=AdvancedGlideClientConfiguration(**advanced()),
            )
        )

    def make_cluster(known: Sequence[NodeAddress]) -> AnyClient:
        return GlideClusterClient.create(
            GlideClusterClientConfiguration(
                **configuration(known),
                advanced_config=AdvancedGlideClusterClientConfiguration(**advanced()),
            )
        )

    return make_cluster if cluster else make_one


_TLS_FILES = {
    "ssl_ca_certs": "root_pem_cacerts",
    "ssl_certfile": "client_cert_path",
    "ssl_keyfile": "client_key_path",
}


def _tls(files: dict[str, str | None]) -> TlsAdvancedConfiguration:
    given: dict[str, Any] = {name: value for name, value in files.items() if value is not None}
    if "root_pem_cacerts" in given:
        given["root_pem_cacerts"] = Path(given["root_pem_cacerts"]).read_bytes()
    return TlsAdvancedConfiguration(**given)


def _credentials(parts: QueueURL) -> ServerCredentials | None:
    if not parts.password:
        return None
    return ServerCredentials(password=parts.password, username=parts.username or None)
