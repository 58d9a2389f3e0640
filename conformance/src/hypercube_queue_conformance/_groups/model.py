"""Any order of calls, compared with a model of the contract."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from hypercube_queue_conformance._harness import Harness
from hypercube_queue_conformance._machine import machine_for
from hypercube_queue_conformance._marks import rule, when
from hypercube_queue_conformance._trial import Trial

#: How many random runs there are unless --conformance-examples says otherwise.
_DEFAULT_EXAMPLES = 20
#: Find an order of calls that goes wrong, and then the shortest one that does.
_PHASES = (Phase.generate, Phase.shrink)


def compare_with_model(
    harness: type[Harness], *, examples: int = _DEFAULT_EXAMPLES, repeatable: bool = True
) -> None:
    """Random calls, to the driver of a harness and to a model of the contract, must agree.

    Part of the suite (MODEL-1) where deliveries are exclusive. For a driver that cannot promise
    this, call it with a backend that makes no duplicates. There are `examples` runs, the same ones
    each time unless not `repeatable`. Raises AssertionError, or what the driver raised.
    """
    run_state_machine_as_test(
        machine_for(lambda: Trial(harness())),
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            derandomize=repeatable,
            phases=_PHASES,
            report_multiple_bugs=False,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


class ModelComparison:
    @rule("MODEL-1")
    @when(exclusive_delivery=True)
    def test_model_1_whatever_the_order_of_calls_the_model_agrees(
        self, trial: Trial, pytestconfig: pytest.Config
    ) -> None:
        """Random pushes, pops, settlements, stale ones too, redrives, through two objects.

        Without --conformance-examples the runs are the same each time; with it, the number
        of runs is as given and each time they are others.
        """
        examples = pytestconfig.getoption("--conformance-examples")
        compare_with_model(
            type(trial.harness), examples=examples or _DEFAULT_EXAMPLES, repeatable=not examples
        )
