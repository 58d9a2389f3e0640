"""The rules and the tests know each other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import hypercube_queue_conformance
from hypercube_queue_conformance import RULES, QueueConformance
from hypercube_queue_conformance._marks import marks_of, rule
from hypercube_queue_conformance._suite import TESTS

#: The families of the contract, with the number of the last rule in each.
_FAMILIES = {
    "OWN": 4,
    "PUSH": 8,
    "POP": 11,
    "SET": 7,
    "ERR": 7,
    "LIFE": 6,
    "EXT": 3,
    "RED": 6,
    "STA": 3,
    "DLS": 3,
    "REL": 1,
    "TXN": 4,
    # The suite's own.
    "GUA": 1,
    "CAP": 1,
    "MODEL": 1,
}


def test_every_rule_is_stated():
    """The ids of the contract, without a gap, and the suite's own."""
    expected = {f"{family}-{n}" for family, last in _FAMILIES.items() for n in range(1, last + 1)}
    assert set(RULES) == expected


def test_every_rule_has_a_test_and_every_test_a_rule():
    """None is missing on either side."""
    proved = {id for test in TESTS.values() for id in marks_of(test).rules}
    assert proved == set(RULES)
    assert [name for name, test in TESTS.items() if not marks_of(test).rules] == []


def test_every_rule_has_a_test_that_is_named_after_it():
    """The name begins with the first rule that the test proves."""
    for name, test in TESTS.items():
        first = marks_of(test).rules[0].lower().replace("-", "_")
        assert name.startswith(f"test_{first}_"), name
    assert {marks_of(test).rules[0] for test in TESTS.values()} >= set(RULES) - {"RED-6"}


def test_every_test_says_what_is_promised():
    """Its docstring is what a failure shows."""
    for name, test in TESTS.items():
        promise = inspect.getdoc(test) or ""
        assert promise.endswith("."), name


def test_an_unknown_rule_cannot_be_proved():
    """A typing error in an id is found when the suite is imported."""
    with pytest.raises(ValueError, match="NOPE-1"):
        rule("PUSH-1", "NOPE-1")


def test_every_group_is_part_of_the_suite():
    """A group that is written and not listed would never run; nor would a test named twice."""
    folder = Path(hypercube_queue_conformance.__file__).parent / "_groups"
    written = [
        name
        for file in folder.glob("*.py")
        for name in re.findall(r"^    def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(written) == sorted(TESTS)
    collected = [name for name in dir(QueueConformance) if name.startswith("test_")]
    assert collected == sorted(TESTS)


def test_no_test_of_the_suite_can_be_skipped_by_itself():
    """What does not apply is left out by a condition, before it runs."""
    folder = Path(hypercube_queue_conformance.__file__).parent / "_groups"
    for file in folder.glob("*.py"):
        assert not re.search(r"\b(skip|skipif|importorskip|xfail)\b", file.read_text("utf-8")), file
