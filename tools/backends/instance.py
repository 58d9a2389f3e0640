"""What tests get: a server of the run that is there for all, or one to be broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote, urlencode

from tools.backends.kind import Address, Kind, NotReady, Unavailable
from tools.backends.kinds import KINDS
from tools.backends.processes import Process
from tools.backends.relay import Relay

#: Seconds until a server that was started must answer; this machine may be busy.
_PATIENCE = 180.0


class FaultImpossible(Exception):
    """A server cannot be broken in this way; the text says why."""


class Control(Protocol):
    """What can be done to one running server, by whatever runs it."""

    def start(self) -> None: ...
    def running(self) -> bool: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def log(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Server(Address):
    """A server: where it is, and what it is."""

    #: What tests call it, such as "postgres".
    name: str
    #: As the server says.
    version: str = ""
    #: Where it comes from, such as "container postgres:18".
    source: str = ""
    #: The name of the service that a Sentinel watches.
    service: str = ""
    #: The members of a group.
    nodes: Sequence[Self] = ()
    #: How it is found again: the way it was got, and its identity there.
    handle: Mapping[str, str] = field(default_factory=dict, repr=False)

    def url(self, scheme: str, database: str | None = None, **query: object) -> str:
        """A URL with its credentials, for the database given or else its own.

        `scheme` may have a driver, as in "postgresql+psycopg".
        """
        credentials = ""
        if self.username or self.password:
            secret = f":{quote(self.password, safe='')}" if self.password else ""
            credentials = f"{quote(self.username, safe='')}{secret}@"
        path = self.database if database is None else database
        options = f"?{urlencode(query)}" if query else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{credentials}{host}:{self.port}/{quote(path, safe='')}{options}"

    @property
    def description(self) -> str:
        """Source and version, as the header of a run shows them."""
        return f"{self.source}, {KINDS[self.name].title} {self.version}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        known = {each.name: value[each.name] for each in fields(cls)}
        return cls(**{**known, "nodes": tuple(map(cls.from_json, value["nodes"]))})


class ExclusiveServer(Server):
    """A server that one test has for itself, to break it.

    The address stays the same over restarts, and what was stored survives them.
    For a group, each method means all its members; each of `nodes` can be broken by itself.
    """

    def kill(self) -> None:
        """End it without warning, as a crash does."""
        self._each(lambda control: control.kill())

    def stop(self) -> None:
        """End it in good order."""
        self._each(lambda control: control.stop())

    def start(self) -> None:
        """Start it again, and wait until it answers."""
        self._each(lambda control: control.start())
        wait_ready(KINDS[self.name], self, self.nodes, check=self._check)

    def restart(self) -> None:
        """`stop` and `start`."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let it fall silent: connections stay, and nothing is answered."""
        self._each(lambda control: control.pause())

    def resume(self) -> None:
        """Let it go on where it was paused."""
        self._each(lambda control: control.resume())

    def relay(self) -> Relay:
        """A way to it that can be cut, as a context manager; works for every source."""
        return Relay(self.host, self.port)

    def mend(self) -> None:
        """Make it work, whatever was done to it."""
        if self._controls():
            self.resume()
            self.start()

    def _check(self) -> None:
        for control in self._controls():
            if not control.running():
                raise Unavailable(f"{self.name} ended as soon as it was started: {control.log()}")

    def _controls(self) -> list[Control]:
        handles = [each.handle for each in self.nodes] or [self.handle]
        return [control for handle in handles for control in control_of(handle)]

    def _each(self, do: Callable[[Control], None]) -> None:
        controls = self._controls()
        if not controls:
            raise FaultImpossible(
                f"{self.name} at {self.host}:{self.port} was given by its address, so tests cannot "
                "stop or pause it; relay() can cut it off"
            )
        for control in controls:
            do(control)


def control_of(handle: Mapping[str, str]) -> list[Control]:
    """What controls a single server; nothing for one that was given by its address."""
    if "container" in handle:
        from tools.backends.containers import Container

        return [Container(handle["container"], handle["stop"])]
    if "folder" in handle:
        return [Process(Path(handle["folder"]))]
    return []


def wait_ready(
    kind: Kind,
    address: Address,
    nodes: Sequence[Address] = (),
    *,
    check: Callable[[], None] = lambda: None,
    patience: float = _PATIENCE,
) -> str:
    """Wait until a server, or all of a group, answers as it should; the version it says it is.

    `check` may end the wait, by raising, where there is nothing left to wait for.
    """
    end = time.monotonic() + patience
    while True:
        try:
            versions = [kind.probe(each) for each in (nodes or [address])]
            if nodes:
                kind.probe_group(nodes)
        except (OSError, NotReady) as error:
            if time.monotonic() > end:
                raise Unavailable(
                    f"{kind.title} at {address.host}:{address.port} does not answer as it should "
                    f"within {patience:g} s: {error}"
                ) from error
        else:
            return versions[0]
        check()
        time.sleep(0.05)
