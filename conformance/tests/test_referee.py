"""Every way to make a driver look better than it is fails."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

pytest_plugins = ["pytester"]

_GOOD = """
class TestChosen(QueueConformance):
    harness = MemoryHarness
"""


def test_an_honest_class_is_certified(certify):
    """Everything that applies passes, and what does not is listed with its reason."""
    result = certify(_GOOD, "-q")
    assert result.ret == 0
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed", "deselected"}
    result.stdout.fnmatch_lines(
        [
            "*queue conformance*",
            "*::TestChosen: certified; of 66 rules * kept, * not applicable",
            "*left out 13 tests: the driver declares no TransactionalPusher",
            "*left out * tests: the harness has no opener: this driver is memory of one process",
        ]
    )
    assert "not run" not in result.stdout.str()


def test_a_test_that_restarts_the_backend_gets_a_harness_for_it(certify):
    """And no other does, so the backend of the others goes on running."""
    result = certify(
        """
class Restarted(MemoryHarness):
    made_to_restart = False

    @classmethod
    def restartable(cls):
        harness = cls()
        harness.made_to_restart = True
        return harness

    def restart(self):
        assert self.made_to_restart


class TestChosen(QueueConformance):
    harness = Restarted
""",
        "-k",
        "life_2 or set_1_an_acked_message_is_gone",
    )
    outcomes = result.parseoutcomes()
    assert outcomes.pop("deselected") > 0
    assert outcomes == {"passed": 3}


# Skipping


@pytest.mark.parametrize(
    "cheat",
    [
        "@pytest.mark.skip(reason='later')\n" + _GOOD.strip(),
        "@pytest.mark.skipif(True, reason='later')\n" + _GOOD.strip(),
        "pytestmark = pytest.mark.skip(reason='later')\n" + _GOOD,
        "pytestmark = pytest.mark.xfail(reason='later', run=False)\n" + _GOOD,
        _GOOD
        + "\n    @pytest.fixture(autouse=True)\n    def skip(self):\n        pytest.skip('x')\n",
        _GOOD + "\n    def setup_method(self):\n        pytest.skip('x')\n",
    ],
    ids=["skip", "skipif", "pytestmark", "no run", "fixture", "setup"],
)
def test_skipping_is_failing(certify, cheat):
    """However it is done, the test that was skipped has failed."""
    result = certify(cheat, "-k", "set_1_an_acked_message_is_gone or push_6")
    outcomes = result.parseoutcomes()
    assert outcomes.pop("deselected") > 0
    assert set(outcomes) <= {"failed", "errors"}
    assert sum(outcomes.values()) == 2
    result.stdout.fnmatch_lines(["*was skipped. A conformance test cannot be*"])


def test_a_lenient_expectation_does_not_hide_a_failure(certify, pytester):
    """A mark that lets a test fail is worth nothing unless the class declares it."""
    pytester.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.xfail(strict=False))
        """
    )
    result = certify(
        """
        from broken_drivers import BatchGoesToTheFirstQueue

        class TestChosen(QueueConformance):
            harness = BatchGoesToTheFirstQueue
        """,
        "-k",
        "push_6",
    )
    assert result.ret == 1
    assert result.parseoutcomes()["failed"] == 1


# Overriding and removing


@pytest.mark.parametrize(
    ("cheat", "told"),
    [
        (
            "    def test_push_6_one_batch_may_name_several_queues(self): pass",
            "test_push_6_one_batch_may_name_several_queues is overridden",
        ),
        (
            "    test_push_6_one_batch_may_name_several_queues = None",
            "test_push_6_one_batch_may_name_several_queues is removed",
        ),
        (
            "    @pytest.fixture\n    def trial(self): return None",
            "trial is overridden",
        ),
        (
            "    expected_failures = {'test_no_such_thing': 'reason'}",
            "expected_failures names test_no_such_thing, which is no conformance test",
        ),
        (
            "    expected_failures = {'test_push_6_one_batch_may_name_several_queues': ' '}",
            "expected_failures gives no reason for test_push_6",
        ),
        ("    harness = MemoryHarness()", "harness is not a subclass of Harness"),
        ("    harness = Harness", "does not implement open"),
        (
            "    def pytest_generate_tests(self, metafunc): pass",
            "pytest_generate_tests is overridden",
        ),
        ("    __test__ = False", "__test__ is false, so pytest does not collect it"),
        ("    def __init__(self): pass", "it has a constructor, so pytest does not collect it"),
    ],
    ids=[
        "override",
        "none",
        "fixture",
        "unknown",
        "no reason",
        "instance",
        "abstract",
        "hook",
        "hidden",
        "constructor",
    ],
)
def test_a_class_that_weakens_the_suite_is_not_collected(certify, cheat, told):
    """The error says what is wrong with it."""
    result = certify(f"{_GOOD}{cheat}\n")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*cannot certify anything*", f"*{told}*"])


def test_a_test_removed_from_the_suite_itself_is_missed(certify, monkeypatch):
    """The referee knows the tests as they were when the suite was imported."""
    from hypercube_queue_conformance._groups.push import Push

    monkeypatch.delattr(Push, "test_push_6_one_batch_may_name_several_queues")
    result = certify(_GOOD)
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*test_push_6_one_batch_may_name_several_queues is removed*"])


def test_a_test_replaced_in_the_suite_itself_is_missed(certify, monkeypatch):
    """The same, where a group was patched."""
    from hypercube_queue_conformance._groups.push import Push

    name = "test_push_6_one_batch_may_name_several_queues"
    monkeypatch.setattr(Push, name, lambda self: None)
    result = certify(_GOOD)
    assert result.ret == 2
    result.stdout.fnmatch_lines([f"*{name} is overridden*"])


@pytest.mark.parametrize("announced", [True, False])
def test_tests_removed_after_collection_are_missed(certify, pytester, announced):
    """A conftest that filters items stops the run, even if it says so."""
    pytester.makeconftest(
        f"""
        def pytest_collection_modifyitems(config, items):
            gone = [item for item in items if "push_6" in item.name]
            items[:] = [item for item in items if item not in gone]
            if {announced}:
                config.hook.pytest_deselected(items=gone)
        """
    )
    result = certify(_GOOD)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*1 conformance tests were removed after collection*push_6*"])


def test_another_trial_fixture_is_noticed(certify, pytester):
    """A conftest cannot slip in a backend of its own making."""
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def trial():
            return object()
        """
    )
    result = certify(_GOOD, "-k", "push_6")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["*did not get the suite's own trial fixture*"])


def test_a_class_that_is_not_named_like_a_test_is_noticed(certify):
    """It would pass by never running."""
    result = certify(_GOOD.replace("TestChosen", "Chosen"))
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*Chosen cannot certify anything*", "*begin its name with Test*"])


def test_a_base_of_the_authors_own_is_fine(certify):
    """As long as it has no harness, and its subclasses have."""
    result = certify(
        """
        class MyBase(QueueConformance):
            pass

        class TestChosen(MyBase):
            harness = MemoryHarness

            def test_of_my_own(self):
                pass
        """,
        "-k",
        "push_6 or of_my_own",
    )
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] == 2


# Something else in the place of a test, of the suite or of the driver


_NOT_KEPT = """
from broken_drivers import BatchGoesToTheFirstQueue

class TestChosen(QueueConformance):
    harness = BatchGoesToTheFirstQueue
"""


@pytest.mark.parametrize(
    ("hooks", "told"),
    [
        (
            """
            @pytest.hookimpl(tryfirst=True)
            def pytest_pyfunc_call(pyfuncitem):
                return True
            """,
            "assert *b'0'*b'1'*== *b'0', b'3'*",
        ),
        (
            """
            @pytest.hookimpl(wrapper=True, tryfirst=True)
            def pytest_pyfunc_call(pyfuncitem):
                try:
                    return (yield)
                except BaseException:
                    return True
            """,
            "failed, which something hid",
        ),
        (
            """
            def pytest_itemcollected(item):
                item.runtest = lambda: None
            """,
            "did not run; something ran in its place",
        ),
        (
            """
            def pytest_collection_modifyitems(items):
                for item in items:
                    item.obj = lambda *args, **kwargs: None
            """,
            "assert *b'0'*b'1'*== *b'0', b'3'*",
        ),
        (
            """
            @pytest.hookimpl(tryfirst=True)
            def pytest_runtest_protocol(item, nextitem):
                from _pytest.runner import runtestprotocol
                runtestprotocol(item, log=False, nextitem=nextitem)
            """,
            "is run again; what passes only now and then is not kept",
        ),
    ],
    ids=["no call", "no exception", "no run", "another function", "run twice"],
)
def test_what_comes_between_pytest_and_a_test_is_noticed(certify, pytester, hooks, told):
    """The suite's own function is called, once, and what it raised is what is reported."""
    pytester.makeconftest("import pytest\n" + dedent(hooks))
    result = certify(_NOT_KEPT, "-k", "push_6")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([f"*{told}*", "*broken: PUSH-6*"])


@pytest.mark.parametrize(
    "hook",
    [
        """
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_call(item):
            try:
                return (yield)
            except BaseException:
                return None
        """,
        """
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(item):
            report = yield
            report.outcome = "passed"
            return report
        """,
    ],
    ids=["call", "report"],
)
def test_a_failure_that_is_made_a_success_afterwards_is_a_failure(certify, pytester, hook):
    """In the report, and in the exit status."""
    pytester.makeconftest("import pytest\n" + dedent(hook))
    result = certify(_NOT_KEPT, "-k", "push_6")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*broken: PUSH-6*"])


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ("monkeypatch.setattr(groups.push, 'failed', lambda *a: [])", "push.failed"),
        ("monkeypatch.setattr(trial.Trial, 'visible', lambda *a: [])", "Trial.visible"),
        ("monkeypatch.setattr(groups.pop, '_PROMPT_SECONDS', 1e9)", "pop._PROMPT_SECONDS"),
        (
            "monkeypatch.setattr(trial.failures, '__code__', (lambda *a: ()).__code__)",
            "_trial.failures",
        ),
    ],
    ids=["function", "method", "number", "code"],
)
def test_a_suite_that_is_patched_proves_nothing(certify, pytester, patch, told):
    """By a fixture that nobody asked for; the test says what was exchanged."""
    pytester.makeconftest(
        f"""
        import pytest
        from hypercube_queue_conformance import _groups as groups, _trial as trial
        import hypercube_queue_conformance._suite

        @pytest.fixture(autouse=True)
        def patched(monkeypatch):
            {patch}
        """
    )
    result = certify(_GOOD, "-k", "push_6")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([f"*{told} of the suite was exchanged*"])


def test_a_base_that_exchanges_tests_of_its_subclasses_is_noticed(certify):
    """Whatever way a test comes to be another one."""
    result = certify(
        """
        class Lenient(QueueConformance):
            def __init_subclass__(cls):
                cls.test_push_6_one_batch_may_name_several_queues = lambda self, trial: None

        class TestChosen(Lenient):
            harness = MemoryHarness
        """
    )
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*test_push_6_one_batch_may_name_several_queues is overridden*"])


def test_an_object_that_gives_away_other_methods_is_not_asked(certify):
    """The suite's function is called, not what an instance shows under its name."""
    result = certify(
        _NOT_KEPT
        + """
    def __getattribute__(self, name):
        if name.startswith("test_"):
            return lambda *args, **kwargs: None
        return object.__getattribute__(self, name)
""",
        "-k",
        "push_6",
    )
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["*broken: PUSH-6*"])


@pytest.mark.parametrize(
    ("fixture", "told"),
    [
        (
            "def caplog(): return type('Log', (), {'text': '', 'set_level': print})()",
            "did not get the suite's own caplog fixture",
        ),
        (
            """
def swapped(request, monkeypatch):
    monkeypatch.setattr(request.cls, 'harness', RealClockHarness)
""",
            "did not get the harness of its class",
        ),
        (
            """
def swapped(request, monkeypatch):
    from dataclasses import replace
    weaker = replace(MemoryHarness.guarantees, exact_attempts=False)
    monkeypatch.setattr(MemoryHarness, 'guarantees', weaker)
""",
            "what MemoryHarness declares has changed",
        ),
    ],
    ids=["caplog", "harness", "declaration"],
)
def test_what_a_fixture_exchanges_is_noticed(certify, fixture, told):
    """The harness, what it declares, and what pytest gives to tests."""
    source = "from memory_harness import RealClockHarness\n\n@pytest.fixture(autouse=True)\n"
    result = certify(f"{source}{fixture.strip()}\n{_GOOD}", "-k", "err_6_no_text")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([f"*{told}*"])


def test_a_harness_that_declares_less_by_itself_is_noticed(certify):
    """An object of the harness says what its class says."""
    result = certify(
        """
        from dataclasses import replace

        class TwoFaced(MemoryHarness):
            def __init__(self):
                super().__init__()
                self.guarantees = replace(MemoryHarness.guarantees, exact_attempts=False)

        class TestChosen(QueueConformance):
            harness = TwoFaced
        """,
        "-k",
        "push_6",
    )
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["*what TwoFaced declares has changed*"])


def test_a_harness_that_opens_different_drivers_is_noticed(certify):
    """A report speaks of one; which one stands in it."""
    result = certify(
        """
        from hypercube_queue_memory import MemoryQueue

        class Other(MemoryQueue):
            pass

        class Mixed(MemoryHarness):
            count = 0

            def open(self, **options):
                Mixed.count += 1
                return (Other if Mixed.count % 2 else MemoryQueue)(self.store, **options)

        class TestChosen(QueueConformance):
            harness = Mixed
        """,
        "-k",
        "pop_1_one_is or set_1_an_acked_message_is_gone or life_1_a_queue",
    )
    assert result.parseoutcomes()["failed"] >= 1
    result.stdout.fnmatch_lines(["*the harness opened a *Other and a *MemoryQueue; write one*"])


def test_guarantees_that_change_from_object_to_object_are_noticed(certify):
    """What is declared must hold for every object, not for the one that is asked."""
    result = certify(
        """
        from dataclasses import replace
        from hypercube_queue_memory import MemoryQueue

        class Changing(MemoryHarness):
            count = 0

            class queue_type(MemoryQueue):
                def __init__(self, *args, **options):
                    super().__init__(*args, **options)
                    Changing.count += 1
                    self.exact = Changing.count < 2

                @property
                def guarantees(self):
                    return replace(MemoryHarness.guarantees, exact_attempts=self.exact)

        class TestChosen(QueueConformance):
            harness = Changing
        """,
        "-k",
        "push_1_an or push_6 or set_1_an",
    )
    assert result.parseoutcomes()["failed"] >= 1
    result.stdout.fnmatch_lines(["*the guarantees of *queue_type change from object to object*"])


# Options


def test_the_parameter_that_fails_cannot_be_left_out(certify):
    """Every rule is kept or not applicable only where every test ran with all of them."""
    result = certify(_GOOD, "-k", "not dead")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*TestChosen: not certified; of 66 rules * kept, * not run*"])


@pytest.mark.parametrize(
    "option",
    ["--setup-plan", "--setup-only", "--collect-only", "-opython_functions=test_push_6*"],
)
def test_options_that_run_less_certify_nothing(certify, option):
    """Pytest is content with all of them."""
    result = certify(_GOOD, option)
    assert result.ret == 0
    assert not re.search(r"TestChosen: certified", result.stdout.str())


def test_expecting_everything_to_fail_certifies_nothing(certify):
    """What passes fails for being expected to fail."""
    result = certify(
        """
        from hypercube_queue_conformance._suite import TESTS

        class TestChosen(QueueConformance):
            harness = MemoryHarness
            expected_failures = dict.fromkeys(TESTS, "later")
        """,
        "-k",
        "push_6 or set_1",
    )
    assert result.ret == 1
    outcomes = result.parseoutcomes()
    assert outcomes.pop("deselected") > 0
    assert outcomes == {"failed": 4}


def test_without_asserts_nothing_is_certified(pytester, certify, monkeypatch):
    """Python -O leaves them out where pytest does not rewrite them."""
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    pytester.makepyfile(
        """
        from hypercube_queue_conformance import QueueConformance
        from memory_harness import MemoryHarness

        class TestChosen(QueueConformance):
            harness = MemoryHarness
        """
    )
    # That pytest warns of it must not be what stops it.
    options = ("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestConfigWarning")
    result = pytester.runpytest_subprocess("-k", "push_6", *options)
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*Python runs with -O, which leaves asserts out*"])


# Declaring too little and too much


def test_denying_a_capability_that_works_is_found(certify):
    """The driver has methods that the harness does not speak of."""
    result = certify(
        """
        class Denying(MemoryHarness):
            capabilities = MemoryHarness.capabilities - {Redriver}

        class TestChosen(QueueConformance):
            harness = Denying
        """,
        "-k",
        "cap_1",
    )
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["FAILED *cap_1*Redriver*"])


def test_declaring_a_capability_that_is_missing_is_found(certify):
    """The driver has none of its methods, and its tests fail."""
    result = certify(
        """
        from contextlib import nullcontext

        class Bragging(MemoryHarness):
            capabilities = MemoryHarness.capabilities | {TransactionalPusher}

            def transaction(self):
                return nullcontext()

            foreign_transaction = transaction

        class TestChosen(QueueConformance):
            harness = Bragging
        """,
        "-k",
        "cap_1 or txn_2",
    )
    assert result.parseoutcomes()["failed"] == 3
    result.stdout.fnmatch_lines(["*broken: TXN-2*", "*broken: CAP-1*"])


def test_declaring_a_capability_that_does_nothing_is_found(certify):
    """The methods are there, and do not do what they promise."""
    result = certify(
        """
        from hypercube_queue_memory import MemoryQueue

        class Idle(MemoryHarness):
            class queue_type(MemoryQueue):
                def redrive(self, queue_name, count):
                    return 0

        class TestChosen(QueueConformance):
            harness = Idle
        """,
        "-k",
        "red_",
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*broken: RED-1*"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("durable", "True"),
        ("ordering", "'best_effort'"),
        ("exact_attempts", "False"),
        ("max_delay", "timedelta(minutes=15)"),
        ("delay_lateness", "lambda delay: delay"),
    ],
)
def test_declaring_other_guarantees_than_the_drivers_is_found(certify, field, value):
    """Stronger or weaker: each field is compared."""
    result = certify(
        f"""
        from dataclasses import replace
        from datetime import timedelta

        class Differing(MemoryHarness):
            guarantees = replace(MemoryHarness.guarantees, {field}={value})

        class TestChosen(QueueConformance):
            harness = Differing
        """,
        "-k",
        "gua_1_each",
    )
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([f"FAILED *gua_1_each*{field}*"])


def test_a_limit_that_driver_and_harness_agree_on_is_exercised(certify):
    """Saying 15 minutes and taking longer delays is found, although both say the same."""
    result = certify(
        """
        from dataclasses import replace
        from datetime import timedelta
        from hypercube_queue_memory import MemoryQueue

        weaker = replace(MemoryHarness.guarantees, max_delay=timedelta(minutes=15))

        class Modest(MemoryHarness):
            guarantees = weaker

            class queue_type(MemoryQueue):
                guarantees = weaker

                def push(self, *messages):
                    type(self).guarantees = MemoryHarness.guarantees
                    try:
                        super().push(*messages)
                    finally:
                        type(self).guarantees = weaker

        class TestChosen(QueueConformance):
            harness = Modest
        """,
        "-k",
        "gua_1",
    )
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["FAILED *gua_1_the_longest_delay_is_where_it_is_declared*"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("del opener", "opener is neither a method nor Unavailable"),
        ("guarantees = None", "guarantees is not declared"),
        ("capabilities = {1}", "capabilities is not declared"),
        ("capabilities = frozenset({int})", "capabilities names"),
        ("capabilities = frozenset({TransactionalPusher})", "transaction must be a method"),
        ("capabilities = frozenset({TransactionalPusher})", "foreign_transaction must be a method"),
        ("pace = 0.1", "pace is 0.1; it is at least 1"),
        ("pace = 60", "pace is 60; it is at least 1 and at most 20"),
        ("backlog = 100", "backlog is 100; fewer than 1000 show nothing"),
    ],
)
def test_a_harness_that_leaves_something_open_is_not_collected(certify, line, told):
    """What it cannot do it must say."""
    base = "Harness" if line.startswith("del") else "MemoryHarness"
    body = (
        "    capabilities = frozenset()\n    guarantees = MemoryHarness.guarantees\n"
        "    def open(self, **options): return None\n"
        if base == "Harness"
        else f"    {line}\n"
    )
    result = certify(
        f"class Mine({base}):\n{body}\nclass TestChosen(QueueConformance):\n    harness = Mine\n"
    )
    assert result.ret == 2
    result.stdout.fnmatch_lines([f"*{told}*"])


# Expected failures


def test_a_declared_failure_is_shown_as_known(certify):
    """It fails no run, and the driver is not certified."""
    result = certify(
        """
        from broken_drivers import NewestComesFirst

        class TestChosen(QueueConformance):
            harness = NewestComesFirst
            expected_failures = {
                "test_pop_10_a_single_consumer_sees_push_order": "issue 12",
                "test_pop_10_nothing_is_passed_over_for_ever": "issue 12",
            }
        """,
        "-k",
        "pop_10",
    )
    assert result.ret == 0
    assert result.parseoutcomes()["xfailed"] == 2
    result.stdout.fnmatch_lines(["*not certified;*1 known to fail*", "*known to fail: POP-10*"])


def test_a_declared_failure_that_passes_fails(certify):
    """The entry must go once the rule is kept."""
    result = certify(
        """
        class TestChosen(QueueConformance):
            harness = MemoryHarness
            expected_failures = {"test_push_6_one_batch_may_name_several_queues": "issue 12"}
        """,
        "-k",
        "push_6",
    )
    assert result.ret == 1
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["*XPASS(strict)*issue 12*"])


# What people see


def test_a_part_of_the_suite_can_be_run_and_certifies_nothing(certify):
    """Choosing tests at the command line is working, not cheating."""
    result = certify(_GOOD, "-k", "push_6")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*TestChosen: not certified; of 66 rules 1 kept, * not run,*"])


def test_a_failure_shows_the_rule_and_the_values(certify):
    """The statement of the rule, the promise of the test, and what differed."""
    result = certify(
        """
        from broken_drivers import BatchGoesToTheFirstQueue

        class TestChosen(QueueConformance):
            harness = BatchGoesToTheFirstQueue
        """,
        "-k",
        "push_6",
    )
    result.stdout.fnmatch_lines(
        [
            "E*assert *b'0'*b'1'*== *b'0', b'3'*",
            "*the rule*",
            "PUSH-6: One batch may name several queues.",
            "Each message of a batch goes to the queue it names.",
        ]
    )


@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_suite_does_not_run_without_the_referee(certify, pytester, monkeypatch, by):
    """Switching the plugin off, or all plugins, is an error of collection."""
    pytester.makepyfile(
        """
        from hypercube_queue_conformance import QueueConformance
        from memory_harness import MemoryHarness

        class TestChosen(QueueConformance):
            harness = MemoryHarness
        """
    )
    if by == "environment":
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        result = pytester.runpytest_subprocess()
    else:
        result = pytester.runpytest_subprocess("-p", "no:hypercube_conformance")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*TestChosen proves nothing without the suite's pytest plugin*"])


def test_a_stand_in_for_the_referee_is_no_referee(certify, pytester):
    """A plugin of its name, and the real one taken away: collection fails, or each test."""
    pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(trylast=True)
        def pytest_configure(config):
            name = "hypercube_conformance_referee"
            config.pluginmanager.unregister(name=name)
            config.pluginmanager.register(object(), name)
        """
    )
    result = certify(_GOOD, "-k", "push_6")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*TestChosen proves nothing without the suite's pytest plugin*"])
    pytester.makeconftest(
        """
        def pytest_collection_finish(session):
            session.config.pluginmanager.unregister(name="hypercube_conformance_referee")
        """
    )
    result = certify(_GOOD, "-k", "push_6")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*the suite's pytest plugin was taken away*"])


def test_the_referee_leaves_other_tests_alone(certify):
    """Skips and expected failures of ordinary tests are what they always were."""
    result = certify(
        """
        @pytest.mark.skip
        def test_skipped(): pass

        @pytest.mark.xfail
        def test_expected(): assert False

        def test_passing(): pass
        """
    )
    assert result.parseoutcomes() == {"skipped": 1, "xfailed": 1, "passed": 1}
    assert "queue conformance" not in result.stdout.str()
