"""The pytest plugin that sees to it that nobody cheats, and reports what was proved.

It is loaded by every run of pytest where this distribution is installed, and does nothing
unless a subclass of QueueConformance is collected.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from hypercube_queue import Guarantees
from hypercube_queue_conformance import _report, _seal
from hypercube_queue_conformance._candidate import is_conformance_class, mistakes, suite
from hypercube_queue_conformance._harness import Harness
from hypercube_queue_conformance._marks import marks_of
from hypercube_queue_conformance._report import DriverResult
from hypercube_queue_conformance._rules import RULES
from hypercube_queue_conformance._trial import Trial

#: The name under which workers of a distributed run tell what they know.
_KEY = "hypercube_conformance"
#: Under this name a report says that the test function ran to its end.
_WITNESSED = f"{_KEY}_witnessed"
#: The name of the plugin object that each run has.
_PLUGIN = "hypercube_conformance_referee"
#: What the suite's tests may be given beside their parameters.
_FIXTURES: Mapping[str, type] = {
    "trial": Trial,
    "caplog": pytest.LogCaptureFixture,
    "pytestconfig": pytest.Config,
}
#: What a harness declares once, for its class.
_DECLARED = ("guarantees", "capabilities", "pace", "patience", "backlog", "injected_clock")


@dataclass(frozen=True, slots=True)
class _Test:
    """A conformance test as it was collected."""

    driver: str
    name: str
    expected_failure: str | None
    harness: type[Harness]
    #: What the harness declared by then.
    declared: tuple[object, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        return marks_of(suite().TESTS[self.name]).rules


_TEST = pytest.StashKey[_Test]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("queue conformance")
    group.addoption(
        "--conformance-report",
        metavar="FILE",
        help="write what was proved to FILE: JSON, and Markdown beside it",
    )
    group.addoption(
        "--conformance-examples",
        type=int,
        default=0,
        metavar="N",
        help="compare the driver with the model in N random runs, others each time",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Referee(config), _PLUGIN)


def is_present(config: pytest.Config) -> bool:
    """Whether a referee watches this run."""
    return isinstance(config.pluginmanager.get_plugin(_PLUGIN), Referee)


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Iterator[Trial]:
    """The namespace of one conformance test."""
    if not is_present(request.config):
        pytest.fail("the suite's pytest plugin was taken away, so nothing would be proved")
    harness = request.cls.harness
    restarts = "restart" in marks_of(request.function).needs
    trial = Trial(harness.restartable() if restarts else harness())
    try:
        yield trial
    finally:
        trial.close()


class Referee:
    """What one run of pytest knows about the drivers it tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: dict[str, DriverResult] = {}
        self._deselected: set[pytest.Item] = set()
        #: What each test function raised; None if it returned.
        self._witnessed: dict[str, BaseException | None] = {}
        #: The first driver object of each test class.
        self._subjects: dict[str, tuple[type, tuple[object, ...]]] = {}
        #: Whether a test passed that did not run, or did not pass.
        self._hidden = False

    # Collection

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, name: str, obj: object
    ) -> None:
        """Look at each class before it is collected, whether pytest would take it or not."""
        if not is_conformance_class(obj):
            return
        collected = collector.istestclass(obj, name)
        if not collected and not hasattr(obj, "harness"):
            return  # a base for subclasses of the author's own
        found = mistakes(obj)
        defined_here = obj.__module__ == getattr(collector.obj, "__name__", None)
        if not collected and defined_here:
            found.append("pytest does not collect it: begin its name with Test")
        if found:
            shown = "\n".join(f"  {mistake}" for mistake in found)
            raise collector.CollectError(f"{name} cannot certify anything:\n{shown}")

    @pytest.hookimpl(tryfirst=True, wrapper=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            (kept if self._applies(item) else left_out).append(item)
        if left_out:
            items[:] = kept
            self._config.hook.pytest_deselected(items=left_out)
        conformance = {item for item in kept if _TEST in item.stash}
        self._deselected.clear()
        yield
        gone = conformance - set(items)
        if gone and (not gone <= self._deselected or not self._is_narrowed()):
            names = sorted(item.nodeid for item in gone)
            raise pytest.UsageError(
                f"{len(gone)} conformance tests were removed after collection, "
                f"the first of them {names[0]}"
            )

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected.update(items)

    def _applies(self, item: pytest.Item) -> bool:
        """Note what a conformance test is about; False where the driver is not bound by it."""
        owner: Any = getattr(item, "cls", None)
        name = getattr(item, "originalname", "")
        if not is_conformance_class(owner) or name not in suite().TESTS:
            return True
        driver = item.nodeid.partition(f"::{name}")[0]
        result = self._result(driver)
        result.declaration |= _report.declaration_of(owner.harness)
        for condition in marks_of(suite().TESTS[name]).conditions:
            if reason := condition(owner.harness):
                result.left_out[name] = reason
                return False
        expected = owner.expected_failures.get(name)
        if expected is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=expected))
            result.known[name] = str(expected)
        declared = _declared(owner.harness)
        item.stash[_TEST] = _Test(driver, name, expected, owner.harness, declared)
        item.user_properties.append((_KEY, json.dumps([driver, name, item.name])))
        return True

    def _is_narrowed(self) -> bool:
        """Whether the person at the command line asked for some of the tests only."""
        option = self._config.option
        asked = ("keyword", "markexpr", "deselect", "lf", "stepwise")
        return any(getattr(option, name, None) for name in asked) or any(
            "::" in argument for argument in self._config.args
        )

    # Running

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Function) -> Generator[None, None, None]:
        test = item.stash.get(_TEST, None)
        if test is None:
            return (yield)
        if item.nodeid in self._witnessed:
            pytest.fail(f"{test.name} is run again; what passes only now and then is not kept")
        if doubts := _doubts(item, test):
            pytest.fail(f"{test.name} would prove nothing:\n" + "\n".join(doubts))
        yield
        if item.nodeid not in self._witnessed:
            pytest.fail(f"{test.name} did not run; something ran in its place")
        if error := self._witnessed[item.nodeid]:
            pytest.fail(f"{test.name} failed, which something hid: {error!r}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run the suite's own function, whatever was put in its place."""
        test = pyfuncitem.stash.get(_TEST, None)
        if test is None:
            return None
        function = suite().TESTS[test.name]
        names = list(inspect.signature(function).parameters)[1:]
        try:
            function(pyfuncitem.instance, **{name: pyfuncitem.funcargs[name] for name in names})
            trial = pyfuncitem.funcargs["trial"]
            if isinstance(trial, Trial):
                self._compare_subjects(test, trial)
        except BaseException as error:
            self._witnessed[pyfuncitem.nodeid] = error
            raise
        self._witnessed[pyfuncitem.nodeid] = None
        pyfuncitem.user_properties.append((_WITNESSED, True))
        return True

    def _compare_subjects(self, test: _Test, trial: Trial) -> None:
        """One class certifies one driver, which makes the same promises all the time."""
        for queue in trial.subjects:
            subject = type(queue), _promises(queue.guarantees)
            kind, promises = self._subjects.setdefault(test.driver, subject)
            self._result(test.driver).declaration["driver"] = _name_of(kind)
            if subject[0] is not kind:
                pytest.fail(
                    f"the harness opened a {_name_of(kind)} and a {_name_of(type(queue))}; "
                    "write one class for each"
                )
            if subject[1] != promises:
                pytest.fail(f"the guarantees of {_name_of(kind)} change from object to object")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        test = item.stash.get(_TEST, None)
        if test is None:
            return report
        if report.skipped and not (test.expected_failure and hasattr(report, "wasxfail")):
            report.outcome = "failed"
            report.longrepr = (
                f"{test.name} was skipped. A conformance test cannot be: a rule that is not "
                "kept is declared in expected_failures, with the reason."
            )
            if hasattr(report, "wasxfail"):
                del report.wasxfail
        if report.failed:
            promises = [f"{id}: {RULES[id]}" for id in test.rules]
            explanation = inspect.getdoc(suite().TESTS[test.name]) or ""
            report.sections.append(("the rule", "\n".join([*promises, "", explanation])))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if _KEY not in properties:
            return
        driver, test, item = json.loads(str(properties[_KEY]))
        result = self._result(driver)
        if report.failed:
            result.note(test, item, _report.FAILED)
        elif report.skipped:
            result.note(test, item, _report.KNOWN)
        elif report.when == "call":
            witnessed = _WITNESSED in properties
            result.note(test, item, _report.PASSED if witnessed else _report.FAILED)
            self._hidden = self._hidden or not witnessed

    # Reporting

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._hidden and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if hasattr(self._config, "workeroutput"):
            # Only this process has collected anything; the one that reports has not.
            self._config.workeroutput[_KEY] = {
                driver: (result.declaration, result.left_out, result.known)
                for driver, result in self._results.items()
            }
        elif (path := self._config.getoption("--conformance-report")) and self._results:
            _report.write(Path(path), self._results)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of a distributed run has ended."""
        for driver, (declaration, left_out, known) in (
            getattr(node, "workeroutput", {}).get(_KEY, {}).items()
        ):
            result = self._result(driver)
            result.declaration |= declaration
            result.left_out, result.known = left_out, known

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        ran = [result for result in self._results.values() if result.outcomes]
        if ran:
            terminalreporter.section("queue conformance")
        for result in ran:
            for line in _report.summary(result):
                terminalreporter.write_line(line)

    def _result(self, driver: str) -> DriverResult:
        return self._results.setdefault(driver, DriverResult(driver))


def _declared(harness: object) -> tuple[object, ...]:
    """What a harness, its class or an object of it, says of driver and backend."""
    guarantees, *others = (getattr(harness, name) for name in _DECLARED)
    return (*_promises(guarantees), *others)


def _promises(guarantees: Guarantees) -> tuple[object, ...]:
    """All that can be compared: two functions may be of one effect."""
    names = (each.name for each in fields(Guarantees) if each.name != "delay_lateness")
    return tuple(getattr(guarantees, name) for name in names)


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _doubts(item: pytest.Function, test: _Test) -> list[str]:
    """Why a test, if it passed, would say nothing about the driver that was declared."""
    found = [f"  {name} of the suite was exchanged" for name in _seal.broken()]
    for name, expected in _FIXTURES.items():
        if name in item.funcargs and type(item.funcargs[name]) is not expected:
            found.append(f"  it did not get the suite's own {name} fixture")
    trial = item.funcargs.get("trial")
    if type(trial) is Trial:
        if type(trial.harness) is not test.harness:
            found.append("  it did not get the harness of its class")
        elif not test.declared == _declared(test.harness) == _declared(trial.harness):
            found.append(f"  what {test.harness.__name__} declares has changed")
    return found
