"""Servers as containers, by testcontainers; found again by their ids and labels."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

# It would pull an image of its own, and what it does is done here, after a crash too.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

import docker  # type: ignore[import-untyped]  # it ships no types
import docker.constants  # type: ignore[import-untyped]
import docker.errors  # type: ignore[import-untyped]
import docker.transport  # type: ignore[import-untyped]
import requests.exceptions
from testcontainers.core.container import DockerContainer
from tools.backends.kind import Kind, Unavailable
from tools.backends.run import Run

#: Labels of each container: the folder of its run, and the machine that can see the folder.
_RUN = "hypercube.tests.run"
_MACHINE = "hypercube.tests.machine"
#: What is in it, for people who look.
_SERVER = "hypercube.tests.server"

#: Nothing of a run that the machine forgot is needed after this time.
_OLD = timedelta(days=1)

#: Seconds in which the engine must answer, or say something new of what it pulls.
_PATIENCE = 60

_REFUSALS = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)


class PortTaken(Exception):
    """Somebody else was faster."""


class Container:
    """One server, by the id of its container, from any process of the run."""

    def __init__(self, identity: str, stop_command: str = "") -> None:
        self.identity = identity
        self._stop_command = stop_command

    def start(self) -> None:
        with self._found() as found:
            found.start()

    def running(self) -> bool:
        with self._found() as found:
            return str(found.status) in ("running", "paused")

    def stop(self) -> None:
        """End it in good order."""
        self.resume()
        with self._found() as found:
            if self._stop_command and found.status == "running":
                found.exec_run(self._stop_command)
                found.wait(timeout=_PATIENCE)
            else:
                found.stop(timeout=_PATIENCE // 2)

    def kill(self) -> None:
        """End it without warning."""
        with self._found() as found:
            if found.status == "paused":  # older engines do not kill these
                found.unpause()
            if found.status != "exited":
                found.kill("SIGKILL")
                found.wait(timeout=_PATIENCE)

    def pause(self) -> None:
        """It keeps its connections and says nothing."""
        with self._found() as found:
            if found.status == "running":
                found.pause()

    def resume(self) -> None:
        with self._found() as found:
            if found.status == "paused":
                found.unpause()

    def log(self) -> str:
        """The end of what it said."""
        with self._found() as found:
            text = found.logs(tail=6).decode(errors="replace")
        return " / ".join(line.strip() for line in text.splitlines())[-1_000:]

    @contextlib.contextmanager
    def _found(self) -> Iterator[Any]:
        with _engine() as engine:
            yield engine.containers.get(self.identity)


def check(image: str) -> None:
    """Raises Unavailable unless an engine answers and the image is there, or can be pulled."""
    problem = _engine_problem()
    if problem is not None:
        raise Unavailable(problem)
    try:
        with _engine() as engine:
            try:
                engine.images.get(image)
            except docker.errors.ImageNotFound:
                repository, _, tag = image.partition(":")
                # Piece by piece, so that the time limit is for silence and not for the whole.
                for piece in engine.api.pull(repository, tag or "latest", stream=True, decode=True):
                    if "error" in piece:
                        raise Unavailable(
                            f"image {image} cannot be pulled: {piece['error']}"
                        ) from None
    except _REFUSALS as error:
        raise Unavailable(f"image {image} cannot be pulled: {error}") from error


def launch(
    kind: Kind, image: str, run: Run, *, label: str, port: int, within: Container | None
) -> tuple[str, int, Container]:
    """Start a container; does not wait for the server to answer. Its host, port, and itself.

    `within` another one, it shares that one's network and listens on `port` itself.
    """
    (run.folder / "containers").touch()
    container = DockerContainer(image).with_envs(**kind.environment)
    options: dict[str, Any] = {"labels": {**_labels(run), _SERVER: label}}
    if within is None:
        container.with_bind_ports(kind.port, port)
        container.with_command(kind.arguments(kind.port))
    else:
        options |= {"network": None, "network_mode": f"container:{within.identity}"}
        container.with_command(kind.arguments(port))
    _start(container.with_kwargs(**options))
    launched = Container(str(container.get_wrapped_container().id))
    try:
        if within is not None:
            return "127.0.0.1", port, launched
        return (*_address(container, kind.port, port), launched)
    finally:
        container.get_docker_client().client.close()


def launch_network(image: str, run: Run, ports: Sequence[int]) -> Container:
    """A container that does nothing, in whose network others live and die.

    Its ports are the same within and without, so that a member has one address for all.
    """
    (run.folder / "containers").touch()
    container = DockerContainer(image)
    for port in ports:
        container.with_bind_ports(port, port)
    idle = {"labels": _labels(run), "entrypoint": ["sleep", "infinity"]}
    _start(container.with_kwargs(**idle))
    container.get_docker_client().client.close()
    return Container(str(container.get_wrapped_container().id))


def remove_of_run(run: Run) -> None:
    """Remove every container of a run, with its data."""
    _remove(lambda labels, _age: labels[_RUN] == str(run.folder))


def sweep(token: str) -> None:
    """Remove what runs left behind whose folder is gone from this machine."""

    def left(labels: Mapping[str, str], age: timedelta) -> bool:
        gone = labels.get(_MACHINE) == token and not Path(labels[_RUN]).exists()
        return gone or age > _OLD

    _remove(left)


def _labels(run: Run) -> dict[str, str]:
    return {_RUN: str(run.folder), _MACHINE: run.token}


def _remove(which: Callable[[Mapping[str, str], timedelta], bool]) -> None:
    with _engine() as engine:
        now = datetime.now(UTC)
        # Raw, because what another run removes meanwhile must not matter.
        found = engine.api.containers(all=True, filters={"label": _RUN})
        ids = [
            each["Id"]
            for each in found
            if which(each["Labels"], now - datetime.fromtimestamp(each["Created"], UTC))
        ]

        def remove(identity: str) -> None:
            with contextlib.suppress(docker.errors.NotFound, docker.errors.APIError):
                engine.api.remove_container(identity, v=True, force=True)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(remove, ids))


def _start(container: DockerContainer) -> None:
    try:
        container.start()
    except _REFUSALS as error:
        with contextlib.suppress(*_REFUSALS):
            container.stop()
        text = str(error)
        if "already allocated" in text or "already in use" in text:
            raise PortTaken(text) from error
        raise Unavailable(f"the engine does not start {container.image}: {text}") from error


def _address(container: DockerContainer, inner: int, port: int) -> tuple[str, int]:
    """The loopback where it leads there, because a container's network may be out of reach."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return container.get_container_host_ip(), int(container.get_exposed_port(inner))
    return "127.0.0.1", port


def _engine() -> contextlib.closing[Any]:
    return _client(_api_version())


def _client(version: str) -> contextlib.closing[Any]:
    """A client that is closed at the end of its block; with a version given, it asks nothing."""
    return contextlib.closing(docker.from_env(version=version, timeout=_PATIENCE))


@functools.cache
def _api_version() -> str:
    """The version that the engine speaks; raises one of _REFUSALS if no engine answers.

    A client that finds it out for itself is lost unclosed where no engine answers.
    """
    with _client(docker.constants.DEFAULT_DOCKER_API_VERSION) as engine:
        adapter = engine.api.get_adapter(engine.api.base_url)
        if isinstance(adapter, docker.transport.UnixHTTPAdapter):
            # It leaves its own socket open where nobody listens.
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_PATIENCE)
                try:
                    connection.connect(adapter.socket_path)
                except OSError as error:
                    raise docker.errors.DockerException(
                        f"{adapter.socket_path}: {error.strerror or error}"
                    ) from error
        version = engine.version(api_version=False).get("ApiVersion")
    if not version:
        raise docker.errors.DockerException("what answers there names no version of its API")
    return str(version)


@functools.cache
def _engine_problem() -> str | None:
    """Why no container can be had; None if an engine answers."""
    try:
        with _engine() as engine:
            engine.ping()
    except _REFUSALS as error:
        return f"no Docker engine answers ({error})"
    return None
