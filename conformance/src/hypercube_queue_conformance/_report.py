"""What came of each rule, for people and for programs."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import hypercube_queue
from hypercube_queue import CAPABILITIES, Guarantees
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
#: The whole promise; what a driver declares differently, its users have to know.
_WHOLE = Guarantees(durable=True)
#: A function, of which two may be equal; and a word whose other value is the stronger one.
_NO_WEAKER = ("delay_lateness", "ordering")
#: What a rule's status is, by the worst outcome among its tests.
_STATUS = {FAILED: "broken", KNOWN: "known to fail", NOT_RUN: "not run", PASSED: "kept"}


def declaration_of(harness: type[Harness]) -> dict[str, Any]:
    """What a harness declares, as plain values."""
    return {
        "capabilities": [each.__name__ for each in CAPABILITIES if each in harness.capabilities],
        "denied": [each.__name__ for each in CAPABILITIES if each not in harness.capabilities],
        "guarantees": {
            each.name: str(getattr(harness.guarantees, each.name))
            for each in fields(harness.guarantees)
            if each.name != "delay_lateness"
        },
        "weakened": [
            each.name
            for each in fields(harness.guarantees)
            if getattr(harness.guarantees, each.name) != getattr(_WHOLE, each.name)
            and each.name not in _NO_WEAKER
        ],
        "settings": {
            name: str(getattr(harness, name))
            for name in ("pace", "backlog", "injected_clock")
            if getattr(harness, name) != getattr(Harness, name)
        },
        "unavailable": {hook: reason for hook in HOOKS if (reason := harness.missing(hook))},
    }


@dataclass(slots=True)
class DriverResult:
    """The outcome of the suite for one configuration of a driver: one test class."""

    name: str
    declaration: dict[str, Any] = field(default_factory=dict)
    #: Worst outcome of each test with each of its parameters, by its name and theirs.
    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)
    #: Why a test is known to fail, by its name.
    known: dict[str, str] = field(default_factory=dict)
    #: Why a test was left out, by its name.
    left_out: dict[str, str] = field(default_factory=dict)

    def note(self, test: str, item: str, outcome: str) -> None:
        """Take an outcome in; the worst of an item's phases stays."""
        items = self.outcomes.setdefault(test, {})
        items[item] = max(outcome, items.get(item, NOT_RUN), key=_SEVERITY.__getitem__)

    def outcome(self, test: str) -> str:
        """The worst of a test's parameters; a test that ran with some of them has not run."""
        if test in self.left_out:
            return LEFT_OUT
        items = self.outcomes.get(test, {})
        worst = max(items.values(), default=NOT_RUN, key=_SEVERITY.__getitem__)
        complete = len(items) >= _number_of_items(_tests()[test])
        return NOT_RUN if worst == PASSED and not complete else worst

    def absent(self) -> list[str]:
        """The capabilities that are denied, and that the driver object was seen not to have."""
        items = self.outcomes.get(_ABSENCE, {})
        denied = self.declaration.get("denied", ())
        return [name for name in denied if items.get(f"{_ABSENCE}[{name}]") == PASSED]

    def rules(self) -> dict[str, dict[str, Any]]:
        """Each rule with its status and the outcome of its tests."""
        found: dict[str, dict[str, Any]] = {
            id: {"statement": statement, "status": "", "tests": {}}
            for id, statement in RULES.items()
        }
        for test, function in _tests().items():
            outcome = self.outcome(test)
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

    def counts(self) -> dict[str, int]:
        """How many rules have each status."""
        statuses = ("kept", "broken", "known to fail", "not run", "not applicable")
        return {status: len(self.with_status(status)) for status in statuses}

    def reasons(self) -> dict[str, list[str]]:
        """Why tests were left out, and which rules have lost how much by it."""
        found: dict[str, list[str]] = {}
        for test, reason in self.left_out.items():
            found.setdefault(reason, []).append(test)
        return found


_SEVERITY = {NOT_RUN: 0, PASSED: 1, KNOWN: 2, FAILED: 3}
#: The test that looks whether a capability is there, with each of them as its parameter.
_ABSENCE = "test_cap_1_a_capability_is_there_if_it_is_declared"


def summary(result: DriverResult) -> list[str]:
    """A driver's result in a few lines for the terminal."""
    verdict = "certified" if result.certified else "not certified"
    lines = [f"{result.name}: {verdict}; {_counted(result)}"]
    for status in ("broken", "known to fail"):
        lines += [f"  {status}: {id} {RULES[id]}" for id in result.with_status(status)]
    for reason, tests in sorted(result.reasons().items()):
        lines.append(f"  left out {len(tests)} {'test' if len(tests) == 1 else 'tests'}: {reason}")
    return lines


def write(path: Path, results: Mapping[str, DriverResult]) -> None:
    """The report as JSON and, beside it, as Markdown and as what a badge shows."""
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
                "absent": result.absent(),
                "counts": result.counts(),
                "rules": result.rules(),
                "left_out": result.left_out,
                "known_to_fail": result.known,
            }
            for result in results.values()
        ],
    }
    text = json.dumps(content, indent=2, ensure_ascii=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    badge = json.dumps(_badge(list(results.values())), indent=2)
    path.with_suffix(".badge.json").write_text(badge + "\n", encoding="utf-8")
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
    settings = declared.get("settings", {})
    weakened = [
        f"`{name}` is {declared['guarantees'][name]}" for name in declared.get("weakened", ())
    ]
    lines = [
        f"## {result.name}",
        "",
        f"**{'Certified' if result.certified else 'Not certified'}**; {_counted(result)}.",
        "",
        f"- Driver: `{declared.get('driver', 'none was opened')}`.",
        f"- Capabilities: {_listed(declared.get('capabilities', ()))}.",
        f"- Capabilities denied: {_listed(declared.get('denied', ()))}.",
        f"- Shown to be absent: {_listed(result.absent())}.",
        f"- Guarantees that are weaker than the whole promise: {_listed(weakened)}.",
        *(f"- The harness sets `{name}` to {value}." for name, value in settings.items()),
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
    if result.known:
        lines += ["", "Known to fail:", ""]
    lines += [f"- `{test}`: {reason}" for test, reason in sorted(result.known.items())]
    return lines


def _badge(results: list[DriverResult]) -> dict[str, Any]:
    """What shields.io reads from the address that its endpoint badge is given."""
    certified = all(result.certified for result in results)
    kept = min(result.counts()["kept"] for result in results)
    verdict = f"{kept} rules kept" if certified else "not certified"
    return {
        "schemaVersion": 1,
        "label": "queue conformance",
        "message": f"{verdict} (suite {__version__}, contract {hypercube_queue.__version__})",
        "color": "brightgreen" if certified else "red",
    }


def _counted(result: DriverResult) -> str:
    counts = result.counts()
    shown = ", ".join(f"{n} {status}" for status, n in counts.items() if n or status == "kept")
    return f"of {len(RULES)} rules {shown}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _number_of_items(test: Any) -> int:
    """With how many sets of parameters a test has to run."""
    marks = (mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize")
    return math.prod(len(mark.args[1]) for mark in marks)


def _versions() -> str:
    return (
        f"Suite {__version__}, contract {hypercube_queue.__version__}, "
        f"Python {platform.python_version()}."
    )


def _tests() -> Mapping[str, Any]:
    from hypercube_queue_conformance._suite import TESTS  # with Hypothesis, so only when used

    return TESTS
