"""What the ways to get a server must know of one kind of server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

#: Of every server that asks for one. Nothing else is named so: a text that shows it leaks it.
PASSWORD = "correct horse/battery+staple"  # noqa: S105 - not a secret

#: Seconds that one question to a server may take.
PROBE_TIMEOUT = 3.0

#: Runs a command as the user and in the folder of a server that is being prepared.
Runner = Callable[[Sequence[str | Path]], None]


class Unavailable(Exception):
    """A way does not give a server here; the text is the reason."""


class NotReady(Exception):
    """The server answers, but not yet as it should."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server can be reached, and as whom."""

    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)
    database: str = ""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a plain process runs."""

    program: Path
    folder: Path
    port: int


class Kind:
    """One kind of server. A subclass says what differs; most of it is data."""

    #: What tests call it.
    name: ClassVar[str]
    #: Its name in running text.
    title: ClassVar[str]
    #: Empty where there is none.
    image: ClassVar[str] = ""
    #: Where it listens unless told otherwise, as in its image.
    port: ClassVar[int]
    username: ClassVar[str] = ""
    password: ClassVar[str] = ""
    database: ClassVar[str] = ""
    #: The service that Sentinels watch.
    service: ClassVar[str] = ""
    #: How many servers it consists of.
    size: ClassVar[int] = 1
    #: Environment of its container.
    environment: Mapping[str, str] = {}
    #: Programs that serve it, the best first, and folders beside the path where they may lie.
    programs: ClassVar[Sequence[str]] = ()
    folders: ClassVar[Sequence[str]] = ("/usr/sbin", "/usr/local/sbin")
    #: Packages of Debian and Ubuntu that bring it.
    packages: ClassVar[Sequence[str]] = ()
    #: What pip installs instead, into an environment of its own.
    requirement: ClassVar[str] = ""
    #: Who runs it where root starts the tests, since most refuse root: this one, else nobody; the
    #: one who runs the tests if it is empty.
    user: ClassVar[str] = "nobody"
    #: What makes it stop at once and in good order.
    stop_signal: ClassVar[str] = "SIGTERM"
    #: What it leaves in its folder when it is killed, and takes for a sign that it still runs: its
    #: process stays known to the system until whoever started it asks for it.
    lock_files: ClassVar[Sequence[str]] = ()
    #: What makes it stop in its container, where the first process does not pass signals on.
    stop_command: ClassVar[str] = ""
    #: How its program comes to a machine.
    remedy: ClassVar[str] = "run as root on Debian or Ubuntu with --install-servers"

    def member(self, index: int, ports: Sequence[int]) -> Kind:
        """The kind of the server at this index, of a group that listens on these ports."""
        del index, ports
        return self

    def probe(self, address: Address) -> str:
        """The version that the server says it is; raises OSError or NotReady while it starts."""
        raise NotImplementedError

    def assemble(self, nodes: Sequence[Address]) -> None:
        """Make one of a group whose members all answer."""

    def probe_group(self, nodes: Sequence[Address]) -> None:
        """Raises OSError or NotReady until a group works as one."""

    def arguments(self, port: int) -> list[str]:
        """The command of its container, listening on `port` within."""
        del port
        return []

    def find(self) -> Path | None:
        """The program on this machine."""
        path = ":".join(self.folders)
        for program in self.programs:
            found = shutil.which(program) or shutil.which(program, path=path)
            if found is not None and self.accepts(Path(found)):
                return Path(found)
        return None

    def accepts(self, program: Path) -> bool:
        """Whether a program of the right name is the right one."""
        del program
        return True

    def prepare(self, site: Site, run: Runner) -> None:
        """Make all that a plain process needs in its empty folder."""

    def command(self, site: Site) -> list[str | Path]:
        """The command of a plain process that stays in the foreground, on 127.0.0.1 only."""
        raise NotImplementedError

    def process_environment(self, site: Site) -> dict[str, str]:
        """What its environment has beside path, home and locale."""
        del site
        return {}


def says(program: Path, argument: str = "--version") -> str:
    """What a program prints of itself; empty if it fails."""
    done = subprocess.run(
        [program, argument], check=False, capture_output=True, text=True, timeout=30
    )
    return done.stdout if done.returncode == 0 else ""
