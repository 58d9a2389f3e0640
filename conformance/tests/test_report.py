"""What the report says."""

from __future__ import annotations

import json

import pytest

import hypercube_queue
import hypercube_queue_conformance
from hypercube_queue_conformance import RULES

pytest_plugins = ["pytester"]

_TWO_DRIVERS = """
from broken_drivers import BatchGoesToTheFirstQueue

class TestGood(QueueConformance):
    harness = MemoryHarness

class TestBad(QueueConformance):
    harness = BatchGoesToTheFirstQueue
"""


@pytest.fixture
def report(certify, tmp_path):
    """The report of a run, as JSON and as Markdown."""

    def make(*options):
        file = tmp_path / "folder" / "report.json"
        certify(_TWO_DRIVERS, f"--conformance-report={file}", *options)
        content = json.loads(file.read_text("utf-8"))
        drivers = {driver["name"].rpartition("::")[2]: driver for driver in content["drivers"]}
        return content, drivers, file.with_suffix(".md").read_text("utf-8")

    return make


def test_each_driver_is_reported_with_each_rule(report):
    """Its status, and the outcome of each of its tests."""
    content, drivers, _ = report("-k", "push_6")
    assert content["suite"] == hypercube_queue_conformance.__version__
    assert content["contract"] == hypercube_queue.__version__
    assert list(drivers) == ["TestGood", "TestBad"]
    good, bad = drivers["TestGood"], drivers["TestBad"]
    assert list(good["rules"]) == list(RULES)
    assert good["rules"]["PUSH-6"] == {
        "statement": RULES["PUSH-6"],
        "status": "kept",
        "tests": {"test_push_6_one_batch_may_name_several_queues": "passed"},
    }
    assert bad["rules"]["PUSH-6"]["status"] == "broken"
    assert good["rules"]["PUSH-5"]["status"] == "not run"
    assert good["rules"]["TXN-1"]["status"] == "not applicable"
    assert [good["certified"], bad["certified"]] == [False, False]


def test_what_is_declared_and_left_out_is_reported(report):
    """Capabilities, those shown to be absent, guarantees, hooks that are missing, and why."""
    _, drivers, _ = report("-k", "push_6")
    good = drivers["TestGood"]
    assert good["absent"] == ["TransactionalPusher"]
    assert "Redriver" in good["capabilities"]
    assert good["guarantees"]["durable"] == "False"
    assert good["unavailable"]["restart"] == "this driver is memory of one process"
    left_out = good["left_out"]["test_life_2_the_same_object_works_again_after_a_restart"]
    assert left_out == "the harness has no restart: this driver is memory of one process"


def test_a_full_run_certifies(report):
    """Every rule of the good driver is kept or does not apply."""
    _, drivers, markdown = report("-k", "TestGood")
    good = drivers["TestGood"]
    assert good["certified"] is True
    assert {entry["status"] for entry in good["rules"].values()} == {"kept", "not applicable"}
    assert "**Certified.**" in markdown


def test_the_markdown_has_a_line_for_each_rule(report):
    """With status, number of tests and statement; and the reasons for what was left out."""
    _, _, markdown = report("-k", "push_6")
    lines = markdown.splitlines()
    assert lines.count(f"| PUSH-6 | kept | 1 of 1 | {RULES['PUSH-6']} |") == 1
    assert lines.count(f"| PUSH-6 | broken | 1 of 1 | {RULES['PUSH-6']} |") == 1
    assert "**Not certified.**" in markdown
    assert "- the driver declares no TransactionalPusher: `test_txn_1_" in markdown


def test_a_distributed_run_reports_the_same(certify, pytester):
    """Workers of pytest-xdist tell what they collected and what came of it."""
    pytester.makepyfile(
        """
        from hypercube_queue_conformance import QueueConformance
        from memory_harness import MemoryHarness

        class TestChosen(QueueConformance):
            harness = MemoryHarness
        """
    )
    result = pytester.runpytest_subprocess("-n2", "-p", "no:cacheprovider")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*::TestChosen: certified; of 64 rules * kept, * not applicable",
            "*left out 11 tests: the driver declares no TransactionalPusher",
        ]
    )


def test_no_report_is_written_where_nothing_was_tested(pytester, tmp_path):
    """A run without a conformance class leaves no file that looks like evidence."""
    pytester.makepyfile("def test_other(): pass")
    pytester.runpytest_inprocess(f"--conformance-report={tmp_path / 'report.json'}")
    assert list(tmp_path.glob("report*")) == []
