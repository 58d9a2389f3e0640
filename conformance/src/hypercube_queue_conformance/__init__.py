"""Proves that a driver keeps Hypercube's queue contract.

    class TestMyQueue(QueueConformance):
        harness = MyHarness

`QueueConformance` is the suite, `Harness` what a driver's author implements for it, `RULES`
what is proved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hypercube_queue_conformance.__about__ import __version__
from hypercube_queue_conformance._harness import HOOKS, Borrowed, Harness, Silenceable, Unavailable
from hypercube_queue_conformance._rules import RULES

if TYPE_CHECKING:
    from hypercube_queue_conformance._groups.model import compare_with_model
    from hypercube_queue_conformance._suite import QueueConformance

__all__ = [
    "HOOKS",
    "RULES",
    "Borrowed",
    "Harness",
    "QueueConformance",
    "Silenceable",
    "Unavailable",
    "__version__",
    "compare_with_model",
]

# An editable install does not tell pytest which files these are.
pytest.register_assert_rewrite(
    f"{__name__}._groups", f"{__name__}._machine", f"{__name__}._trial", f"{__name__}._processes"
)


def __getattr__(name: str) -> object:
    # The referee is loaded by every run of pytest; the suite, with Hypothesis, by few.
    if name == "QueueConformance":
        from hypercube_queue_conformance._suite import QueueConformance

        return QueueConformance
    if name == "compare_with_model":
        from hypercube_queue_conformance._groups.model import compare_with_model

        return compare_with_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
