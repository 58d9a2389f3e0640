"""What the report says."""

from __future__ import annotations

import json

import pytest

import hypercube_queue
import hypercube_queue_conformance
from hypercube_queue_conformance import RULES
from hypercube_queue_conformance._report import _number_of_items

pytest_plugins = ["pytester"]

_VERSIONS = (
    f"(suite {hypercube_queue_conformance.__version__}, contract {hypercube_queue.__version__})"
)
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
    """Capabilities, guarantees, hooks that are missing, and why; and what was tested at all."""
    _, drivers, markdown = report("-k", "push_6")
    good = drivers["TestGood"]
    assert good["driver"] == "hypercube_queue_memory._queue.MemoryQueue"
    assert good["denied"] == ["TransactionalPusher"]
    assert good["weakened"] == ["durable", "shared"]
    weaker = "- Guarantees that are weaker than the whole promise: "
    assert weaker + "`durable` is False, `shared` is False." in markdown
    assert good["settings"] == {"backlog": "3000", "injected_clock": "True"}
    assert "Redriver" in good["capabilities"]
    assert good["guarantees"]["durable"] == "False"
    assert good["unavailable"]["restart"] == "this driver is memory of one process"
    left_out = good["left_out"]["test_life_2_the_same_object_works_again_after_a_restart"]
    assert left_out == "the harness has no restart: this driver is memory of one process"


def test_what_is_denied_is_absent_once_it_was_looked_for(report):
    """A denial alone shows nothing; the test that looks for the methods does."""
    _, drivers, markdown = report("-k", "TestGood and push_6")
    assert drivers["TestGood"]["absent"] == []
    assert "- Capabilities denied: TransactionalPusher." in markdown
    assert "- Shown to be absent: none." in markdown
    _, drivers, markdown = report("-k", "TestGood and cap_1")
    assert drivers["TestGood"]["absent"] == ["TransactionalPusher"]
    assert "- Shown to be absent: TransactionalPusher." in markdown


def test_a_test_that_ran_with_some_of_its_parameters_has_not_run(report):
    """So leaving out the one that fails certifies nothing."""
    _, drivers, _ = report("-k", "TestGood and push_4 and not dead")
    rule = drivers["TestGood"]["rules"]["PUSH-4"]
    assert rule["tests"]["test_push_4_an_id_that_is_retained_is_refused"] == "not run"
    assert rule["tests"]["test_push_4_after_an_ack_the_id_is_free"] == "passed"
    assert rule["status"] == "not run"
    _, drivers, _ = report("-k", "TestGood and push_4")
    rule = drivers["TestGood"]["rules"]["PUSH-4"]
    assert rule["tests"]["test_push_4_an_id_that_is_retained_is_refused"] == "passed"


def test_the_number_of_parameters_is_known_for_each_test():
    """The product of all of them, where there are several; one where there are none."""
    from hypercube_queue_conformance._suite import TESTS

    settled, acked = (
        "test_set_2_a_settled_delivery_cannot_be_settled_again",
        "test_set_1_an_acked_message_is_gone",
    )
    assert [_number_of_items(TESTS[name]) for name in (settled, acked)] == [9, 1]


def test_what_is_known_to_fail_is_reported_with_its_reason(certify, tmp_path):
    """Beside the rule, which is known to fail."""
    certify(
        """
        class TestChosen(QueueConformance):
            harness = MemoryHarness
            expected_failures = {"test_push_6_one_batch_may_name_several_queues": "issue 12"}
        """,
        f"--conformance-report={tmp_path / 'report.json'}",
        "-k",
        "push_5",
    )
    [driver] = json.loads((tmp_path / "report.json").read_text("utf-8"))["drivers"]
    name = "test_push_6_one_batch_may_name_several_queues"
    assert driver["known_to_fail"] == {name: "issue 12"}
    assert f"- `{name}`: issue 12" in (tmp_path / "report.md").read_text("utf-8").splitlines()


def test_a_full_run_certifies(report):
    """Every rule of the good driver is kept or does not apply."""
    content, drivers, markdown = report("-k", "TestGood")
    good = drivers["TestGood"]
    assert good["certified"] is True
    assert {entry["status"] for entry in good["rules"].values()} == {"kept", "not applicable"}
    kept = good["counts"]["kept"]
    assert f"**Certified**; of {len(RULES)} rules {kept} kept" in markdown
    assert f"Suite {content['suite']}, contract {content['contract']}, Python " in markdown


def test_the_markdown_has_a_line_for_each_rule(report):
    """With status, number of tests and statement; and the reasons for what was left out."""
    _, _, markdown = report("-k", "push_6")
    lines = markdown.splitlines()
    assert lines.count(f"| PUSH-6 | kept | 1 of 1 | {RULES['PUSH-6']} |") == 1
    assert lines.count(f"| PUSH-6 | broken | 1 of 1 | {RULES['PUSH-6']} |") == 1
    assert "**Not certified**; of 66 rules 0 kept, 1 broken, " in markdown
    assert "- the driver declares no TransactionalPusher: `test_txn_1_" in markdown


def test_the_badge_says_what_was_proved(report, tmp_path):
    """In the form that shields.io reads: the worst of the drivers, and both versions."""
    report("-k", "push_6")
    badge = json.loads((tmp_path / "folder" / "report.badge.json").read_text("utf-8"))
    assert badge == {
        "schemaVersion": 1,
        "label": "queue conformance",
        "message": f"not certified {_VERSIONS}",
        "color": "red",
    }


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
    result = pytester.runpytest_subprocess(
        "-n2", "-p", "no:cacheprovider", "--conformance-report=report.json"
    )
    assert result.ret == 0
    [driver] = json.loads((pytester.path / "report.json").read_text("utf-8"))["drivers"]
    assert driver["driver"] == "hypercube_queue_memory._queue.MemoryQueue"
    assert driver["absent"] == ["TransactionalPusher"]
    badge = json.loads((pytester.path / "report.badge.json").read_text("utf-8"))
    kept = driver["counts"]["kept"]
    assert (badge["message"], badge["color"]) == (f"{kept} rules kept {_VERSIONS}", "brightgreen")
    result.stdout.fnmatch_lines(
        [
            "*::TestChosen: certified; of 66 rules * kept, * not applicable",
            "*left out 13 tests: the driver declares no TransactionalPusher",
        ]
    )


def test_no_report_is_written_where_nothing_was_tested(pytester, tmp_path):
    """A run without a conformance class leaves no file that looks like evidence."""
    pytester.makepyfile("def test_other(): pass")
    pytester.runpytest_inprocess(f"--conformance-report={tmp_path / 'report.json'}")
    assert list(tmp_path.glob("report*")) == []
