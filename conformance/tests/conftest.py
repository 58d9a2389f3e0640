"""Runs of pytest within a test: in this process, with the harnesses of this folder at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

import hypercube_queue_conformance._suite  # noqa: F401 - once here, not in every inner run

_HERE = Path(__file__).parent


@pytest.fixture
def certify(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """Runs a test module, given as text, and returns what pytest said."""
    monkeypatch.syspath_prepend(str(_HERE))
    monkeypatch.setenv("PYTHONPATH", str(_HERE))  # for runs in a process of their own

    def run(text: str, *options: str) -> pytest.RunResult:
        prelude = dedent(
            """
            import pytest
            from hypercube_queue import *
            from hypercube_queue_conformance import *
            from memory_harness import MemoryHarness
            """
        )
        pytester.makepyfile(prelude + dedent(text))
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)

    return run
