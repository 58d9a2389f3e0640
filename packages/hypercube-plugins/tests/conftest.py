"""What tests of plugins have in common."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from hypercube_plugins import AsyncPlugin, Plugin, Registration, Services

#: What happened, in its order: `("boot", "mail")`.
Log = list[tuple[str, str]]


class Noted(Plugin):
    """A plugin that writes down what is done to it, and fails where it is told to."""

    def __init__(
        self,
        name: str,
        version: str = "1.0",
        requires: Sequence[str] = (),
        *,
        log: Log | None = None,
        fails: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.version = version
        self.requires = requires
        self.log: Log = [] if log is None else log
        self.fails = fails

    def note(self, stage: str) -> None:
        self.log.append((stage, self.name))
        if stage in self.fails:
            raise OSError(f"{self.name} cannot {stage}")

    def register(self, registration: Registration) -> None:
        self.note("register")

    def boot(self, services: Services) -> None:
        self.note("boot")

    def shutdown(self, services: Services) -> None:
        self.note("shutdown")


class AsyncNoted(AsyncPlugin):
    """The same, asynchronous."""

    __init__ = Noted.__init__
    note = Noted.note
    register = Noted.register

    async def boot(self, services: Services) -> None:
        self.note("boot")

    async def shutdown(self, services: Services) -> None:
        self.note("shutdown")


@pytest.fixture
def log() -> Log:
    return []


@pytest.fixture
def noted(log: Log) -> Callable[..., Noted]:
    """Makes plugins that write into `log`."""

    def make(name: str, *requires: str, version: str = "1.0", fails: Sequence[str] = ()) -> Noted:
        return Noted(name, version, requires, log=log, fails=fails)

    return make


@pytest.fixture
def async_noted(log: Log) -> Callable[..., AsyncNoted]:
    """Makes asynchronous plugins that write into `log`."""

    def make(name: str, *requires: str, fails: Sequence[str] = ()) -> AsyncNoted:
        return AsyncNoted(name, "1.0", requires, log=log, fails=fails)

    return make


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Puts distributions on the path of this test: `installed("shop", "1.0", {...}, {...})`.

    The modules are texts by name, the entry points lines by group.
    """
    before = set(sys.modules)

    def install(
        name: str,
        version: str,
        modules: dict[str, str],
        entry_points: dict[str, Sequence[str]],
    ) -> Path:
        folder = tmp_path / f"{name}-{version}"
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(
            "".join(
                f"[{group}]\n" + "".join(f"{line}\n" for line in lines)
                for group, lines in entry_points.items()
            )
        )
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(folder)
        importlib.invalidate_caches()
        return folder

    yield install
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[module]
