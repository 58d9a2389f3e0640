"""Servers that a test breaks, and the relay in front of one."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tools.backends import exclusive, server
from tools.backends.instance import ExclusiveServer, FaultImpossible
from tools.backends.processes import Process
from tools.backends.redis import ask
from tools.backends.relay import Relay

_WAYS = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.server(name))
        for name in ("redis@container", "redis@binary")
    ],
)

#: Seconds of silence that are taken for silence.
_SILENCE = 0.5


@_WAYS
def test_an_exclusive_server_is_a_second_one(name: str) -> None:
    """From the same source, at another address."""
    shared = server(name)
    with exclusive(name) as place:
        assert (place.source, place.version) == (shared.source, shared.version)
        assert place.port != shared.port


@_WAYS
def test_what_was_stored_survives_a_kill_at_the_same_address(name: str) -> None:
    with exclusive(name) as place:
        ask(place, "SET", "kept", "before the kill")
        place.kill()
        with pytest.raises(OSError, match=r"refused|reset|closed"):
            ask(place, "PING")
        place.start()

        assert ask(place, "GET", "kept").strip() == "before the kill"
        place.restart()
        assert ask(place, "GET", "kept").strip() == "before the kill"


@_WAYS
def test_a_paused_server_is_silent_until_it_goes_on(name: str) -> None:
    """It takes connections, as a machine does whose server hangs."""
    with (
        exclusive(name) as place,
        socket.create_connection((place.host, place.port)) as connection,
    ):
        place.pause()
        connection.settimeout(_SILENCE)
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(100)
        place.resume()
        connection.settimeout(30)

        assert connection.recv(100) == b"+PONG\r\n"


@_WAYS
def test_leaving_makes_it_work_again(name: str) -> None:
    """However it was left; the next one need not know."""
    for leave in (ExclusiveServer.kill, ExclusiveServer.stop, ExclusiveServer.pause):
        with exclusive(name) as place:
            leave(place)

        assert ask(place, "PING") == "PONG"


@pytest.mark.server("redis-cluster@binary")
def test_one_node_of_a_cluster_can_be_killed(until: Callable[..., None]) -> None:
    """The others notice, and all is well once it is back."""
    with exclusive("redis-cluster@binary") as place:
        first, second, _ = place.nodes
        assert sum(ask(node, "CLUSTER", "KEYSLOT", "x").isdigit() for node in place.nodes) == 3
        first.kill()
        until(lambda: "cluster_state:fail" in ask(second, "CLUSTER", "INFO"))
        place.start()

        assert "cluster_state:ok" in ask(first, "CLUSTER", "INFO")


@pytest.mark.server("redis")
def test_a_server_that_was_given_can_only_be_cut_off(inner: Any) -> None:
    """The text says what is left."""
    done = inner(
        """
def test_faults():
    with exclusive("redis") as place:
        for fault in (place.kill, place.stop, place.start, place.restart, place.pause):
            with pytest.raises(Exception, match="given by its address.*relay"):
                fault()
        from tools.backends.kind import Address
        from tools.backends.redis import ask
        with place.relay() as relay:
            assert ask(Address(host=relay.host, port=relay.port), "PING") == "PONG"
""",
        servers=["redis"],
        HYPERCUBE_TEST_REDIS_URL=server("redis").url("redis"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert issubclass(FaultImpossible, Exception)


@pytest.mark.server("redis@binary")
def test_one_test_at_a_time_has_it_over_all_processes(inner: Any) -> None:
    """And all of them get the same one."""
    done = inner(
        """
HERE = os.path.dirname(__file__)

@pytest.mark.parametrize("number", range(6))
def test_alone(number):
    with exclusive("redis@binary") as place:
        busy = os.open(f"{HERE}/busy", os.O_CREAT | os.O_EXCL)
        time.sleep(0.1)
        os.close(busy)
        os.unlink(f"{HERE}/busy")
        with open(f"{HERE}/ports", "a") as ports:
            print(place.port, os.getpid(), file=ports)
""",
        *("-n", "2"),
        servers=["redis@binary"],
    )

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (inner.folder / "ports").read_text().splitlines()]
    assert len(lines) == 6
    assert len({port for port, _ in lines}) == 1
    assert len({process for _, process in lines}) == 2


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that says what it hears."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            while data := connection.recv(4096):
                connection.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                taken.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()
    for each in (listener, *taken):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def _connect(relay: Relay) -> socket.socket:
    connection = socket.create_connection((relay.host, relay.port))
    connection.settimeout(10)
    return connection


def _answer(connection: socket.socket, said: bytes, patience: float = 10) -> bytes:
    connection.settimeout(patience)
    connection.sendall(said)
    return connection.recv(4096)


def _is_silent(connection: socket.socket, said: bytes = b"anybody?") -> bool:
    try:
        return _answer(connection, said, _SILENCE) is None
    except TimeoutError:
        return True


def test_a_relay_passes_everything_on(echo: tuple[str, int]) -> None:
    with Relay(*echo) as relay, _connect(relay) as connection:
        assert _answer(connection, b"hello") == b"hello"


def test_a_relay_that_is_cut_swallows_what_is_said(echo: tuple[str, int]) -> None:
    """No error, no end, no answer, for connections old and new; afterwards new ones work."""
    with Relay(*echo) as relay, _connect(relay) as old:
        assert _answer(old, b"before") == b"before"
        relay.cut()
        with _connect(relay) as new:
            assert _is_silent(old)
            assert _is_silent(new)
            relay.mend()

            assert _is_silent(old)  # something was lost on its way
            assert _is_silent(new)
        with _connect(relay) as newest:
            assert _answer(newest, b"after") == b"after"


def test_a_connection_that_lost_nothing_goes_on(echo: tuple[str, int]) -> None:
    """One that was idle, and one that was made while nobody answered."""
    with Relay(*echo) as relay, _connect(relay) as idle:
        assert _answer(idle, b"before") == b"before"
        relay.cut()
        with _connect(relay) as waiting:
            relay.mend()

            assert _answer(idle, b"after") == b"after"
            assert _answer(waiting, b"at last") == b"at last"


def test_a_dropped_connection_ends_at_once_and_new_ones_work(echo: tuple[str, int]) -> None:
    with Relay(*echo) as relay, _connect(relay) as connection:
        assert _answer(connection, b"before") == b"before"
        relay.drop()

        assert connection.recv(1) == b""
        with _connect(relay) as another:
            assert _answer(another, b"after") == b"after"


def test_the_server_learns_of_a_lost_client_only_when_the_cut_is_mended() -> None:
    """Till then it holds what that client held, such as locks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        with Relay(*listener.getsockname()) as relay:
            client = _connect(relay)
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(_SILENCE)
                relay.cut()
                client.close()
                with pytest.raises(TimeoutError):
                    accepted.recv(1)
                relay.mend()
                accepted.settimeout(10)

                assert accepted.recv(1) == b""


def test_a_relay_ends_its_connections_with_itself(echo: tuple[str, int]) -> None:
    with Relay(*echo) as relay:
        connection = _connect(relay)
        assert _answer(connection, b"before") == b"before"

    with connection:
        assert connection.recv(1) == b""
    with pytest.raises(OSError, match="refused"):
        _connect(relay)


def test_a_relay_to_nobody_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
    with Relay(*place) as relay, _connect(relay) as connection:
        assert connection.recv(1) == b""


def test_what_a_killed_server_takes_for_itself_is_out_of_its_way(tmp_path: Path) -> None:
    """Its process is known to the system until it is asked for, maybe by another process."""
    record = {
        "command": ["sleep", "60"],
        "environment": {},
        "user": None,
        "stop_signal": "SIGTERM",
        "lock_files": ["server.pid"],
        "pid": os.getpid(),
        "created": 0.0,  # so it is not this process
    }
    (tmp_path / "process.json").write_text(json.dumps(record))
    (tmp_path / "server.pid").write_text(str(os.getpid()))
    process = Process(tmp_path)
    process.start()
    try:
        assert process.running()
        assert not (tmp_path / "server.pid").exists()
    finally:
        process.kill()
