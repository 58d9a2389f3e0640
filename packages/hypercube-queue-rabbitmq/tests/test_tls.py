"""TLS, over a relay that speaks it for the broker."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme
from tools.backends import server

from hypercube_queue import BackendError, Message, open_queue

pytestmark = pytest.mark.server("rabbitmq")


class _Terminator:
    """Takes TLS connections and leads them to the broker without it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        place = server("rabbitmq")
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            try:
                client = self._context.wrap_socket(plain, server_side=True)
            except (OSError, ssl.SSLError):
                plain.close()
                continue
            broker = socket.create_connection((place.host, place.port))
            self._ends += [client, broker]
            for source, target in ((client, broker), (broker, client)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError, ssl.SSLError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The certificate of who vouches for the broker."""
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    made.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "server.pem")
    )
    return tmp_path / "ca.pem"


@pytest.fixture
def port(authority: Path) -> Iterator[int]:
    """Where the broker speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.with_name("server.pem"))
    terminator = _Terminator(context)
    yield terminator.port
    terminator.close()


def _url(host: str, port: int, **options: object) -> str:
    place = server("rabbitmq")
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"amqps://{place.username}:{quote(place.password, safe='')}@{host}:{port}/?{query}"


def test_a_queue_works_over_tls(authority: Path, port: int, prefix: str) -> None:
    """With the certificate of a private authority."""
    url = _url("localhost", port, ssl_ca_certs=authority, prefix=prefix)
    with open_queue(url) as queue:
        queue.push(*(Message("work", bytes(50_000)) for _ in range(20)))
        deliveries = queue.pop("work", 20)
        queue.ack(*deliveries)
        assert len(deliveries) == 20


def test_a_broker_that_nobody_vouches_for_is_refused(port: int) -> None:
    """Nothing is sent to it, the password least of all."""
    with (
        open_queue(_url("localhost", port)) as queue,
        pytest.raises(BackendError, match="certificate verify failed"),
    ):
        queue.pop("work")


def test_a_broker_of_another_name_is_refused_unless_told_otherwise(
    authority: Path, port: int, prefix: str
) -> None:
    """Whoever has the certificate of another host is not this one."""
    with (
        open_queue(_url("127.0.0.1", port, ssl_ca_certs=authority)) as queue,
        pytest.raises(BackendError, match=r"IP address mismatch|not valid for"),
    ):
        queue.pop("work")
    lenient = _url(
        "127.0.0.1", port, ssl_ca_certs=authority, ssl_check_hostname="false", prefix=prefix
    )
    with open_queue(lenient) as queue:
        queue.push(Message("work"))
