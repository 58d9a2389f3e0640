"""`hypercube work`, as a process of its own and in this one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypercube_jobs._command import _source, app

HYPERCUBE = Path(sys.executable).with_name("hypercube")
PATIENCE_S = 120.0

#: An application whose handlers write down what they do.
APP = """
    import time
    from dataclasses import dataclass
    from pathlib import Path
    from hypercube_jobs import Jobs
    from hypercube_queue import open_queue

    @dataclass
    class Note:
        text: str

    jobs = Jobs(open_queue(f"sqlite:///{Path(__file__).with_name('jobs.db')}"))
    log = Path(__file__).with_name("log")

    def write(line):
        with log.open("a") as file:
            file.write(line + "\\n")

    @jobs.handler("note")
    def note(job: Note) -> None:
        write(job.text)
        if job.text == "slow":
            time.sleep(0.5)
            write("slow ended")

    jobs.dispatch(Note("default"))
    jobs.dispatch(Note("low"), queue="low")
    jobs.dispatch(Note("high"), queue="high")
    jobs.dispatch(Note("slow"), queue="slow")
    jobs.dispatch(Note("next"), queue="slow")
    class nested:
        jobs = jobs
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop_app.py").write_text(textwrap.dedent(APP))
    return tmp_path


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """`hypercube work` in `folder`."""
    return subprocess.Popen(
        [HYPERCUBE, "work", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, once there is one, and what went to standard error."""
    try:
        output, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert output == ""
    return process.returncode, errors


def log(folder: Path) -> list[str]:
    file = folder / "log"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_queues_are_served_in_their_order(folder: Path) -> None:
    """The first --queue comes first, and --stop-when-empty ends with exit code 0."""
    code, errors = ended(
        start(folder, "shop_app:jobs", "-q", "high", "--queue", "low", "--stop-when-empty")
    )
    assert (code, log(folder)) == (0, ["high", "low"]), errors
    assert "working on high, low, 1 at a time" in errors


def test_the_default_queue_is_served_if_none_is_named(folder: Path) -> None:
    """As jobs without a queue go there."""
    code, errors = ended(start(folder, "shop_app:nested.jobs", "--max-jobs", "1"))
    assert (code, log(folder)) == (0, ["default"]), errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_end(folder: Path, number: signal.Signals) -> None:
    """It ends with exit code 0, after the job that runs and before the next one."""
    process = start(folder, "shop_app:jobs", "-q", "slow")
    until(lambda: log(folder) or process.poll() is not None)
    process.send_signal(number)
    code, errors = ended(process)
    assert (code, log(folder)) == (0, ["slow", "slow ended"]), errors


def test_the_log_level_is_chosen(folder: Path) -> None:
    """Who wants no line for each job gets none."""
    code, errors = ended(
        start(folder, "shop_app:jobs", "--stop-when-empty", "--log-level", "warning")
    )
    assert (code, errors) == (0, "")


@pytest.mark.parametrize("level", ["info", "debug"])
def test_client_libraries_are_shown_at_the_debug_level_only(folder: Path, level: str) -> None:
    """What they report of connections, the drivers say as well; a warning of botocore counts."""
    (folder / "loud_app.py").write_text(
        textwrap.dedent("""
            import logging
            from dataclasses import dataclass
            from shop_app import jobs

            @dataclass
            class Loud:
                pass

            @jobs.handler("loud")
            def loud(job: Loud) -> None:
                logging.getLogger("pika.adapters.utils").error("pika fails")
                logging.getLogger("botocore.credentials").info("botocore finds")
                logging.getLogger("botocore.httpsession").warning("botocore warns")
                logging.getLogger("pikabu").info("shop tells")

            jobs.dispatch(Loud())
        """)
    )
    code, errors = ended(start(folder, "loud_app:jobs", "--stop-when-empty", "--log-level", level))
    assert code == 0, errors
    assert ("pika fails" in errors) is (level == "debug"), errors
    assert ("botocore finds" in errors) is (level == "debug"), errors
    assert "botocore warns" in errors
    assert "shop tells" in errors


def test_an_application_keeps_the_logging_that_it_set_up(folder: Path) -> None:
    """Also that of client libraries."""
    (folder / "own_app.py").write_text(
        textwrap.dedent("""
            import logging.config
            from shop_app import jobs

            logging.config.dictConfig({
                "version": 1,
                "formatters": {"own": {"format": "OWN %(name)s %(message)s"}},
                "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
                "root": {"level": "INFO", "handlers": ["own"]},
            })
            logging.getLogger("pika.connection").info("connecting")
        """)
    )
    code, errors = ended(start(folder, "own_app:jobs", "--stop-when-empty"))
    assert code == 0, errors
    assert all(line.startswith("OWN ") for line in errors.splitlines()), errors
    assert "OWN pika.connection connecting" in errors


def test_an_application_may_set_up_logging_in_one_line(folder: Path) -> None:
    """`basicConfig` does nothing where somebody has set it up before; the level is the option's."""
    (folder / "basic_app.py").write_text(
        "import logging\n"
        "logging.basicConfig(format='BASIC %(levelname)s %(message)s')\n"
        "from shop_app import jobs\n"
        "logging.getLogger('shop').info('imported')\n"
    )
    code, errors = ended(start(folder, "basic_app:jobs", "--stop-when-empty"))
    assert code == 0, errors
    assert all(line.startswith("BASIC INFO ") for line in errors.splitlines()), errors
    assert "BASIC INFO imported" in errors


@pytest.mark.parametrize(("options", "named"), [((), False), (("--processes=1",), True)])
def test_lines_name_their_process_where_there_may_be_several(
    folder: Path, options: tuple[str, ...], named: bool
) -> None:
    code, errors = ended(start(folder, "shop_app:jobs", "--stop-when-empty", *options))
    assert code == 0, errors
    assert bool(re.search(r"INFO \[\d+\] working on default", errors)) is named, errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["shop"], "'shop' is not MODULE:ATTRIBUTE, such as shop:jobs"),
        (["shop:"], "'shop:' is not MODULE:ATTRIBUTE, such as shop:jobs"),
        ([":jobs"], "':jobs' is not MODULE:ATTRIBUTE, such as shop.jobs:jobs"),
        (
            ["good_app.jobs:jobs"],
            "there is no module 'good_app.jobs', as good_app has none of this",
        ),
        (["nowhere_app:jobs"], "there is no module 'nowhere_app', neither in "),
        (["broken_app:jobs"], "importing broken_app failed: ZeroDivisionError: division by zero ("),
        (["lacking_app:jobs"], "importing lacking_app failed: ModuleNotFoundError: No module name"),
        (["wrong_app:jobs"], "importing wrong_app failed: SyntaxError: "),
        (["empty_app:jobs"], "empty_app has no 'jobs', nor any other Jobs object"),
        (["good_app:job"], "good_app has no 'job'; is it 'jobs'?"),
        (["good_app:Jobs"], "good_app:Jobs is no Jobs object, but of type type"),
        (["good_app:jobs"], "good_app:jobs has no handler; let its module import those that do"),
        (
            ["./good_app.py:jobs"],
            "'./good_app.py:jobs' names a file, not a module; write good_app:",
        ),
        (
            ["good_app.py:jobs"],
            "'good_app.py:jobs' names a file, not a module; write good_app:jobs",
        ),
        (["shop/good_app:jobs"], "names a file, not a module; write shop.good_app:jobs"),
        (["../good_app.py:jobs"], "write good_app:jobs, and start hypercube in its folder"),
        (["redis://:hunter2@host"], "a URL is no application: that is MODULE:ATTRIBUTE"),
        (["good_app:jobs", "--concurrency", "0"], "--concurrency is 0; it is from 1 to 10,000"),
        (["good_app:jobs", "--sleep", "nan"], "--sleep is nan; it is a number of seconds"),
        (["good_app:jobs", "--sleep", "-1"], "--sleep is -1; it is a number of seconds"),
        (["good_app:jobs", "--sleep", "0"], "--sleep is 0; it is a number of seconds above zero"),
        (["good_app:jobs", "--max-jobs", "0"], "--max-jobs is 0; it is from 1"),
        (["nowhere_app:jobs", "--max-jobs", "-3", "--processes", "2"], "--max-jobs is -3"),
        (["nowhere_app:jobs", "--stop-timeout", "-1", "-p", "2"], "--stop-timeout is -1"),
        (["good_app:jobs", "--stop-timeout", "1e300"], "--stop-timeout is 1e+300"),
        (["good_app:jobs", "--queue", ""], "--queue is empty"),
    ],
)
def test_what_cannot_be_worked_on_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    """Exit code 2, and one line that says what is wrong and where."""
    good = "from hypercube_jobs import Jobs\nfrom hypercube_queue import open_queue\n"
    (tmp_path / "good_app.py").write_text(f"{good}jobs = Jobs(open_queue('sqlite:///x.db'))\n")
    (tmp_path / "broken_app.py").write_text("x = 1\n1 / 0\n")
    (tmp_path / "lacking_app.py").write_text("import nowhere_either\n")
    (tmp_path / "wrong_app.py").write_text("def (\n")
    (tmp_path / "empty_app.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(app, ["work", "--processes=0", *arguments])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("hypercube: ")
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


FAILING = """
import json
import sqlalchemy

def make_queue():
    return sqlalchemy.create_engine("no url")

jobs = make_queue()
"""


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that fails at import, deep within a library."""
    (tmp_path / "failing_app.py").write_text(FAILING)
    (tmp_path / "caller_app.py").write_text("import failing_app\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_app", raising=False)
    monkeypatch.delitem(sys.modules, "caller_app", raising=False)
    return tmp_path / "failing_app.py"


@pytest.mark.parametrize("module", ["failing_app", "caller_app"])
@pytest.mark.parametrize("command", [("work", "--processes=0"), ("stats", "--app"), ("schedule",)])
def test_the_place_of_an_error_at_import_is_the_application_s_own_line(
    failing: Path, command: tuple[str, ...], module: str
) -> None:
    """Not a line of the library that it called, nor how the command came to it."""
    result = CliRunner().invoke(app, [*command, f"{module}:jobs"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(
        f"hypercube: importing {module} failed: ArgumentError: Could not parse SQLAlchemy URL"
    )
    assert f"({failing}:6); HYPERCUBE_DEBUG=1 shows the traceback" in result.stderr


def test_a_library_that_is_worked_on_elsewhere_is_not_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As these distributions may be, installed as links to their sources."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "linked_library.py").write_text(
        "def load():\n    raise OSError('no')\n"
    )
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "user_app.py").write_text(
        "import linked_library\n\nlinked_library.load()\n"
    )
    monkeypatch.chdir(tmp_path / "app")
    monkeypatch.syspath_prepend(tmp_path / "library")
    monkeypatch.syspath_prepend(tmp_path / "app")
    result = CliRunner().invoke(app, ["work", "--processes=0", "user_app:jobs"])
    assert f"({tmp_path / 'app' / 'user_app.py'}:3)" in result.stderr


def test_an_installed_application_is_told_by_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies among the libraries, so it is known by its name."""
    package = tmp_path / "site-packages" / "installed_app"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import json\n\njson.loads('{')\n")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(_source, "_is_installed", lambda filename: True)
    result = CliRunner().invoke(app, ["work", "--processes=0", "installed_app:jobs"])
    assert f"({package / '__init__.py'}:3)" in result.stderr


def test_a_syntax_error_is_told_by_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the module has run, so no frame has it."""
    (tmp_path / "wrong_app.py").write_text("x = 1\ndef (\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(app, ["work", "--processes=0", "wrong_app:jobs"])
    assert f"({tmp_path / 'wrong_app.py'}:2)" in result.stderr


@pytest.mark.parametrize("by_level", [True, False])
def test_the_traceback_of_an_error_is_shown_on_request(failing: Path, by_level: bool) -> None:
    """By the environment, for every command, or by the level of the log."""
    done = subprocess.run(
        [HYPERCUBE, "work", "failing_app:jobs", *["--log-level=debug"] * by_level],
        cwd=failing.parent,
        env=os.environ | ({} if by_level else {"HYPERCUBE_DEBUG": "1"}),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    assert "Traceback (most recent call last):" in done.stderr
    assert "sqlalchemy.exc.ArgumentError: Could not parse" in done.stderr
    assert "AppNotLoaded" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hypercube: importing failing_app failed")


def test_queues_that_no_kind_goes_to_are_told(folder: Path) -> None:
    """The usual first mistake: jobs wait in their queue, and the worker in another one."""
    (folder / "mail_app.py").write_text(
        "from dataclasses import dataclass\n"
        "from hypercube_jobs import Jobs\n"
        "from hypercube_queue import open_queue\n"
        "@dataclass\n"
        "class Letter: to: str\n"
        "@dataclass\n"
        "class Bill: to: str\n"
        "jobs = Jobs(open_queue('sqlite:///mail.db'))\n"
        "@jobs.handler('letter', queue='mail')\n"
        "def letter(job: Letter): pass\n"
        "@jobs.handler('bill', queue='billing')\n"
        "def bill(job: Bill): pass\n"
    )
    code, errors = ended(start(folder, "mail_app:jobs", "--stop-when-empty"))
    assert code == 0
    assert (
        "WARNING serving only default, where no kind of mail_app:jobs goes by itself; to serve the "
        "queues of its kinds add --queue mail --queue billing"
    ) in errors
    code, errors = ended(start(folder, "mail_app:jobs", "--stop-when-empty", "--queue", "billing"))
    assert (code, "WARNING" in errors) == (0, False)
