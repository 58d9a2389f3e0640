"""The ways to get a server, and their order."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from tools.backends import installing, ports
from tools.backends.environment import WAYS, kind_of, variable, way_of
from tools.backends.instance import Server, control_of, wait_ready
from tools.backends.kind import Kind, Site, Unavailable
from tools.backends.kinds import KINDS
from tools.backends.processes import Process
from tools.backends.run import Run

#: Seconds for a server to answer that somebody else started.
_GIVEN_PATIENCE = 5.0


class _Way(Protocol):
    """Starts single servers, in one way."""

    @property
    def source(self) -> str: ...
    def network(self, numbers: Sequence[int]) -> Mapping[str, str]: ...
    def launch(
        self, kind: Kind, label: str, port: int, network: Mapping[str, str]
    ) -> tuple[str, int, Mapping[str, str]]: ...


class _Containers:
    """Starts containers of one image."""

    def __init__(self, run: Run, image: str) -> None:
        self._run = run
        self._image = image
        self.source = f"container {image}"

    def network(self, numbers: Sequence[int]) -> Mapping[str, str]:
        from tools.backends import containers

        return {"container": containers.launch_network(self._image, self._run, numbers).identity}

    def launch(
        self, kind: Kind, label: str, port: int, network: Mapping[str, str]
    ) -> tuple[str, int, Mapping[str, str]]:
        from tools.backends import containers

        within = containers.Container(network["container"]) if network else None
        host, port, made = containers.launch(
            kind, self._image, self._run, label=label, port=port, within=within
        )
        return host, port, {"container": made.identity, "stop": kind.stop_command}


class _Processes:
    """Starts plain processes of one program."""

    def __init__(self, run: Run, program: Path) -> None:
        self._run = run
        self._program = program
        self.source = f"binary {program}"

    def network(self, numbers: Sequence[int]) -> Mapping[str, str]:
        del numbers
        return {}

    def launch(
        self, kind: Kind, label: str, port: int, network: Mapping[str, str]
    ) -> tuple[str, int, Mapping[str, str]]:
        del network
        folder = self._run.folder_of(label)
        Process.launch(kind, Site(program=self._program, folder=folder, port=port))
        return "127.0.0.1", port, {"folder": str(folder)}


def provide_all(
    names: Sequence[str], run: Run, *, install: bool
) -> tuple[dict[str, Server], dict[str, str]]:
    """All these servers at once: those that can be had, and why the others cannot."""
    interrupted = threading.Event()

    def attempt(name: str) -> Server | str:
        try:
            return provide(name, run, install=install, interrupted=interrupted.is_set)
        except Unavailable as error:
            return str(error)

    got: dict[str, Server | str] = {}
    # What apt brings is there for those that look for a program.
    first = [name for name in names if way_of(name) == "apt"]
    for some in (first, [name for name in names if name not in first]):
        with ThreadPoolExecutor(16) as pool:
            try:
                got.update(zip(some, pool.map(attempt, some), strict=True))
            except BaseException:
                interrupted.set()
                raise
    found = {name: each for name, each in got.items() if isinstance(each, Server)}
    return found, {name: each for name, each in got.items() if isinstance(each, str)}


def provide(wanted: str, run: Run, *, install: bool, interrupted: Callable[[], bool]) -> Server:
    """A server in the first way that gives it; Unavailable with the reasons of all ways if none."""
    kind = kind_of(wanted)
    forced = way_of(wanted)
    reasons = []
    for way in [forced] if forced else WAYS:
        try:
            return _provide(kind, way, run, wanted, install=install, interrupted=interrupted)
        except Unavailable as error:
            reasons.append(str(error))
            if way == "url" and os.environ.get(variable(kind.name, "URL")):
                break  # who names a server means it and no other
    raise Unavailable("; ".join(reasons))


def provide_another(server: Server, run: Run, label: str) -> Server:
    """A second server like one of the run's: from the same image or program."""
    kind = KINDS[server.name]
    how, _, what = server.source.partition(" ")
    if how == "container":
        return _start(kind, _Containers(run, what), label, lambda: False)
    if how == "binary":
        return _start(kind, _Processes(run, Path(what)), label, lambda: False)
    return server


def remedy(wanted: str) -> str:
    """What to do where a server cannot be had."""
    kind, way = kind_of(wanted), way_of(wanted)
    image = os.environ.get(variable(kind.name, "IMAGE")) or kind.image
    remedies = {
        "container": f"start a Docker engine that has {image} or can pull it" if image else "",
        "binary": kind.remedy,
        "apt": kind.remedy,
        "url": f"set {variable(kind.name, 'URL')} to a server that tests may fill",
    }
    return remedies[way] if way else "; or ".join(dict.fromkeys(filter(None, remedies.values())))


def _provide(
    kind: Kind, way: str, run: Run, label: str, *, install: bool, interrupted: Callable[[], bool]
) -> Server:
    if way == "url":
        return _given(kind)
    if way == "container":
        try:
            from tools.backends import containers
        except ImportError as error:
            raise Unavailable(f"testcontainers is not installed ({error})") from error
        image = os.environ.get(variable(kind.name, "IMAGE")) or kind.image
        if not image:
            raise Unavailable("there is no image of it")
        containers.check(image)
        return _start(kind, _Containers(run, image), label, interrupted)
    if way == "binary":
        program = kind.find() or installing.cached(kind)
        if program is None:
            raise Unavailable(f"no {kind.programs[-1]} on this machine")
    elif not install:
        raise Unavailable("--install-servers is not given")
    else:
        program = installing.install(kind)
    return _start(kind, _Processes(run, program), label, interrupted)


def _given(kind: Kind) -> Server:
    name = variable(kind.name, "URL")
    text = os.environ.get(name)
    if not text:
        raise Unavailable(f"{name} is not set")
    url = urlsplit(text)
    server = Server(
        name=kind.name,
        host=url.hostname or "127.0.0.1",
        port=url.port or kind.port,
        username=unquote(url.username or ""),
        password=unquote(url.password or ""),
        database=unquote(url.path[1:]) or kind.database,
        service=kind.service,
        source="url",
    )
    return replace(server, version=wait_ready(kind, server, patience=_GIVEN_PATIENCE))


def _start(kind: Kind, way: _Way, label: str, interrupted: Callable[[], bool]) -> Server:
    """Start all that it consists of, and wait until it answers."""
    for attempt in range(5):
        try:
            return _start_at(kind, way, label, ports.free(kind.size), interrupted)
        except Unavailable as error:
            # A port that was free a moment ago.
            if attempt == 4 or not re.search("in use|already allocated", str(error), re.IGNORECASE):
                raise
    raise AssertionError


def _start_at(
    kind: Kind, way: _Way, label: str, numbers: Sequence[int], interrupted: Callable[[], bool]
) -> Server:
    network = way.network(numbers) if kind.size > 1 else {}

    def launch(index: int) -> Server:
        member = kind.member(index, numbers)
        name = label if kind.size == 1 else f"{label}-{index}"
        host, port, handle = way.launch(member, name, numbers[index], network)
        server = Server(
            name=member.name,
            host=host,
            port=port,
            username=member.username,
            password=member.password,
            database=member.database,
            service=member.service,
            source=way.source,
            handle=handle,
        )

        def check() -> None:
            [control] = control_of(handle)
            if interrupted():
                raise Unavailable("the run was interrupted")
            if not control.running():
                raise Unavailable(f"{way.source} ended at once: {control.log()}")

        try:
            return replace(server, version=wait_ready(member, server, check=check))
        except Unavailable:
            for control in control_of(handle):
                control.kill()
            raise

    with ThreadPoolExecutor(kind.size) as pool:
        nodes = list(pool.map(launch, range(kind.size)))
    if kind.size == 1:
        return nodes[0]
    kind.assemble(nodes)
    wait_ready(kind, nodes[0], nodes)
    return replace(nodes[0], name=kind.name, service=kind.service, nodes=tuple(nodes), handle={})
