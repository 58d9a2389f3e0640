"""`hypercube work --processes`: workers under a supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hypercube_jobs import Constant, Jobs
from hypercube_queue import open_queue

HYPERCUBE = Path(sys.executable).with_name("hypercube")
PATIENCE_S = 120.0

#: An application whose handlers write down what they do, and in which process.
APP = """
    import os, signal, time
    from dataclasses import dataclass
    from pathlib import Path
    from hypercube_jobs import Jobs
    from hypercube_queue import open_queue

    @dataclass
    class Note:
        text: str

    here = Path(__file__).parent
    jobs = Jobs(open_queue(f"sqlite:///{here}/jobs.db?visibility_timeout=1"))

    def write(line):
        with (here / "log").open("a") as file:
            file.write(f"{os.getpid()} {line}\\n")

    @jobs.handler("note")
    def note(job: Note) -> None:
        write(job.text)
        if job.text == "hang once" and (here / "log").read_text().count("hang once") == 1:
            time.sleep(60)
        write(f"{job.text} ended")

    @jobs.handler("deadly")
    def deadly(job: Note) -> None:
        write(job.text)
        os.kill(os.getpid(), signal.SIGKILL)

    @jobs.handler("slow")
    def slow(job: Note) -> None:
        write(job.text)
        time.sleep(0.5)
        write(f"{job.text} ended")

    @jobs.handler("patient")
    def patient(job: Note) -> None:
        write(job.text)
        time.sleep(60)
"""


@dataclass
class Note:
    """The job of these tests."""

    text: str


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop_app.py").write_text(textwrap.dedent(APP))
    return tmp_path


def dispatch(folder: Path, kind: str, *texts: str, **options: Any) -> None:
    with open_queue(f"sqlite:///{folder}/jobs.db") as queue:
        jobs = Jobs(queue)
        jobs.declare(kind, Note)
        for text in texts:
            jobs.dispatch(Note(text), **options)


class Working:
    """`hypercube work shop_app:jobs` in `folder`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._output = folder / "output"
        command = [HYPERCUBE, "work", "shop_app:jobs", "--sleep=0.1", *arguments]
        with self._output.open("wb") as file:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=file, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Working:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def output(self) -> str:
        return self._output.read_text()

    def until_ready(self, count: int) -> None:
        until(lambda: self.output.count("working on") == count, "they do not start")

    def stop(self) -> int:
        """The exit code after a SIGTERM."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


def log(folder: Path) -> list[tuple[int, str]]:
    file = folder / "log"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(int(pid), text) for pid, _, text in (line.partition(" ") for line in lines)]


def texts(folder: Path) -> list[str]:
    return [text for _, text in log(folder)]


def counts(folder: Path) -> tuple[int, int, int, int]:
    with open_queue(f"sqlite:///{folder}/jobs.db") as queue:
        stats = queue.stats("default")
    return stats.ready, stats.delayed, stats.in_flight, stats.dead


def until(condition: Callable[[], object], what: str = "") -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_jobs_run_in_several_processes(folder: Path) -> None:
    """Fresh interpreters, and SIGTERM ends all of them and nothing that runs."""
    with Working(folder, "--processes=2") as working:
        working.until_ready(2)
        dispatch(folder, "slow", *"abcdef")
        until(lambda: len(texts(folder)) >= 2)
        code = working.stop()

    assert code == 0, working.output
    pids = {pid for pid, _ in log(folder)}
    assert len(pids) == 2
    assert working.process.pid not in pids
    began = [text for text in texts(folder) if not text.endswith("ended")]
    assert sorted(texts(folder)) == sorted([*began, *(f"{text} ended" for text in began)])
    assert counts(folder) == (6 - len(began), 0, 0, 0)
    assert working.output.count("SIGTERM: stopping once what runs has ended") == 3


def test_a_crashed_process_is_replaced_and_its_job_dies_by_itself(folder: Path) -> None:
    """Others are not hurt, and the supervisor says what happened, at growing distances."""
    dispatch(folder, "deadly", "x", retries=0)
    with Working(folder, "--processes=1") as working:
        until(lambda: counts(folder) == (0, 0, 0, 1))
        dispatch(folder, "note", "after")
        until(lambda: "after ended" in texts(folder))
        code = working.stop()

    assert code == 0, working.output
    assert texts(folder) == ["x", "x", "after", "after ended"], "once, and once more alone"
    assert "worker 1 was ended by SIGKILL; another process starts in 1 s" in working.output
    assert "worker 1 was ended by SIGKILL; another process starts in 2 s" in working.output


def test_an_overrun_is_left_behind_with_its_process(folder: Path) -> None:
    """Its retry runs in another process, when the first one has gone: never two at once."""
    at_once = Constant(timedelta(0))
    dispatch(folder, "note", "hang once", timeout=timedelta(seconds=0.5), backoff=at_once)
    with Working(folder, "--processes=1") as working:
        until(lambda: len(texts(folder)) == 1)
        first = log(folder)[0][0]
        until(lambda: len(texts(folder)) >= 2)
        assert not _is_alive(first)
        until(lambda: texts(folder)[-1] == "hang once ended")
        code = working.stop()

    assert code == 0, working.output
    assert len({pid for pid, _ in log(folder)}) == 2
    assert "nothing but the end of this process can end its thread" in working.output
    assert "worker 1 has ended its process; another one starts" in working.output
    assert "attempt 2" in working.output


def test_a_process_that_has_done_max_jobs_is_replaced(folder: Path) -> None:
    """So what handlers leak goes with it; when nothing is ready any more, all of it ends."""
    dispatch(folder, "note", *"abc")
    with Working(folder, "--processes=1", "--max-jobs=2", "--stop-when-empty") as working:
        code = working.process.wait(PATIENCE_S)

    assert code == 0, working.output
    pids = [pid for pid, text in log(folder) if not text.endswith("ended")]
    assert (pids[0] == pids[1], pids[1] == pids[2]) == (True, False)


def test_a_second_signal_gives_running_jobs_back(folder: Path) -> None:
    """Ctrl-C too; at no cost, and the threads end with their process."""
    dispatch(folder, "patient", "x")
    with Working(folder, "--processes=1") as working:
        until(lambda: texts(folder) == ["x"])
        for _ in range(2):
            assert working.process.poll() is None
            working.process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        code = working.process.wait(PATIENCE_S)

    assert code == 0, working.output
    assert counts(folder) in {(0, 1, 0, 0), (1, 0, 0, 0)}
    assert "interrupted, back in its queue at no cost" in working.output
    assert not _is_alive(log(folder)[0][0])


def test_a_third_signal_ends_everything(folder: Path) -> None:
    """Whoever sends three wants no process of ours any more."""
    dispatch(folder, "patient", "x")
    with Working(folder, "--processes=1") as working:
        until(lambda: texts(folder) == ["x"])
        pid = log(folder)[0][0]
        os.kill(pid, signal.SIGSTOP)
        for _ in range(2):
            working.process.terminate()
            time.sleep(0.2)
        code = working.stop()

    assert (code, _is_alive(pid)) == (1, False)


def test_without_their_supervisor_processes_stop(folder: Path) -> None:
    """They let their jobs end first: it was no order to drop them."""
    dispatch(folder, "slow", "x", "y")
    with Working(folder, "--processes=1") as working:
        until(lambda: texts(folder) == ["x"])
        working.process.kill()
        until(lambda: not _is_alive(log(folder)[0][0]))

    assert texts(folder) == ["x", "x ended"]
    assert counts(folder) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("app", "code", "text"),
    [
        ("raise ValueError('no')", 2, "importing shop_app failed: ValueError: no"),
        ("import os; os.abort()", 1, "the first worker was ended by SIGABRT before it was ready"),
    ],
)
def test_an_application_that_cannot_be_loaded_ends_it(
    folder: Path, app: str, code: int, text: str
) -> None:
    """With its one line and its exit code, and without trying again for ever."""
    (folder / "shop_app.py").write_text(app)
    with Working(folder, "--processes=3") as working:
        returned = working.process.wait(PATIENCE_S)

    assert (returned, working.output.count(text)) == (code, 1), working.output


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        not Path(f"/proc/{pid}/stat").exists()
        or ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    )
