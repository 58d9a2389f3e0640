"""What came of each rule, for people and for programs."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import hypercube_queue
from hypercube_queue import CAPABILITIES
from hypercube_queue_conformance.__about__ import __version__
from hypercube_queue_conformance._harness import HOOKS, Harness
from hypercube_queue_conformance._marks import marks_of
from hypercube_queue_conformance._rules import RULES

PASSED, FAILED, KNOWN, LEFT_OUT, NOT_RUN = (
    "passed",
    "failed",
    "known to fail",
    "not applicable",
    "not run",
)
#: What a rule's status is, by the worst outcome among its tests.
_STATUS = {FAILED: "broken", KNOWN: "known to fail", NOT_RUN: "not run", PASSED: "kept"}


def declaration_of(harness: type[Harness]) -> dict[str, Any]:
    """What a harness declares, as plain values."""
    return {
        "capabilities": [each.__name__ for each in CAPABILITIES if each in harness.capabilities],
        "absent": [each.__name__ for each in CAPABILITIES if each not in harness.capabilities],
        "guarantees": {
            each.name: str(getattr(harness.guarantees, each.name))
            for each in fields(harness.guarantees)
            if each.name != "delay_lateness"
        },
        "unavailable": {hook: reason for hook in HOOKS if (reason := harness.missing(hook))},
    }


@dataclass(slots=True)
class DriverResult:
    """The outcome of the suite for one configuration of a driver: one test class."""

    name: str
    declaration: dict[str, Any] = field(default_factory=dict)
    #: Worst outcome of each test, by its name.
    outcomes: dict[str, str] = field(default_factory=dict)
    #: Why a test was left out, by its name.
    left_out: dict[str, str] = field(default_factory=dict)

    def note(self, test: str, outcome: str) -> None:
        """Take an outcome in; the worst of a test's parameters and phases stays."""
        known = self.outcomes.get(test)
        if known is None or _SEVERITY[outcome] > _SEVERITY[known]:
            self.outcomes[test] = outcome

    def rules(self) -> dict[str, dict[str, Any]]:
        """Each rule with its status and the outcome of its tests."""
        found: dict[str, dict[str, Any]] = {
            id: {"statement": statement, "status": "", "tests": {}}
            for id, statement in RULES.items()
        }
        for test, function in _tests().items():
            outcome = LEFT_OUT if test in self.left_out else self.outcomes.get(test, NOT_RUN)
            for id in marks_of(function).rules:
                found[id]["tests"][test] = outcome
        for entry in found.values():
            outcomes = set(entry["tests"].values())
            entry["status"] = next(
                (status for outcome, status in _STATUS.items() if outcome in outcomes),
                "not applicable",
            )
        return found

    def with_status(self, status: str) -> list[str]:
        return [id for id, entry in self.rules().items() if entry["status"] == status]

    @property
    def certified(self) -> bool:
        """Whether every rule that applies was tested and is kept."""
        return not any(self.with_status(each) for each in ("broken", "known to fail", "not run"))

    def reasons(self) -> dict[str, list[str]]:
        """Why tests were left out, and which rules have lost how much by it."""
        found: dict[str, list[str]] = {}
        for test, reason in self.left_out.items():
            found.setdefault(reason, []).append(test)
        return found


_SEVERITY = {NOT_RUN: 0, PASSED: 1, KNOWN: 2, FAILED: 3}


def summary(result: DriverResult) -> list[str]:
    """A driver's result in a few lines for the terminal."""
    counts = {
        status: len(result.with_status(status))
        for status in ("kept", "broken", "known to fail", "not run", "not applicable")
    }
    shown = ", ".join(f"{n} {status}" for status, n in counts.items() if n or status == "kept")
    verdict = "certified" if result.certified else "not certified"
    lines = [f"{result.name}: {verdict}; of {len(RULES)} rules {shown}"]
    for status in ("broken", "known to fail"):
        lines += [f"  {status}: {id} {RULES[id]}" for id in result.with_status(status)]
    for reason, tests in sorted(result.reasons().items()):
        lines.append(f"  left out {len(tests)} {'test' if len(tests) == 1 else 'tests'}: {reason}")
    return lines


def write(path: Path, results: Mapping[str, DriverResult]) -> None:
    """The report as JSON and, beside it, as Markdown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "suite": __version__,
        "contract": hypercube_queue.__version__,
        "python": platform.python_version(),
        "drivers": [
            {
                "name": result.name,
                "certified": result.certified,
                **result.declaration,
                "rules": result.rules(),
                "left_out": result.left_out,
            }
            for result in results.values()
        ],
    }
    text = json.dumps(content, indent=2, ensure_ascii=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    lines = [
        "# Queue conformance",
        "",
        _versions(),
    ]
    for result in results.values():
        lines += ["", *_markdown(result)]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _markdown(result: DriverResult) -> list[str]:
    declared = result.declaration
    lines = [
        f"## {result.name}",
        "",
        f"**{'Certified' if result.certified else 'Not certified'}.**",
        f"Capabilities: {', '.join(declared.get('capabilities', ())) or 'none'}.",
        f"Shown to be absent: {', '.join(declared.get('absent', ())) or 'none'}.",
        "",
        "| rule | status | tests | promise |",
        "| --- | --- | --- | --- |",
    ]
    for id, entry in result.rules().items():
        ran = sum(outcome not in (LEFT_OUT, NOT_RUN) for outcome in entry["tests"].values())
        lines.append(
            f"| {id} | {entry['status']} | {ran} of {len(entry['tests'])} | {entry['statement']} |"
        )
    if result.left_out:
        lines += ["", "Left out:", ""]
    for reason, tests in sorted(result.reasons().items()):
        lines.append(f"- {reason}: {', '.join(f'`{test}`' for test in sorted(tests))}")
    return lines


def _versions() -> str:
    return (
        f"Suite {__version__}, contract {hypercube_queue.__version__}, "
        f"Python {platform.python_version()}."
    )


def _tests() -> Mapping[str, Any]:
    from hypercube_queue_conformance._suite import TESTS  # with Hypothesis, so only when used

    return TESTS
