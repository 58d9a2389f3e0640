"""`hypercube plugins`, and the commands that plugins contribute."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from hypercube_plugins import (
    Application,
    AsyncApplication,
    InvalidPlugin,
    LifecycleError,
    Plugin,
    Registration,
)
from hypercube_plugins.commands import Commands
from hypercube_plugins.commands._plugins import plugins

GROUP = "hypercube.plugins"
SHOP = """
from hypercube_plugins import Application, Plugin
class Mail(Plugin):
    name = "mail"
    version = "1.2"
class Shop(Plugin):
    name = "shop"
    version = "2.0"
    requires = ["mail>=1"]
    def register(self, registration):
        raise AssertionError("looking registers nothing")
application = Application(Shop(), Mail())
empty = Application()
unmet = Application(Shop(), requires=["search"])
ring = Application(type("A", (Plugin,), {"name": "a", "version": "1", "requires": ["a"]})())
"""
#: Of this environment, which these tests run in.
HYPERCUBE = Path(sys.executable).with_name("hypercube")


def show(*arguments: str) -> Result:
    """Run `hypercube plugins` as a shell would."""
    app = typer.Typer()
    app.command()(plugins)
    return CliRunner().invoke(app, arguments)


def output_of(*arguments: str) -> str:
    result = show(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return str(result.stdout)


def error_of(code: int, *arguments: str) -> str:
    result = show(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("hypercube: ")
    return str(result.stderr.removeprefix("hypercube: ").rstrip("\n"))


@pytest.fixture
def shop(installed) -> None:
    """The module shop_of_test, with applications, and its plugins as entry points."""
    entry_points = ["mail = shop_of_test:Mail", "shop = shop_of_test:Shop"]
    installed("shop", "1", {"shop_of_test": SHOP}, {GROUP: entry_points})


@pytest.mark.parametrize("arguments", [[], ["shop_of_test:application"]])
@pytest.mark.usefixtures("shop")
def test_the_tree_is_shown(arguments: list[str]) -> None:
    """Of all plugins that are installed, or of those of an application."""
    assert output_of(*arguments).splitlines() == ["mail 1.2", "shop 2.0", "└── mail>=1 (1.2)"]


@pytest.mark.usefixtures("shop")
def test_a_diagram_is_written_on_request() -> None:
    """For Mermaid."""
    assert output_of("--graph").splitlines() == [
        "flowchart TD",
        '    p0["mail 1.2"]',
        '    p1["shop 2.0"]',
        '    p1 -->|">=1"| p0',
    ]


@pytest.mark.usefixtures("shop")
def test_json_is_written_on_request() -> None:
    """An array, in the order in which they start."""
    assert json.loads(output_of("shop_of_test:application", "--json")) == [
        {"name": "mail", "version": "1.2", "requires": []},
        {
            "name": "shop",
            "version": "2.0",
            "requires": [{"name": "mail", "versions": ">=1", "found": "1.2"}],
        },
    ]


@pytest.mark.usefixtures("shop")
def test_an_application_without_plugins_says_so() -> None:
    """In a sentence for people, an empty array for programs."""
    assert output_of("shop_of_test:empty") == "there are no plugins\n"
    assert json.loads(output_of("shop_of_test:empty", "--json")) == []


@pytest.mark.usefixtures("shop")
def test_what_stops_setup_stops_it_too() -> None:
    """With all that is unmet, or the path of the cycle."""
    assert error_of(1, "shop_of_test:unmet").splitlines() == [
        "2 requirements are not met:",
        "  the application needs search, which is not here",
        "  shop 2.0 needs mail>=1, which is not here",
    ]
    assert error_of(1, "shop_of_test:ring") == "these plugins need each other: a -> a"


def test_an_installed_plugin_that_fails_to_import_is_reported(installed) -> None:
    """As setup would; what a terminal would act on is not passed on."""
    module = {"broken_of_test": "raise ValueError('no\\x1b[31m')"}
    installed("d", "1", module, {GROUP: ["mail = broken_of_test:Mail"]})

    assert error_of(1) == (
        "the application needs mail, which cannot be loaded from broken_of_test:Mail of d 1: "
        "ValueError: no\N{REPLACEMENT CHARACTER}[31m"
    )


def test_two_installed_plugins_of_one_name_are_reported(installed) -> None:
    """With where they come from."""
    installed("d", "1", {}, {GROUP: ["mail = one:Mail"]})
    installed("e", "2", {}, {GROUP: ["mail = two:Mail"]})

    assert error_of(1).startswith("several distributions offer a plugin 'mail': ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["shop"], "'shop' is not MODULE:ATTRIBUTE, such as shop:application"),
        (["shop_of_test:"], "'shop_of_test:' is not MODULE:ATTRIBUTE"),
        (["nowhere:application"], "nowhere:application cannot be loaded: ModuleNotFoundError: "),
        (["shop_of_test:other"], "shop_of_test:other cannot be loaded: AttributeError: "),
        (["shop_of_test:Mail"], "shop_of_test:Mail is no application, but of type type"),
        (["--graph", "--json"], "--graph and --json are two ways to write; give one of them"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_a_command_line_that_makes_no_sense_exits_with_two(arguments: list[str], text: str) -> None:
    """In one line, without a traceback."""
    assert error_of(2, *arguments).startswith(text)


def test_it_is_a_subcommand_of_hypercube(tmp_path: Path) -> None:
    """By an entry point of this distribution; the module is found in the current folder."""
    (tmp_path / "shop_here.py").write_text(SHOP)

    done = subprocess.run(
        [HYPERCUBE, "plugins", "shop_here:application"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["mail 1.2", "shop 2.0", "└── mail>=1 (1.2)"]


# What plugins contribute


class Sample(Plugin):
    """A plugin that registers what a test says, and notes that it is up."""

    name = "mail"
    version = "1"

    def __init__(
        self, register: Callable[[Registration], object], log: list[tuple[str, str]]
    ) -> None:
        self._register = register
        self._log = log

    def register(self, registration: Registration) -> None:
        self._register(registration)

    def boot(self, services) -> None:
        self._log.append(("boot", self.name))

    def shutdown(self, services) -> None:
        self._log.append(("shutdown", self.name))


def commands_of(
    register: Callable[[Registration], object], log: list, sort: type = Application
) -> Commands:
    application = sort(Sample(register, log))
    commands = Commands(application, name="shop")
    application.setup()
    return commands


def run(commands: Commands, *arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments)


def test_a_command_of_a_plugin_runs_while_the_application_is_booted(log) -> None:
    """In a group of the plugin's name; with parameters as Typer reads them."""

    def register(registration: Registration) -> None:
        @registration.own(Commands).command()
        def resend(order: int, *, loud: bool = False) -> None:
            """Send it again."""
            log.append(("resend", f"{order} {loud}"))

        @registration.own(Commands).command("drop-all")
        def drop() -> None: ...

        resend(1)

    commands = commands_of(register, log)
    del log[:]
    result = run(commands, "mail", "resend", "7", "--loud")

    assert (result.exit_code, result.output) == (0, "")
    assert log == [("boot", "mail"), ("resend", "7 True"), ("shutdown", "mail")]
    assert run(commands, "mail", "drop-all").exit_code == 0


def test_groups_may_have_groups(log) -> None:
    """Whose commands run in the booted application as well."""

    def register(registration: Registration) -> None:
        @registration.own(Commands).under("queue").command()
        def show() -> None:
            log.append(("show", ""))

    assert run(commands_of(register, log), "mail", "queue", "show").exit_code == 0
    assert log == [("boot", "mail"), ("show", ""), ("shutdown", "mail")]


def test_asking_for_help_boots_nothing(log) -> None:
    """Nor does a command line that makes no sense."""

    def register(registration: Registration) -> None:
        @registration.own(Commands).command()
        def resend(order: int) -> None:
            """Send it again."""

        @registration.own(Commands).command()
        def drop() -> None: ...

    commands = commands_of(register, log)

    assert "Send it again." in run(commands, "mail", "resend", "--help").output
    assert "Commands of mail." in run(commands, "--help").output
    assert run(commands, "mail", "resend", "x").exit_code == 2
    assert log == []


def test_a_failing_boot_is_told_in_one_line(log) -> None:
    """Without a traceback; the command does not run."""

    def register(registration: Registration) -> None:
        @registration.own(Commands).command()
        def resend() -> None:
            log.append(("resend", ""))

        @registration.own(Commands).command()
        def drop() -> None: ...

    application = Application(Sample(register, log))
    commands = Commands(application)
    application.setup()
    application._plugins["mail"].boot = lambda _: 1 / 0
    result = run(commands, "mail", "resend")

    assert result.exit_code == 1
    assert result.stderr == (
        "hypercube: the plugin mail failed in boot: ZeroDivisionError: division by zero\n"
    )
    assert log == []


def test_an_asynchronous_application_takes_coroutine_functions(log) -> None:
    """And plain ones; both run on the event loop that it is booted on."""
    loops = []

    def register(registration: Registration) -> None:
        group = registration.own(Commands)

        @group.command()
        async def resend(order: int) -> None:
            await asyncio.sleep(0)
            loops.append(asyncio.get_running_loop())
            log.append(("resend", str(order)))

        @group.command()
        def drop() -> None:
            loops.append(asyncio.get_running_loop())

    commands = commands_of(register, log, AsyncApplication)

    assert run(commands, "mail", "resend", "7").exit_code == 0
    assert log == [("boot", "mail"), ("resend", "7"), ("shutdown", "mail")]
    assert run(commands, "mail", "drop").exit_code == 0
    assert len(loops) == 2


def test_a_synchronous_application_refuses_them(log) -> None:
    """Nobody would await them."""

    def register(registration: Registration) -> None:
        async def resend() -> None: ...

        with pytest.raises(InvalidPlugin, match=r"^the command resend is a coroutine function"):
            registration.own(Commands).command()(resend)

    commands_of(register, log)


def test_commands_are_offered_before_setup() -> None:
    """Later nobody could contribute any."""
    application = Application()
    application.setup()

    with pytest.raises(LifecycleError):
        Commands(application)
