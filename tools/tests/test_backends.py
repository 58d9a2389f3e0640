"""Where the servers of a run come from, and what a run does without one."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tools.backends import server
from tools.backends.environment import variable
from tools.backends.instance import Server
from tools.backends.kind import Address, NotReady
from tools.backends.kinds import KINDS
from tools.backends.redis import ask

import workspace

_NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}

_ONE_FOR_EACH = """
@pytest.mark.server("redis")
def test_with(): assert server("redis").port

def test_without(): pass
"""


def _needs(*names: str) -> Any:
    return pytest.mark.server(*names)


def test_a_run_that_needs_no_server_starts_and_imports_nothing(inner: Any) -> None:
    """The option to install is taken all the same, and the header says so."""
    done = inner(
        "def test_nothing(): assert not {'psutil', 'docker', 'testcontainers'} & set(sys.modules)",
        "--install-servers",
        servers=[],
        **_NO_ENGINE,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "servers: none needed" in done.stdout


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """Listens where an engine would."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "docker.sock"))
        yield listening


def _without_an_engine(inner: Any, socket_name: str) -> str:
    """What a run says of a server that only an engine could give, with warnings as errors."""
    where = f"unix://{inner.folder}/{socket_name}"
    test = "def test_it(): pass"
    done = inner(test, "-W", "error", servers=["redis@container"], DOCKER_HOST=where)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def test_a_missing_engine_leaves_no_connection_open(inner: Any) -> None:
    """Pytest fails a run in which one is left to the garbage collector."""
    output = _without_an_engine(inner, "missing.sock")

    assert f"no Docker engine answers ({inner.folder}/missing.sock: No such file" in output


def test_an_engine_that_has_ended_leaves_no_connection_open(
    inner: Any, listener: socket.socket
) -> None:
    """Its socket is still there, and nobody listens."""
    assert "docker.sock: Connection refused)" in _without_an_engine(inner, "docker.sock")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(b"", "Connection aborted", id="hangs-up"),
        pytest.param(b"500 Sorry\r\nContent-Length: 0\r\n\r\n", "500 Server Error", id="fails"),
        pytest.param(b"200 OK\r\nContent-Length: 2\r\n\r\n{}", "names no version", id="no-engine"),
        pytest.param(b"200 OK\r\nContent-Length: 9\r\n\r\n{", "Connection broken", id="half"),
    ],
)
def test_an_engine_that_fails_leaves_no_connection_open(
    inner: Any, listener: socket.socket, answer: bytes, said: str
) -> None:
    def serve() -> None:
        with suppress(OSError):  # it is shut down at the end
            while True:
                connection, _ = listener.accept()
                with connection:
                    if connection.recv(4096) and answer:
                        connection.sendall(b"HTTP/1.1 " + answer)

    listener.listen()
    engine = threading.Thread(target=serve)
    engine.start()
    try:
        output = _without_an_engine(inner, "docker.sock")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        engine.join()

    assert re.search(rf"no Docker engine answers \(.*{said}", output), output


@pytest.mark.parametrize(
    ("way", "source"),
    [
        pytest.param("container", "container redis:", marks=_needs("redis@container")),
        pytest.param("binary", "binary /", marks=_needs("redis@binary")),
        pytest.param("apt", "binary /", marks=_needs("redis@apt")),
    ],
)
def test_each_way_gives_a_real_server(way: str, source: str) -> None:
    """It answers, and says the version that the header shows."""
    place = server(f"redis@{way}")

    assert place.source.startswith(source)
    assert f"redis_version:{place.version}\r\n" in ask(place, "INFO", "server")
    assert place.description == f"{place.source}, Redis {place.version}"


@_needs("redis")
def test_an_address_from_the_environment_comes_first(inner: Any) -> None:
    """Whatever else there is; what is in that server shows that it is the very one."""
    place = server("redis")
    ask(place, "SET", "mark", "left by the outer run")
    done = inner(
        "from tools.backends.redis import ask\n"
        "def test_same(): assert 'left by' in ask(server('redis'), 'GET', 'mark')",
        servers=["redis"],
        HYPERCUBE_TEST_REDIS_URL=place.url("redis"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"redis: url, Redis {place.version}" in done.stdout


@_needs("redis@container")
def test_a_container_comes_before_a_program(inner: Any) -> None:
    done = inner(_ONE_FOR_EACH, servers=["redis"])

    assert done.returncode == 0, done.stdout + done.stderr
    assert "redis: container redis:8, Redis 8." in done.stdout


@_needs("redis@binary")
def test_a_program_comes_where_no_engine_answers(inner: Any) -> None:
    done = inner(_ONE_FOR_EACH, servers=["redis"], **_NO_ENGINE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"redis: {server('redis@binary').source}, Redis" in done.stdout


@_needs("redis@binary", "redis@container")
def test_an_image_that_cannot_be_had_is_passed_over(inner: Any) -> None:
    """The image is the one that the environment names; the run does not wait for minutes."""
    image = "localhost:9/no/such:image"
    done = inner(_ONE_FOR_EACH, servers=["redis"], HYPERCUBE_TEST_REDIS_IMAGE=image)

    assert f"redis: {server('redis@binary').source}, Redis" in done.stdout


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("url", "HYPERCUBE_TEST_REDIS_URL is not set"),
        ("container", "no Docker engine answers"),
        ("binary", "no redis-server on this machine"),
        ("apt", "--install-servers is not given"),
    ],
)
def test_a_forced_way_is_the_only_one(inner: Any, way: str, reason: str) -> None:
    """Here each of them leads nowhere, and none of the others is tried."""
    done = inner(
        _ONE_FOR_EACH, servers=["redis"], HYPERCUBE_TEST_FROM=way, PATH="/nowhere", **_NO_ENGINE
    )

    [header] = [line for line in done.stdout.splitlines() if line.startswith("redis: LEFT OUT")]
    assert reason in header
    assert ";" not in header


def test_a_test_without_its_server_is_left_out_in_plain_sight(inner: Any) -> None:
    """The header says so; the end counts them, with reason and remedy; the others run."""
    done = inner(_ONE_FOR_EACH, servers=["redis"], HYPERCUBE_TEST_FROM="url")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "redis: LEFT OUT, HYPERCUBE_TEST_REDIS_URL is not set" in done.stdout
    assert "1 passed, 1 deselected" in done.stdout
    _, _, summary = done.stdout.partition("servers left out")
    assert "redis: 1 test left out" in summary
    assert "why: HYPERCUBE_TEST_REDIS_URL is not set" in summary
    assert "remedy: set HYPERCUBE_TEST_REDIS_URL to a server" in summary


def test_processes_of_xdist_leave_out_the_same(inner: Any) -> None:
    """Once, however many they are."""
    done = inner(_ONE_FOR_EACH, "-n", "2", servers=["redis"], HYPERCUBE_TEST_FROM="url")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "redis: 1 test left out" in done.stdout


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_a_whole_suite_of_conformance_may_be_left_out(
    inner: Any, processes: tuple[str, ...]
) -> None:
    """Its referee, who lets no test be taken away, has never heard of the driver."""
    done = inner(
        """
from hypercube_queue import Guarantees
from hypercube_queue_conformance import Harness, QueueConformance, Unavailable

class Memory(Harness):
    guarantees = Guarantees(durable=False, shared=False)
    capabilities = frozenset()
    open = restart = opener = url = borrow = Unavailable("no test of this suite runs")
    open_unreachable = open_silenceable = open_misconfigured = insert_unreadable = open

@pytest.mark.server("redis")
class TestMemory(QueueConformance):
    harness = Memory

def test_without(): pass
""",
        *processes,
        servers=["redis"],
        HYPERCUBE_TEST_FROM="url",
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert re.search(r"redis: \d\d+ tests left out", done.stdout)


def test_a_run_whose_tests_are_all_left_out_passes(inner: Any) -> None:
    """Pytest itself would call it a mistake."""
    done = inner(
        _ONE_FOR_EACH, "-k", "test_with and not out", servers=["redis"], HYPERCUBE_TEST_FROM="url"
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "redis: 1 test left out" in done.stdout


@pytest.mark.parametrize(
    ("required", "code"), [("all", 1), ("postgres, redis", 1), ("postgres", 0), ("redsi", 4)]
)
def test_a_missing_server_that_is_required_fails_the_run(
    inner: Any, required: str, code: int
) -> None:
    """Even where no test fails; a name that does not exist is a mistake."""
    done = inner(
        _ONE_FOR_EACH, servers=["redis"], HYPERCUBE_TEST_FROM="url", HYPERCUBE_TEST_REQUIRE=required
    )

    assert done.returncode == code, done.stdout + done.stderr
    assert ("FAILED: HYPERCUBE_TEST_REQUIRE asks for redis" in done.stdout) == (code == 1)
    assert ("HYPERCUBE_TEST_REQUIRE names redsi" in done.stderr) == (code == 4)


def test_an_address_that_leads_nowhere_is_not_passed_over(inner: Any) -> None:
    """Who names a server means it and no other."""
    done = inner(_ONE_FOR_EACH, servers=["moto"], HYPERCUBE_TEST_MOTO_URL="http://127.0.0.1:9/")

    assert "moto: LEFT OUT, moto at 127.0.0.1:9 does not answer" in done.stdout
    assert "127.0.0.1:9" in done.stdout


@pytest.mark.parametrize(
    ("servers", "tests", "text"),
    [
        (["radish"], "def test_it(): pass", "no server is called 'radish'"),
        (["redis@home"], "def test_it(): pass", "no server is called 'redis@home'"),
        ([], _ONE_FOR_EACH, "test_with needs redis, which no conftest"),
    ],
)
def test_a_server_that_nobody_knows_is_a_mistake(
    inner: Any, servers: list[str], tests: str, text: str
) -> None:
    done = inner(tests, servers=servers)

    assert done.returncode == 4, done.stdout + done.stderr
    assert text in done.stderr


def test_asking_for_a_server_that_is_not_there_says_why(inner: Any) -> None:
    """Missing, not named by the conftest, and no run at all."""
    done = inner(
        """
def test_asking():
    with pytest.raises(Exception, match="redis is left out of this run: HYPERCUBE_TEST_REDIS_URL"):
        server("redis")
    with pytest.raises(Exception, match="no conftest of this run names 'mysql'"):
        server("mysql")
    del os.environ["HYPERCUBE_TEST_RUN"]
    with pytest.raises(Exception, match="load the plugin"):
        server("redis")
""",
        servers=["redis"],
        HYPERCUBE_TEST_FROM="url",
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_collecting_only_starts_nothing(inner: Any) -> None:
    """It lists what needs a server, too."""
    done = inner(_ONE_FOR_EACH, "--collect-only", "-q", servers=["redis"], **_NO_ENGINE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_inner.py::test_with" in done.stdout


def test_a_url_carries_any_credentials() -> None:
    """Quoted, and only those that there are; a repr shows no password."""
    place = Server(
        name="postgres",
        host="::1",
        port=5,
        username="a b",
        password="p/w@x",
        database="jobs",
    )

    assert place.url("postgresql+psycopg") == "postgresql+psycopg://a%20b:p%2Fw%40x@[::1]:5/jobs"
    assert place.url("pg", "", a=1) == "pg://a%20b:p%2Fw%40x@[::1]:5/?a=1"
    assert Server(name="redis", host="h", port=5).url("redis", "0") == "redis://h:5/0"
    assert "p/w@x" not in repr(place)
    assert Server.from_json(place.to_json()) == place


def test_variables_have_names_that_a_shell_takes() -> None:
    assert variable("rabbitmq-4.0", "URL") == "HYPERCUBE_TEST_RABBITMQ_4_0_URL"
    assert len({variable(name, "URL") for name in KINDS}) == len(KINDS)


@pytest.mark.parametrize("name", ["redis", "rabbitmq", "moto"])
def test_an_open_port_is_not_yet_a_server(name: str) -> None:
    """Each kind is asked in its own language; an engine's proxy takes every connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises((OSError, NotReady)):
            KINDS[name].probe(Address(host="127.0.0.1", port=listener.getsockname()[1]))
        thread.join()


def test_a_test_that_is_left_out_may_need_a_server_that_is_not_named(inner: Any) -> None:
    """A conftest that leaves it out of most runs does not ask for its servers there."""
    inner.write(_ONE_FOR_EACH, [])
    (inner.folder / "conftest.py").write_text(
        """
def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if item.get_closest_marker("server")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
"""
    )
    for arguments in ([], ["-n", "1"]):
        done = subprocess.run(
            inner.command(*arguments),
            cwd=workspace.ROOT,
            env=inner.environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed" in done.stdout
