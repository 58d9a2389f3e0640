"""`hypercube work`, as a process of its own and in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypercube_jobs._command import app

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

    jobs = Jobs(open_queue("memory://"))
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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["shop"], "'shop' is not MODULE:ATTRIBUTE, such as shop.jobs:jobs"),
        (["shop:"], "'shop:' is not MODULE:ATTRIBUTE"),
        (["nowhere_app:jobs"], "there is no module 'nowhere_app', neither in "),
        (["broken_app:jobs"], "importing broken_app failed: ZeroDivisionError: division by zero ("),
        (["lacking_app:jobs"], "importing lacking_app failed: ModuleNotFoundError: No module name"),
        (["wrong_app:jobs"], "importing wrong_app failed: SyntaxError: "),
        (["empty_app:jobs"], "empty_app has no 'jobs', nor any other Jobs object"),
        (["good_app:job"], "good_app has no 'job'; is it 'jobs'?"),
        (["good_app:Jobs"], "good_app:Jobs is no Jobs object, but of type type"),
        (["good_app:jobs"], "good_app:jobs has no handler; let its module import those that do"),
        (["good_app:jobs", "--concurrency", "0"], "concurrency is 0"),
        (["good_app:jobs", "--sleep", "nan"], "--sleep is nan; it is a number of seconds"),
        (["good_app:jobs", "--sleep", "-1"], "sleep"),
        (["good_app:jobs", "--max-jobs", "0"], "max_jobs is 0"),
        (["good_app:jobs", "--stop-timeout", "1e300"], "--stop-timeout is 1e+300"),
        (["good_app:jobs", "--queue", ""], "queue"),
    ],
)
def test_what_cannot_be_worked_on_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    """Exit code 2, and one line that says what is wrong and where."""
    good = "from hypercube_jobs import Jobs\nfrom hypercube_queue import open_queue\n"
    (tmp_path / "good_app.py").write_text(f"{good}jobs = Jobs(open_queue('memory://'))\n")
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


def test_the_place_of_an_error_at_import_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line to look at, not how the command came to it."""
    (tmp_path / "failing_app.py").write_text("x = 1\n1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(app, ["work", "--processes=0", "failing_app:jobs"])
    assert f"({tmp_path / 'failing_app.py'}:2)" in result.stderr
