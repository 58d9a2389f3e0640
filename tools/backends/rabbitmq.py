"""RabbitMQ."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

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
    environment: ClassVar[Mapping[str, str]] = {
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
