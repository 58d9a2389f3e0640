"""The pytest plugin that sees to it that nobody cheats, and reports what was proved.

It is loaded by every run of pytest where this distribution is installed, and does nothing
unless a subclass of QueueConformance is collected.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hypercube_queue_conformance import _report
from hypercube_queue_conformance._harness import Harness
from hypercube_queue_conformance._marks import marks_of
from hypercube_queue_conformance._report import DriverResult
from hypercube_queue_conformance._rules import RULES
from hypercube_queue_conformance._trial import Trial

#: The name under which workers of a distributed run tell what they know.
_KEY = "hypercube_conformance"
#: The name of the plugin object that each run has.
PLUGIN = "hypercube_conformance_referee"


@dataclass(frozen=True, slots=True)
class _Test:
    """A conformance test as it was collected."""

    driver: str
    name: str
    expected_failure: str | None

    @property
    def rules(self) -> tuple[str, ...]:
        return marks_of(_suite().TESTS[self.name]).rules


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
    config.pluginmanager.register(Referee(config), PLUGIN)


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Iterator[Trial]:
    """The namespace of one conformance test."""
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

    # Collection

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, name: str, obj: object
    ) -> None:
        """Look at each class before it is collected, whether pytest would take it or not."""
        if not _is_conformance_class(obj):
            return
        collected = collector.istestclass(obj, name)
        if not collected and not hasattr(obj, "harness"):
            return  # a base for subclasses of the author's own
        mistakes = _mistakes(obj)
        defined_here = obj.__module__ == getattr(collector.obj, "__name__", None)
        if not collected and defined_here:
            mistakes.append("pytest does not collect it: begin its name with Test")
        if mistakes:
            shown = "\n".join(f"  {mistake}" for mistake in mistakes)
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
        if not _is_conformance_class(owner) or name not in _suite().TESTS:
            return True
        driver = item.nodeid.partition(f"::{name}")[0]
        result = self._result(driver)
        result.declaration = _report.declaration_of(owner.harness)
        for condition in marks_of(_suite().TESTS[name]).conditions:
            if reason := condition(owner.harness):
                result.left_out[name] = reason
                return False
        expected = owner.expected_failures.get(name)
        if expected is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=expected))
        item.stash[_TEST] = _Test(driver, name, expected)
        item.user_properties.append((_KEY, f"{driver} {name}"))
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
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        if test := item.stash.get(_TEST, None):
            used = getattr(item, "funcargs", {}).get("trial")
            harness = item.cls.harness  # type: ignore[attr-defined]  # it is a method
            if type(used) is not Trial or type(used.harness) is not harness:
                pytest.fail(f"{test.name} did not get the suite's own trial fixture")
        yield

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
            explanation = inspect.getdoc(_suite().TESTS[test.name]) or ""
            report.sections.append(("the rule", "\n".join([*promises, "", explanation])))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, value in report.user_properties:
            if key == _KEY:
                driver, _, test = str(value).rpartition(" ")
                if report.failed:
                    self._result(driver).note(test, _report.FAILED)
                elif report.skipped:
                    self._result(driver).note(test, _report.KNOWN)
                elif report.when == "call":
                    self._result(driver).note(test, _report.PASSED)

    # Reporting

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            # Only this process has collected anything; the one that reports has not.
            self._config.workeroutput[_KEY] = {
                driver: (result.declaration, result.left_out)
                for driver, result in self._results.items()
            }
        elif (path := self._config.getoption("--conformance-report")) and self._results:
            _report.write(Path(path), self._results)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of a distributed run has ended."""
        for driver, (declaration, left_out) in (
            getattr(node, "workeroutput", {}).get(_KEY, {}).items()
        ):
            result = self._result(driver)
            result.declaration, result.left_out = declaration, left_out

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        ran = [result for result in self._results.values() if result.outcomes]
        if ran:
            terminalreporter.section("queue conformance")
        for result in ran:
            for line in _report.summary(result):
                terminalreporter.write_line(line)

    def _result(self, driver: str) -> DriverResult:
        return self._results.setdefault(driver, DriverResult(driver))


def _suite() -> Any:
    """The suite's module, which is imported only where somebody uses it."""
    from hypercube_queue_conformance import _suite

    return _suite


def _is_conformance_class(candidate: object) -> bool:
    if "hypercube_queue_conformance._suite" not in sys.modules or not inspect.isclass(candidate):
        return False
    base = _suite().QueueConformance
    return issubclass(candidate, base) and candidate is not base


def _mistakes(candidate: Any) -> list[str]:
    """Everything that keeps a subclass of QueueConformance from being evidence."""
    return [
        *_mistakes_of_harness(getattr(candidate, "harness", None)),
        *_changed_tests(candidate),
        *_mistakes_of_expectations(candidate.expected_failures),
        *_obstacles_to_collection(candidate),
    ]


def _mistakes_of_harness(harness: Any) -> list[str]:
    if not (inspect.isclass(harness) and issubclass(harness, Harness)):
        return ["harness is not a subclass of Harness"]
    found = [f"{harness.__name__}: {mistake}" for mistake in harness.mistakes()]
    if missing := sorted(harness.__abstractmethods__):
        found.append(f"{harness.__name__} does not implement {', '.join(missing)}")
    return found


def _changed_tests(candidate: Any) -> list[str]:
    suite = _suite()
    found = []
    for name, test in suite.TESTS.items():
        actual = inspect.getattr_static(candidate, name, None)
        if actual is None:
            found.append(f"{name} is removed; no conformance test can be")
        elif actual is not test:
            found.append(f"{name} is overridden; declare it in expected_failures instead")
    if candidate.pytest_generate_tests is not suite.QueueConformance.pytest_generate_tests:
        found.append("pytest_generate_tests is overridden; it is the suite's own hook")
    if inspect.getattr_static(candidate, "trial", None) is not None:
        found.append("trial is overridden; it is the suite's own fixture")
    return found


def _mistakes_of_expectations(expected_failures: Mapping[str, str]) -> list[str]:
    found = []
    for name, reason in expected_failures.items():
        if name not in _suite().TESTS:
            found.append(f"expected_failures names {name}, which is no conformance test")
        if not str(reason).strip():
            found.append(f"expected_failures gives no reason for {name}")
    return found


def _obstacles_to_collection(candidate: Any) -> list[str]:
    """Where pytest would silently, or with a mere warning, pass over the class."""
    found = []
    if not getattr(candidate, "__test__", True):
        found.append("__test__ is false, so pytest does not collect it")
    if candidate.__init__ is not object.__init__ or candidate.__new__ is not object.__new__:
        found.append("it has a constructor, so pytest does not collect it")
    return found
