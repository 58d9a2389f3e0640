"""Whether a subclass of QueueConformance can be evidence, before any test of it runs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from hypercube_queue_conformance._harness import Harness


def suite() -> Any:
    """The suite's module, which is imported only where somebody uses it."""
    from hypercube_queue_conformance import _suite

    return _suite


def is_conformance_class(candidate: object) -> bool:
    if "hypercube_queue_conformance._suite" not in sys.modules or not inspect.isclass(candidate):
        return False
    base = suite().QueueConformance
    return issubclass(candidate, base) and candidate is not base


def mistakes(candidate: Any) -> list[str]:
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
    found = []
    for name, test in suite().TESTS.items():
        actual = inspect.getattr_static(candidate, name, None)
        if actual is None:
            found.append(f"{name} is removed; no conformance test can be")
        elif actual is not test:
            found.append(f"{name} is overridden; declare it in expected_failures instead")
    if candidate.pytest_generate_tests is not suite().QueueConformance.pytest_generate_tests:
        found.append("pytest_generate_tests is overridden; it is the suite's own hook")
    if inspect.getattr_static(candidate, "trial", None) is not None:
        found.append("trial is overridden; it is the suite's own fixture")
    return found


def _mistakes_of_expectations(expected_failures: Mapping[str, str]) -> list[str]:
    found = []
    for name, reason in expected_failures.items():
        if name not in suite().TESTS:
            found.append(f"expected_failures names {name}, which is no conformance test")
        if not str(reason).strip():
            found.append(f"expected_failures gives no reason for {name}")
    return found


def _obstacles_to_collection(candidate: Any) -> list[str]:
    """Where pytest would silently, or with a mere warning, pass over the class."""
    found = []
    if sys.flags.optimize:
        found.append("Python runs with -O, which leaves asserts out")
    if not getattr(candidate, "__test__", True):
        found.append("__test__ is false, so pytest does not collect it")
    if candidate.__init__ is not object.__init__ or candidate.__new__ is not object.__new__:
        found.append("it has a constructor, so pytest does not collect it")
    return found
