"""Opening a queue by URL."""

from __future__ import annotations

import ssl

from pika import (  # type: ignore[import-untyped]  # pika ships no types
    ConnectionParameters,
    PlainCredentials,
    SSLOptions,
)

from hypercube_queue import InvalidArgument
from hypercube_queue.driver import QueueURL, safe_repr
from hypercube_queue_rabbitmq._options import Options
from hypercube_queue_rabbitmq._queue import RabbitMQQueue

_PORTS = {"amqp": 5672, "amqps": 5671}
#: A broker's own default user, whom it lets in from its own machine only.
_GUEST = "guest"


def from_url(url: str) -> RabbitMQQueue:
    """The queue that an `amqp:` or `amqps:` URL names; nothing is contacted before the first call.

    `amqp://user:password@host:5672/vhost`; without a vhost it is "/", which is written %2F
    where it stands for itself. Of several hosts, `one:5672,two`, one at random is connected to,
    and the next that answers whenever a connection was lost or given up. Options: `queue_type`
    (quorum or classic), `declare` (true), `prefix`, `heartbeat` (seconds), `ssl_ca_certs`,
    `ssl_certfile`, `ssl_keyfile`, `ssl_check_hostname` (with TLS), and in seconds `max_hold`,
    `poll_timeout`, `visibility_timeout` and `operation_timeout`.
    """
    parts = QueueURL(url, several_hosts=True)
    if parts.scheme not in _PORTS:
        raise InvalidArgument(
            f"the scheme is {safe_repr(parts.scheme)}; it takes {' or '.join(_PORTS)}"
        )
    options = Options.from_url(parts)
    heartbeat = parts.options.integer("heartbeat", None)
    if heartbeat is not None and heartbeat < 0:
        raise InvalidArgument(f"option 'heartbeat' is {heartbeat}; it cannot be negative")
    context = _tls(parts) if parts.scheme == "amqps" else None
    parts.options.refuse_unknown()
    places = [
        ConnectionParameters(
            host=host,
            port=port,
            virtual_host=parts.path.removeprefix("/") or "/",
            credentials=PlainCredentials(parts.username or _GUEST, parts.password or _GUEST),
            heartbeat=heartbeat,
            ssl_options=None if context is None else SSLOptions(context, host),
        )
        for host, port in parts.addresses(_PORTS[parts.scheme])
    ]
    return RabbitMQQueue(
        places,
        queue_type=options.queue_type,
        declare=options.declare,
        prefix=options.prefix,
        max_hold=options.max_hold,
        poll_timeout=options.poll_timeout,
        visibility_timeout=options.visibility_timeout,
        operation_timeout=options.operation_timeout,
    )


def _tls(parts: QueueURL) -> ssl.SSLContext:
    options = parts.options
    authorities = options.text("ssl_ca_certs", None)
    certificate = options.text("ssl_certfile", None)
    key = options.text("ssl_keyfile", None)
    check_hostname = options.flag("ssl_check_hostname", True)
    if key is not None and certificate is None:
        raise InvalidArgument(
            "ssl_keyfile is given without ssl_certfile; the key is that of a certificate"
        )
    try:
        context = ssl.create_default_context(cafile=authorities)
        # Some systems' OpenSSL still allows older versions by default.
        context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(
            f"the files named by ssl_ca_certs, ssl_certfile and ssl_keyfile cannot be used: {error}"
        ) from error
    context.check_hostname = check_hostname
    return context
