"""The pytest plugin: servers before the tests, their names in the header, their end after all.

Nothing of what servers need is imported until a conftest asks for one.
"""

from __future__ import annotations

import atexit
import signal
from collections.abc import Collection, Generator
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
from tools.backends import hooks

if TYPE_CHECKING:
    from tools.backends.instance import Server
    from tools.backends.run import OwnRun

_LEFT_OUT = "hypercube_left_out"


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("backends", "servers for the tests of drivers")
    group.addoption(
        "--install-servers",
        action="store_true",
        help="install servers that the tests need and this machine lacks (Debian, Ubuntu; root)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "server(*names): needs these servers; left out of a run that has not all of them"
    )
    _allow_for_load(config)
    if hasattr(config, "workerinput"):  # this is how xdist tells
        config.pluginmanager.register(_Worker(config), "hypercube-servers")
    else:
        config.pluginmanager.register(_Controller(config), "hypercube-servers")


class _Selection:
    """Leaves out the tests that need what is not there.

    As the first of all plugins: the referee of the conformance suite lets nobody take away a test
    that it has seen.
    """

    def __init__(self) -> None:
        #: How many tests were left out for want of each server.
        self.left_out: dict[str, int] = {}
        #: Tests that need servers which no conftest has named, with their names.
        self._unknown: dict[pytest.Item, list[str]] = {}

    def select(
        self, items: list[pytest.Item], known: Collection[str], missing: Collection[str]
    ) -> None:
        kept: list[pytest.Item] = []
        dropped: list[pytest.Item] = []
        for item in items:
            names = [name for mark in item.iter_markers("server") for name in mark.args]
            if unknown := sorted(set(names) - set(known)):
                self._unknown[item] = unknown
            wanting = [name for name in dict.fromkeys(names) if name in missing]
            for name in wanting:
                self.left_out[name] = self.left_out.get(name, 0) + 1
            (dropped if wanting else kept).append(item)
        if dropped:
            items[:] = kept
            dropped[0].config.hook.pytest_deselected(items=dropped)

    def check(self, items: list[pytest.Item]) -> None:
        """Raises UsageError if a test that nobody has left out needs a server without a name."""
        for item in items:
            if item in self._unknown:
                raise pytest.UsageError(
                    f"{item.nodeid} needs {', '.join(self._unknown[item])}, which no conftest "
                    "that was loaded at the start names in pytest_hypercube_servers"
                )


class _Worker(_Selection):
    """In a process of xdist: the controller has the servers."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._config = config

    @pytest.hookimpl(tryfirst=True, wrapper=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        wanted = _wanted(config)
        missing: Collection[str] = ()
        if wanted:
            from tools.backends import places, run

            current = run.Run.current()
            missing = (current.read(places.MISSING) or {}) if current is not None else ()
        self.select(items, wanted, missing)
        yield
        self.check(items)

    def pytest_sessionfinish(self) -> None:
        self._config.workeroutput[_LEFT_OUT] = self.left_out  # type: ignore[attr-defined]  # xdist's


class _Controller(_Selection):
    """In the process that runs the tests, or has others run them."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._config = config
        self._wanted: list[str] = []
        self._run: OwnRun | None = None
        self._servers: dict[str, Server] = {}
        #: Reason and remedy of each that cannot be had.
        self._missing: dict[str, tuple[str, str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self._wanted = _wanted(self._config)
        if not self._wanted:
            return
        from tools.backends import environment, places, providing, run

        try:
            environment.check(self._wanted)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
        if self._config.option.collectonly:
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _interrupt)
        self._run = run.OwnRun()
        atexit.register(self._run.close)  # where pytest does not come to its end
        install = bool(self._config.getoption("--install-servers"))
        found, missing = providing.provide_all(self._wanted, self._run, install=install)
        self._servers = found
        self._missing = {name: (why, providing.remedy(name)) for name, why in missing.items()}
        self._run.write(places.SERVERS, {name: each.to_json() for name, each in found.items()})
        self._run.write(places.MISSING, self._missing)

    def pytest_report_header(self) -> list[str]:
        if not self._wanted:
            return ["servers: none needed"]
        lines = [f"{name}: {each.description}" for name, each in self._servers.items()]
        return lines + [f"{name}: LEFT OUT, {why}" for name, (why, _) in self._missing.items()]

    @pytest.hookimpl(tryfirst=True, wrapper=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        self.select(items, self._wanted, self._missing)
        yield
        self.check(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of xdist has ended; all of them collected the same."""
        self.left_out |= getattr(node, "workeroutput", {}).get(_LEFT_OUT, {})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left_out:
            session.exitstatus = pytest.ExitCode.OK
        if self._required() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._missing:
            return
        required = self._required()
        terminalreporter.section("servers left out", red=bool(required), yellow=not required)
        for name, (why, remedy) in self._missing.items():
            count = self.left_out.get(name, 0)
            terminalreporter.line(f"{name}: {count} test{'' if count == 1 else 's'} left out")
            terminalreporter.line(f"  why: {why}")
            terminalreporter.line(f"  remedy: {remedy}")
        if required:
            terminalreporter.line(
                f"FAILED: HYPERCUBE_TEST_REQUIRE asks for {', '.join(required)}", red=True
            )

    def pytest_unconfigure(self) -> None:
        if self._run is not None:
            self._run.close()

    def _required(self) -> list[str]:
        """The missing ones without which the run fails."""
        if not self._missing:
            return []
        from tools.backends import environment

        return [name for name in self._missing if environment.is_required(name)]


def _allow_for_load(config: pytest.Config) -> None:
    """Have tests with generated input fail for what they find, never for their speed."""
    try:
        from hypothesis import HealthCheck, settings
    except ImportError:
        return
    if not config.getoption("--hypothesis-profile", None):
        slow = [HealthCheck.too_slow]
        settings.register_profile(
            "hypercube", settings(), deadline=None, suppress_health_check=slow
        )
        settings.load_profile("hypercube")


def _wanted(config: pytest.Config) -> list[str]:
    return sorted({name for names in config.hook.pytest_hypercube_servers() for name in names})


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """So that whoever ends the run gets the same clean end as from the keyboard."""
    raise KeyboardInterrupt
