"""The whole suite as one base class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

import pytest

from hypercube_queue_conformance._groups.batches import Batches
from hypercube_queue_conformance._groups.concurrency import Concurrency
from hypercube_queue_conformance._groups.dead_letters import DeadLetters
from hypercube_queue_conformance._groups.errors import Errors
from hypercube_queue_conformance._groups.guarantees import DeclaredGuarantees
from hypercube_queue_conformance._groups.leases import Leases
from hypercube_queue_conformance._groups.lifecycle import Lifecycle
from hypercube_queue_conformance._groups.model import ModelComparison
from hypercube_queue_conformance._groups.ownership import Ownership
from hypercube_queue_conformance._groups.pop import Pop
from hypercube_queue_conformance._groups.push import Push
from hypercube_queue_conformance._groups.redrive import Redrive
from hypercube_queue_conformance._groups.release import Release
from hypercube_queue_conformance._groups.settlement import Settlement
from hypercube_queue_conformance._groups.stats import Stats
from hypercube_queue_conformance._groups.transactions import Transactions
from hypercube_queue_conformance._groups.visibility import Visibility
from hypercube_queue_conformance._harness import Harness
from hypercube_queue_conformance._referee import is_present
from hypercube_queue_conformance._seal import seal

_GROUPS = (
    Ownership,
    Push,
    Pop,
    Leases,
    Settlement,
    Batches,
    Errors,
    Concurrency,
    Lifecycle,
    Visibility,
    Redrive,
    Stats,
    DeadLetters,
    Release,
    Transactions,
    DeclaredGuarantees,
    ModelComparison,
)


class QueueConformance(
    Ownership,
    Push,
    Pop,
    Leases,
    Settlement,
    Batches,
    Errors,
    Concurrency,
    Lifecycle,
    Visibility,
    Redrive,
    Stats,
    DeadLetters,
    Release,
    Transactions,
    DeclaredGuarantees,
    ModelComparison,
):
    """Every test of the contract; a subclass runs them against one configuration of a driver.

        class TestMyQueue(QueueConformance):
            harness = MyHarness

    No test can be overridden, removed or skipped. One that is known to fail is declared,
    with the reason, and must go on failing until the entry is taken out:

            expected_failures = {"test_pop_9_a_backlog_does_not_slow_a_pop_down": "issue 12"}
    """

    #: Makes a fresh namespace per test, and says what the driver promises.
    harness: ClassVar[type[Harness]]
    #: Names of tests that fail for a known reason, and the reason.
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Pytest calls this for each test that it collects, with the referee or without."""
        if not is_present(metafunc.config):
            raise pytest.Collector.CollectError(
                f"{type(self).__name__} proves nothing without the suite's pytest plugin, which "
                "sees to it that every test runs: remove -p no:hypercube_conformance"
            )


def _tests_of(group: type) -> dict[str, Callable[..., None]]:
    return {name: test for name, test in vars(group).items() if name.startswith("test_")}


#: Every test of the suite by name, as it was when the suite was imported.
TESTS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {name: test for group in _GROUPS for name, test in _tests_of(group).items()}
)

seal()
