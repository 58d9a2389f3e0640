"""Every fault is found by a test that names the promise it breaks, and no fault where is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from hypercube_queue import QueueError
from hypercube_queue_conformance import RULES
from hypercube_queue_conformance._groups import model
from hypercube_queue_conformance._machine import machine_for
from hypercube_queue_conformance._trial import Trial

_HERE = Path(__file__).parent
pytest_plugins = ["pytester"]

#: What the referee's own tests break.
_ELSEWHERE = {"GUA-1", "CAP-1"}


def _declared(source: str) -> dict[str, str]:
    """Name and rule of each mutant, as its source says."""
    pattern = r'^class (\w+)\(.+\):\n    rule = "([A-Z]+-\d+)"'
    return dict(re.findall(pattern, source, re.MULTILINE))


_SOURCE = (_HERE / "broken_drivers.py").read_text(encoding="utf-8")
_DECLARED = _declared(_SOURCE)
#: The same of those that take a backend: one that fails, restarts, holds foreign bytes and has
#: other clients, transactions and a URL.
_WITH_BACKEND = _declared((_HERE / "broken_sqlite_drivers.py").read_text(encoding="utf-8"))
#: Those whose source says why random calls cannot find them.
_BEYOND = set(
    re.findall(r'^class (\w+)\(.+\):\n.*\n    beyond_the_model = ".+"', _SOURCE, re.MULTILINE)
)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs the suite in this process against a harness, and gives the names of failed tests."""
    monkeypatch.syspath_prepend(str(_HERE))
    # The shortest counterexample is for people, and takes its time.
    monkeypatch.setattr(model, "_PHASES", (Phase.generate,))

    def run(module: str, name: str, *options: str):
        pytester.makepyfile(
            f"""
            from {module} import {name} as Chosen
            from hypercube_queue_conformance import QueueConformance

            class TestChosen(QueueConformance):
                harness = Chosen
            """
        )
        record = pytester.inline_run("-p", "no:cacheprovider", *options)
        passed, skipped, failed = record.listoutcomes()
        assert skipped == []
        names = [report.nodeid.rpartition("::")[2] for report in failed]
        return names, len(passed)

    return run


@pytest.mark.parametrize(
    ("module", "name", "rule"),
    [
        *(("broken_drivers", *each) for each in sorted(_DECLARED.items())),
        *(("broken_sqlite_drivers", *each) for each in sorted(_WITH_BACKEND.items())),
    ],
)
def test_a_fault_is_found_by_the_tests_of_the_rule_it_breaks(run, module, name, rule):
    """Only these tests run, so it is one of them that finds it."""
    prefix = _prefix(rule)
    failed, _ = run(module, name, "-x", "-k", prefix)
    assert failed != []
    assert [each for each in failed if not each.startswith(prefix)] == []


def _prefix(rule):
    return f"test_{rule.lower().replace('-', '_')}_"


@pytest.mark.parametrize("name", sorted(_DECLARED.keys() - _BEYOND))
def test_a_fault_is_found_by_random_calls_too(monkeypatch, name):
    """By more of them than a driver has to stand each time."""
    monkeypatch.syspath_prepend(str(_HERE))
    import broken_drivers

    mutant = broken_drivers.MUTANTS[name]
    with pytest.raises((AssertionError, QueueError, ExceptionGroup, TypeError)):
        run_state_machine_as_test(
            machine_for(lambda: Trial(mutant())),
            settings=settings(
                max_examples=500,
                stateful_step_count=50,
                derandomize=True,
                phases=(Phase.generate,),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.parametrize("name", ["MemoryHarness", "RealClockHarness"])
def test_no_fault_is_found_where_there_is_none(run, name):
    """The driver that the mutants are made of passes everything that they fail."""
    options = ["-k", "pop_7 or life_1"] if name == "RealClockHarness" else []
    failed, passed = run("memory_harness", name, *options)
    assert failed == []
    assert passed > 0


def test_no_fault_is_found_in_sqlite_where_there_is_none(run):
    """By the same tests as above."""
    rules = " or ".join(_prefix(rule) for rule in _WITH_BACKEND.values())
    failed, passed = run("breakable_sqlite", "BreakableHarness", "-k", rules)
    assert failed == []
    assert passed > len(_WITH_BACKEND)


def test_every_mutant_is_known_by_its_source(monkeypatch):
    """The table above reads the source; what Python defines is the same."""
    monkeypatch.syspath_prepend(str(_HERE))
    import broken_drivers
    import broken_sqlite_drivers

    mutants = broken_drivers.MUTANTS.items()
    assert {name: mutant.rule for name, mutant in mutants} == _DECLARED
    assert {name for name, mutant in mutants if mutant.beyond_the_model} == _BEYOND
    with_backend = broken_sqlite_drivers.MUTANTS.items()
    assert {name: mutant.rule for name, mutant in with_backend} == _WITH_BACKEND


def test_every_rule_has_a_mutant():
    """No rule is so weakly tested that nobody has seen its tests fail."""
    broken = {*_DECLARED.values(), *_WITH_BACKEND.values(), *_ELSEWHERE}
    assert set(RULES) - broken == set()
