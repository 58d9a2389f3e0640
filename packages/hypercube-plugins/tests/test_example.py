"""The example application, from end to end: plugins, jobs and commands."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from hypercube_jobs import Jobs, Scheduler, Worker
from hypercube_plugins import (
    Application,
    AsyncApplication,
    AsyncPlugin,
    Registration,
    Services,
    UnmetRequirements,
)
from hypercube_queue_memory import MemoryQueue, MemoryStore

EXAMPLES = Path(__file__).parents[1] / "examples"
BIN = Path(sys.executable).parent


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., str]:
    """Runs a command in the folder of the examples, with the shop's files in a folder of its own.

    Gives what the command wrote to standard output.
    """
    environment = {
        **os.environ,
        "SHOP_FOLDER": str(tmp_path),
        "PYTHONIOENCODING": "utf-8",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(tmp_path / "shop-1.0"), os.environ.get("PYTHONPATH")])
        ),
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            [BIN / command[0], *command[1:]],
            cwd=EXAMPLES,
            env=environment,
            check=False,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def shop_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example's plugins, to make applications of."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(EXAMPLES)
    yield importlib.import_module("shop_plugins")
    for module in set(sys.modules) - before:
        del sys.modules[module]


def joined(jobs: Jobs, *plugins: object) -> Application:
    """An application as shop.py makes it, with these plugins and without commands."""
    application = Application(*plugins)
    application.provide(Jobs).value(jobs)
    application.setup()
    return application


def test_an_order_goes_through_all_three_plugins(shell, tmp_path: Path) -> None:
    """A command dispatches a job, whose handler uses services, which dispatch jobs again."""
    assert shell("python", "shop.py", "orders", "place", "7") == "order 7 is placed\n"
    assert shell("python", "shop.py", "work") == ""
    assert shell("python", "shop.py", "mail", "sent") == "To ada@example.com: your order 7\n"
    assert (tmp_path / "sms.txt").read_text() == "555-0100: order 7 is on its way\n"


def test_the_commands_of_plugins_are_commands_of_hypercube(installed, shell, tmp_path) -> None:
    """Where the application is a distribution with an entry point."""
    installed("shop", "1.0", {}, {"hypercube.commands": ["shop = shop:commands"]})
    folder = tmp_path / "shop-1.0"
    for file in ("shop.py", "shop_plugins"):
        (folder / file).symlink_to(EXAMPLES / file)

    assert shell("hypercube", "shop", "orders", "place", "8") == "order 8 is placed\n"
    assert "Commands of mail." in shell("hypercube", "shop", "--help")


@pytest.mark.parametrize("options", [(), ("--processes", "1")])
def test_a_worker_of_the_command_line_boots_the_application(
    shell, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """In each of its processes; what it opens is closed at the end."""
    shell("python", "shop.py", "orders", "place", "9")

    shell("hypercube", "work", "shop:jobs", "--stop-when-empty", *options)

    assert (tmp_path / "mail.txt").read_text() == "To ada@example.com: your order 9\n"


HOSTED = """
from dataclasses import dataclass
from hypercube_jobs import Jobs
from hypercube_plugins import Application, AsyncApplication, Plugin
from hypercube_queue import open_queue

@dataclass
class Note:
    text: str

class Part(Plugin):
    name = "part"
    version = "1"

    def register(self, registration):
        registration.own(Jobs).handler("note")(note)

    def boot(self, services):
        if FAILS:
            raise OSError("no mail server")
        print("up", flush=True)

    def shutdown(self, services):
        print("down", flush=True)

def note(job: Note):
    print("ran", flush=True)

FAILS = False
jobs = Jobs(open_queue("sqlite:///jobs.db"))
application = Application(Part())
application.provide(Jobs).value(jobs)
"""


@pytest.fixture
def work(tmp_path: Path) -> Callable[[str], tuple[int, str, str]]:
    """Runs `hypercube work` on an application with this source: exit code, output and errors."""

    def run(source: str) -> tuple[int, str, str]:
        (tmp_path / "part_app.py").write_text(source)
        done = subprocess.run(
            [BIN / "hypercube", "work", "part_app:jobs", "--stop-when-empty"],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_an_application_that_is_not_set_up_yet_is_booted_as_well(work) -> None:
    """Its plugins declare their jobs then, and are up before the first one runs."""
    setup = "application.setup()\njobs.under('part').dispatch(Note('x'))\n"
    assert work(HOSTED)[:2] == (0, "up\ndown\n")
    assert work(HOSTED + setup)[:2] == (0, "up\nran\ndown\n")


def test_an_application_that_does_not_start_ends_the_command(work) -> None:
    """Before a job is taken, with the reason in one line."""
    code, output, errors = work(HOSTED.replace("FAILS = False", "FAILS = True"))
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(
        "hypercube: starting the Application of part_app:jobs failed: PluginFailed: "
    )
    assert "no mail server" in errors


def test_an_asynchronous_application_is_not_booted_and_that_is_said(work) -> None:
    """There is no event loop that its plugins and handlers share."""
    source = HOSTED.replace("= Application(", "= AsyncApplication(") + "application.setup()\n"
    code, output, errors = work(source)
    assert (code, output) == (0, "")
    assert "WARNING the AsyncApplication of part_app:jobs is not started" in errors


def test_the_plugins_are_shown(shell) -> None:
    """In the order in which they start, as a tree and as a diagram."""
    assert shell("hypercube", "plugins", "shop:application").splitlines() == [
        "mail 1.2.0",
        "sms 2.0.1",
        "orders 3.1",
        "├── mail>=1.2,<2 (1.2.0)",
        "└── sms~=2.0 (2.0.1)",
    ]
    assert shell("hypercube", "plugins", "shop:application", "--graph").splitlines() == [
        "flowchart TD",
        '    p0["mail 1.2.0"]',
        '    p1["sms 2.0.1"]',
        '    p2["orders 3.1"]',
        '    p2 -->|"<2,>=1.2"| p0',
        '    p2 -->|"~=2.0"| p1',
    ]


def test_equal_job_names_of_two_plugins_do_not_clash(shop_plugins, tmp_path: Path) -> None:
    """Each job runs by the handler of its own plugin; its message carries the plugin's name."""
    jobs = Jobs(MemoryQueue())
    application = joined(jobs, shop_plugins.Mail(tmp_path), shop_plugins.SMS(tmp_path))
    jobs.under("mail").dispatch_kind("send", {"to": "ada", "text": "hello"})
    jobs.under("sms").dispatch_kind("send", {"number": "1", "text": "hi"})
    waiting = jobs.queue.pop("default", 2)
    jobs.queue.release(*waiting)

    with application:
        Worker(jobs, stop_when_empty=True).run()

    assert (tmp_path / "mail.txt").read_text() == "To ada: hello\n"
    assert (tmp_path / "sms.txt").read_text() == "1: hi\n"
    assert {(each.namespace, each.job_name) for each in waiting} == {
        ("mail", "send"),
        ("sms", "send"),
    }


def test_periodic_jobs_of_two_plugins_do_not_clash(shop_plugins, tmp_path: Path) -> None:
    """Both are called `daily`, are due at one time, and are dispatched once each."""
    now = datetime(2026, 1, 1, 5, 59, 15, tzinfo=UTC)
    seconds = 0.0
    queue = MemoryQueue(MemoryStore(clock=lambda: seconds))
    jobs = Jobs(queue, clock=lambda: now)
    plugins = [shop_plugins.Orders(), shop_plugins.Mail(tmp_path), shop_plugins.SMS(tmp_path)]
    application = joined(jobs, *plugins)

    Scheduler(jobs).look()
    Scheduler(jobs).look()

    assert [(each.namespace, each.name) for each in jobs.periodic()] == [
        ("mail", "daily"),
        ("orders", "daily"),
    ]
    assert queue.stats("default").delayed == 2
    seconds = 46.0
    with application:
        Worker(jobs, stop_when_empty=True).run()
    assert (tmp_path / "mail.txt").read_text() == "To boss@example.com: all is well\n"
    assert jobs.failed() == []


def test_a_message_whose_plugin_is_not_installed_is_dead_lettered(
    shop_plugins, tmp_path: Path
) -> None:
    """At its first attempt, with a reason that names the plugin; the others are served."""
    queue = MemoryQueue()
    jobs = Jobs(queue)
    plugins = [shop_plugins.Orders(), shop_plugins.Mail(tmp_path), shop_plugins.SMS(tmp_path)]
    joined(jobs, *plugins)
    jobs.under("sms").dispatch_kind("send", {"number": "1", "text": "hi"})
    jobs.under("mail").dispatch_kind("send", {"to": "ada", "text": "hello"})

    without_sms = Jobs(queue)
    with joined(without_sms, shop_plugins.Mail(tmp_path)):
        Worker(without_sms, stop_when_empty=True).run()

    assert (tmp_path / "mail.txt").read_text() == "To ada: hello\n"
    (failed,) = without_sms.failed()
    assert (failed.namespace, failed.kind, failed.attempt) == ("sms", "send", 1)
    assert "no namespace 'sms' is declared here" in failed.reason


def test_asynchronous_plugins_contribute_jobs_alike() -> None:
    """A worker in a thread serves their handlers while the application is up."""
    log = []

    @dataclass
    class Ping:
        text: str

    class Pings(AsyncPlugin):
        name = "pings"
        version = "1"

        def register(self, registration: Registration) -> None:
            jobs = registration.own(Jobs)
            jobs.declare("ping", Ping)

            @jobs.handler("ping")
            async def ping(job: Ping) -> None:
                log.append(job.text)

        async def boot(self, services: Services) -> None:
            log.append("boot")

        async def shutdown(self, services: Services) -> None:
            log.append("shutdown")

    jobs = Jobs(MemoryQueue())
    application = AsyncApplication(Pings())
    application.provide(Jobs).value(jobs)

    async def main() -> None:
        async with application:
            await jobs.under("pings").dispatch_async(Ping("hello"))
            await asyncio.to_thread(Worker(jobs, stop_when_empty=True).run)

    asyncio.run(main())

    assert log == ["boot", "hello", "shutdown"]


def test_what_requires_a_plugin_that_is_not_installed_does_not_start(
    shop_plugins, tmp_path: Path
) -> None:
    """Nothing is registered, and no worker runs half an application."""
    with pytest.raises(
        UnmetRequirements, match=r"^orders 3\.1 needs sms~=2\.0, which is not here$"
    ):
        joined(Jobs(MemoryQueue()), shop_plugins.Orders(), shop_plugins.Mail(tmp_path))
