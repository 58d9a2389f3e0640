"""Setup, boot and shutdown."""

from __future__ import annotations

import logging
import pickle
import re

import pytest

from hypercube_plugins import (
    Application,
    DependencyCycle,
    LifecycleError,
    PluginError,
    PluginFailed,
    ShutdownFailed,
    UnmetRequirements,
)


def stages(log: list[tuple[str, str]], stage: str) -> list[str]:
    return [name for each, name in log if each == stage]


def test_every_register_comes_before_any_boot(noted, log) -> None:
    """Both in the order of requirements."""
    application = Application(noted("shop", "mail"), noted("mail"))
    application.setup()
    application.boot()

    assert log == [("register", "mail"), ("register", "shop"), ("boot", "mail"), ("boot", "shop")]


def test_shutdown_runs_in_reverse(noted, log) -> None:
    """What is required outlives those that require it."""
    application = Application(noted("shop", "mail"), noted("mail"), noted("stock"))
    application.setup()
    application.boot()
    application.shutdown()

    assert stages(log, "boot") == ["mail", "shop", "stock"]
    assert stages(log, "shutdown") == ["stock", "shop", "mail"]


def test_boot_before_setup_is_an_error(noted, log) -> None:
    """It says which call is missing."""
    application = Application(noted("mail"))

    with pytest.raises(LifecycleError, match=r"boot\(\) comes after setup\(\).* was not called"):
        application.boot()

    assert log == []


def test_what_is_added_after_setup_is_an_error(noted) -> None:
    """Plugins, by hand or discovered, and services."""
    application = Application(noted("mail"))
    application.setup()

    for call in (
        lambda: application.add(noted("shop")),
        application.discover,
        lambda: application.provide(int).value(3),
        lambda: application.provide(int).factory(lambda _: 3),
    ):
        with pytest.raises(LifecycleError, match=r"before setup\(\), and setup\(\) was called$"):
            call()

    assert [each.name for each in application.order()] == ["mail"]


def test_both_passes_may_be_repeated(noted, log) -> None:
    """Once they succeeded, they do nothing."""
    application = Application(noted("mail"))
    application.setup()
    application.setup()
    application.boot()
    application.setup()
    application.boot()

    assert log == [("register", "mail"), ("boot", "mail")]


def test_shutdown_does_nothing_where_nothing_is_up(noted, log) -> None:
    """Before setup, before boot, and twice."""
    application = Application(noted("mail"))
    application.shutdown()
    application.setup()
    application.shutdown()
    application.boot()
    application.shutdown()
    application.shutdown()

    assert log == [("register", "mail"), ("boot", "mail"), ("shutdown", "mail")]


def test_an_application_may_boot_again_after_shutdown(noted, log) -> None:
    """As tests do, one after another; what is registered stays."""
    application = Application(noted("mail"))
    with application:
        pass
    with application:
        pass

    assert stages(log, "register") == ["mail"]
    assert stages(log, "boot") == ["mail", "mail"]
    assert stages(log, "shutdown") == ["mail", "mail"]


def test_a_failing_register_names_the_plugin_and_the_pass(noted, log) -> None:
    """The cause is kept, the plugins after it are not registered, and nothing is up."""
    application = Application(noted("a"), noted("b", fails=["register"]), noted("c"))

    with pytest.raises(PluginFailed) as raised:
        application.setup()
    application.shutdown()

    error = raised.value
    assert str(error) == "the plugin b failed in register: OSError: b cannot register"
    assert (error.plugin, error.stage) == ("b", "register")
    assert isinstance(error.__cause__, OSError)
    assert log == [("register", "a"), ("register", "b")]


def test_after_a_failing_register_there_is_no_way_on(noted) -> None:
    """Some contributions are made and some are not: neither pass can be repeated."""
    application = Application(noted("a", fails=["register"]))
    with pytest.raises(PluginFailed):
        application.setup()
    application.shutdown()

    for call in (application.setup, application.boot, lambda: application.add(noted("b"))):
        with pytest.raises(LifecycleError, match="make a new application"):
            call()


def test_a_failing_boot_leaves_up_what_is_up_for_shutdown(noted, log) -> None:
    """Those before it, in reverse order; not the one that failed."""
    application = Application(noted("a"), noted("b"), noted("c", fails=["boot"]), noted("d"))
    application.setup()

    with pytest.raises(PluginFailed) as raised:
        application.boot()
    assert stages(log, "shutdown") == []
    application.shutdown()

    assert str(raised.value) == "the plugin c failed in boot: OSError: c cannot boot"
    assert (raised.value.plugin, raised.value.stage) == ("c", "boot")
    assert isinstance(raised.value.__cause__, OSError)
    assert stages(log, "boot") == ["a", "b", "c"]
    assert stages(log, "shutdown") == ["b", "a"]


def test_a_failed_boot_is_repeated_only_after_shutdown(noted, log) -> None:
    """So that nothing boots twice without a shutdown in between."""
    failing = noted("b", fails=["boot"])
    application = Application(noted("a"), failing)
    application.setup()
    with pytest.raises(PluginFailed):
        application.boot()

    with pytest.raises(LifecycleError, match=r"call shutdown\(\), which stops what is up"):
        application.boot()
    application.shutdown()
    failing.fails = []
    application.boot()

    assert stages(log, "boot") == ["a", "b", "a", "b"]
    assert stages(log, "shutdown") == ["a"]


def test_shutdown_goes_on_after_an_error_and_reports_all(noted, log) -> None:
    """Each with its plugin and its cause, in one error."""
    application = Application(
        noted("a", fails=["shutdown"]), noted("b"), noted("c", fails=["shutdown"])
    )
    application.setup()
    application.boot()

    with pytest.raises(ShutdownFailed) as raised:
        application.shutdown()

    assert stages(log, "shutdown") == ["c", "b", "a"]
    assert [(each.plugin, each.stage) for each in raised.value.exceptions] == [
        ("c", "shutdown"),
        ("a", "shutdown"),
    ]
    assert all(isinstance(each.__cause__, OSError) for each in raised.value.exceptions)
    assert str(raised.value) == (
        "2 of the plugins failed to shut down: "
        "the plugin c failed in shutdown: OSError: c cannot shutdown; "
        "the plugin a failed in shutdown: OSError: a cannot shutdown"
    )


def test_a_failed_shutdown_is_over(noted, log) -> None:
    """All had their turn; the next one finds nothing up, and boot is possible."""
    application = Application(noted("a", fails=["shutdown"]))
    application.setup()
    application.boot()
    with pytest.raises(ShutdownFailed):
        application.shutdown()

    application.shutdown()
    application.boot()

    assert stages(log, "shutdown") == ["a"]
    assert stages(log, "boot") == ["a", "a"]


def test_shutdown_errors_can_be_told_apart() -> None:
    """By `except*`, and split, with the type of the group kept."""
    errors = [PluginFailed(name, "shutdown", OSError(name)) for name in "ab"]
    group = ShutdownFailed("2 of the plugins failed to shut down", errors)

    matching, rest = group.split(lambda error: getattr(error, "plugin", "") == "a")

    assert isinstance(group, PluginError)
    assert type(matching) is ShutdownFailed
    assert matching.exceptions == (errors[0],)
    assert rest.exceptions == (errors[1],)
    assert type(group.derive([ValueError()])) is ExceptionGroup


def test_a_with_block_sets_up_boots_and_shuts_down(noted, log) -> None:
    """And gives the application."""
    application = Application(noted("a"))

    with application as entered:
        log.append(("body", ""))

    assert entered is application
    assert [stage for stage, _ in log] == ["register", "boot", "body", "shutdown"]


def test_a_with_block_shuts_down_after_an_error_of_its_body(noted, log) -> None:
    """And the error comes out."""
    with pytest.raises(KeyError), Application(noted("a")):
        raise KeyError

    assert stages(log, "shutdown") == ["a"]


def test_a_with_block_stops_what_is_up_when_boot_fails(noted, log) -> None:
    """The error is that of the boot; what then fails to stop is in its notes."""
    application = Application(
        noted("a", fails=["shutdown"]), noted("b"), noted("c", fails=["boot"])
    )

    with pytest.raises(PluginFailed) as raised, application:
        log.append(("body", ""))

    assert (raised.value.plugin, raised.value.stage) == ("c", "boot")
    (note,) = raised.value.__notes__
    assert note == (
        "1 of the plugins failed to shut down: "
        "the plugin a failed in shutdown: OSError: a cannot shutdown"
    )
    assert stages(log, "shutdown") == ["b", "a"]
    assert stages(log, "body") == []


def test_a_with_block_lets_errors_of_setup_out(noted, log) -> None:
    """Nothing was up."""
    for wrong in (noted("a", "b"), noted("a", "a"), noted("a", fails=["register"])):
        expected = (UnmetRequirements, DependencyCycle, PluginFailed)
        with pytest.raises(expected), Application(wrong):
            log.append(("body", ""))

    assert log == [("register", "a")]


def test_an_interrupted_shutdown_goes_on_at_the_next_call(noted, log) -> None:
    """KeyboardInterrupt comes out at once, with what failed before it in its notes."""
    application = Application(noted("a"), noted("b"), noted("c", fails=["shutdown"]))
    application.setup()
    application.boot()
    interrupt = application._plugins["b"]
    interrupt.shutdown = lambda services: _raise(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt) as raised:
        application.shutdown()
    assert stages(log, "shutdown") == ["c"]
    with pytest.raises(LifecycleError):
        application.boot()
    application.shutdown()

    assert raised.value.__notes__ == ["the plugin c failed in shutdown: OSError: c cannot shutdown"]
    assert stages(log, "shutdown") == ["c", "a"]


def test_an_interrupted_boot_leaves_up_what_is_up(noted, log) -> None:
    """KeyboardInterrupt comes out as it is."""
    application = Application(noted("a"), noted("b"))
    application.setup()
    application._plugins["b"].boot = lambda services: _raise(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        application.boot()
    application.shutdown()

    assert stages(log, "shutdown") == ["a"]


@pytest.mark.parametrize(
    ("stage", "calls"),
    [
        ("register", ["setup", "boot", "shutdown"]),
        ("boot", ["boot", "shutdown"]),
        ("shutdown", ["boot", "shutdown"]),
    ],
)
def test_a_plugin_cannot_drive_its_application(noted, stage: str, calls: list[str]) -> None:
    """A call from within a pass says which pass is under way."""
    plugin = noted("a")
    application = Application(plugin)
    texts = []

    def drive(_: object) -> None:
        for call in calls:
            with pytest.raises(LifecycleError) as raised:
                getattr(application, call)()
            texts.append(str(raised.value))

    setattr(plugin, stage, drive)
    with application:
        pass

    way = {"register": "setup", "boot": "boot", "shutdown": "shutdown"}[stage]
    assert len(texts) == len(calls)
    assert all(re.search(rf"{way}\(\) is under way$", text) for text in texts)


def test_each_step_is_logged_at_debug_level(noted, caplog: pytest.LogCaptureFixture) -> None:
    """So that one sees where a start hangs."""
    caplog.set_level(logging.DEBUG, "hypercube_plugins")
    with Application(noted("a", version="2.0")):
        pass

    assert [record.getMessage() for record in caplog.records] == [
        "register a 2.0",
        "boot a 2.0",
        "shutdown a 2.0",
    ]


@pytest.mark.parametrize(
    "error",
    [
        PluginFailed("mail", "boot", OSError("no")),
        DependencyCycle(["a", "b", "a"]),
        UnmetRequirements([]),
    ],
)
def test_errors_can_be_sent_to_another_process(error: PluginError) -> None:
    """They read the same there."""
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def _raise(error: BaseException) -> None:
    raise error
