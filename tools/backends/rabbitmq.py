"""RabbitMQ."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.backends.kind import (
    PASSWORD,
    PROBE_TIMEOUT,
    Address,
    Kind,
    NotReady,
    Runner,
    Site,
    Unavailable,
)

#: What nodes of a cluster show one another.
COOKIE = "tests"

#: The protocol that a client asks for: AMQP 0-9-1.
_PROTOCOL = b"AMQP\x00\x00\x09\x01"


class RabbitMQ(Kind):
    """The newest that the image or the machine has."""

    name = "rabbitmq"
    title = "RabbitMQ"
    image = "rabbitmq:4.3"
    port = 5672
    username = "hypercube"
    password = PASSWORD
    database = "/"
    environment: Mapping[str, str] = {
        "RABBITMQ_DEFAULT_USER": "hypercube",
        "RABBITMQ_DEFAULT_PASS": PASSWORD,
    }
    # Debian's own `rabbitmq-server` on the path changes the user and forgets the environment.
    programs = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
    packages = ("rabbitmq-server",)
    user = "rabbitmq"
    stop_command = "rabbitmqctl shutdown"

    def probe(self, address: Address) -> str:
        """The version in its greeting, which it sends once it has started."""
        place = (address.host, address.port)
        with socket.create_connection(place, PROBE_TIMEOUT) as connection:
            connection.sendall(_PROTOCOL)
            greeting = b""
            while not greeting.endswith(b"\xce"):
                received = connection.recv(65_536)
                if not received:
                    raise NotReady("it closed the connection")
                greeting += received
        _, _, found = greeting.partition(b"\x07versionS")
        return found[4 : 4 + int.from_bytes(found[:4], "big")].decode()

    def prepare(self, site: Site, run: Runner) -> None:
        del run
        if shutil.which("epmd") is None:
            raise Unavailable("Erlang's epmd is not on the path")
        (site.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{site.port}\n"
            f"default_user = {self.username}\ndefault_pass = {self.password}\n"
        )
        (site.folder / "plugins").write_text("[].\n")

    def command(self, site: Site) -> list[str | Path]:
        """With an epmd of its own: the one that Erlang starts would outlive it."""
        return ["sh", "-c", 'epmd -address 127.0.0.1 & exec "$1"', "sh", site.program]

    def process_environment(self, site: Site) -> dict[str, str]:
        return {
            "ERL_EPMD_PORT": str(site.port + 10_000),
            "RABBITMQ_CONFIG_FILE": str(site.folder / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(site.port + 10_001),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(site.folder / "plugins"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_LOG_BASE": str(site.folder),
            "RABBITMQ_MNESIA_BASE": str(site.folder / "mnesia"),
            "RABBITMQ_NODENAME": f"hypercube-{site.port}@localhost",
        }


class RabbitMQ40(RabbitMQ):
    """The oldest that the driver supports, where messages are counted in another way."""

    name = "rabbitmq-4.0"
    title = "RabbitMQ"
    image = "rabbitmq:4.0"


class _ClusterNode(RabbitMQ):
    """One of several nodes that share a host name, and so an epmd."""

    def __init__(self, index: int, ports: Sequence[int]) -> None:
        self._index = index
        self._ports = ports
        self.environment = {
            **RabbitMQ.environment,
            "RABBITMQ_NODENAME": node_name(ports[index]),
            "RABBITMQ_DIST_PORT": str(ports[index] + 10_000),
            "RABBITMQ_CONFIG_FILES": "/etc/rabbitmq/cluster.conf",
        }

    def arguments(self, port: int) -> list[str]:
        lines = [
            f"listeners.tcp.default = {port}",
            "management.tcp.ip = 127.0.0.1",
            "cluster_formation.peer_discovery_backend = classic_config",
            *(
                f"cluster_formation.classic_config.nodes.{number} = {node_name(each)}"
                for number, each in enumerate(self._ports, 1)
            ),
        ]
        # Any of them may be killed, and with it the epmd that it started: another takes its place.
        start = (
            'printf "%s" "$1" > /etc/rabbitmq/cluster.conf; '
            "cookie=/var/lib/rabbitmq/.erlang.cookie; rm -f $cookie; "
            'printf "%s" "$2" > $cookie; chown rabbitmq $cookie; chmod 400 $cookie; '
            "while :; do epmd; sleep 0.2; done 2>&- & exec docker-entrypoint.sh rabbitmq-server"
        )
        return ["sh", "-c", start, "sh", "\n".join([*lines, ""]), COOKIE]


class RabbitMQCluster(RabbitMQ):
    """Three nodes, each of which can be cut off from the others by `rabbitmqctl`."""

    name = "rabbitmq-cluster"
    title = "RabbitMQ cluster"
    size = 3
    remedy = "start a Docker engine: it is not made of plain processes"

    def find(self) -> None:
        """No program: its nodes would need an epmd that outlives them."""

    def member(self, index: int, ports: Sequence[int]) -> Kind:
        return _ClusterNode(index, ports)

    def probe_group(self, nodes: Sequence[Address]) -> None:
        """What one of them declares, all of them know."""
        first, *others = nodes
        with _channel(first) as channel:
            channel.exchange_declare("tools.backends", durable=True)
        for node in others:
            with _channel(node) as channel:
                channel.exchange_declare("tools.backends", passive=True)


def node_name(port: int) -> str:
    """The name of the node of a cluster that listens on this port."""
    return f"rabbit-{port}@localhost"


@contextlib.contextmanager
def _channel(address: Address) -> Iterator[Any]:
    import pika  # type: ignore[import-untyped]  # pika ships no types

    credentials = pika.PlainCredentials(address.username, address.password)
    parameters = pika.ConnectionParameters(
        address.host,
        address.port,
        address.database,
        credentials,
        socket_timeout=PROBE_TIMEOUT,
        stack_timeout=PROBE_TIMEOUT,
        blocked_connection_timeout=PROBE_TIMEOUT,
    )
    try:
        connection = pika.BlockingConnection(parameters)
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()
    except pika.exceptions.AMQPError as error:
        raise NotReady(repr(error)) from error
