"""`hypercube work`: workers under a supervisor, one if not told otherwise."""

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
PATIENCE_S = 300.0

#: An application whose handlers write down what they do, and in which process.
APP = """
    import asyncio, os, signal, threading, time
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

    @jobs.handler("blocking")
    async def blocking(job: Note) -> None:
        write(job.text)
        if (here / "log").read_text().count(job.text) == 1:
            time.sleep(60)
        write(f"{job.text} ended")

    @jobs.handler("leaving")
    def leaving(job: Note) -> None:
        write(job.text)
        if (here / "log").read_text().count(job.text) == 1:
            os._exit(0)
        write(f"{job.text} ended")

    @jobs.handler("forking")
    def forking(job: Note) -> None:
        write(job.text)
        if (here / "log").read_text().count(job.text) == 1:
            # The forked process has all that is open here, as those of multiprocessing have.
            forked = os.fork()
            if forked == 0:
                time.sleep(300)
                os._exit(0)
            (here / "forked").write_text(str(forked))
            os.kill(os.getpid(), signal.SIGKILL)
        write(f"{job.text} ended")

    @jobs.handler("clinging")
    def clinging(job: Note) -> None:
        write(job.text)
        threading.Thread(target=time.sleep, args=(300,), daemon=False).start()

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


DEFAULT_AND_ONE = pytest.mark.parametrize("arguments", [(), ("--processes=1",)])


@pytest.mark.parametrize("kind", ["note", "blocking"])
@DEFAULT_AND_ONE
def test_a_handler_that_hangs_does_not_stop_a_deployment(
    folder: Path, kind: str, arguments: tuple[str, ...]
) -> None:
    """The command as it is documented, with one job at a time."""
    at_once = Constant(timedelta(0))
    dispatch(folder, kind, "hang once", timeout=timedelta(seconds=0.5), backoff=at_once)
    with Working(folder, *arguments) as working:
        until(lambda: len(texts(folder)) == 1)
        dispatch(folder, "note", "after")
        until(lambda: "after ended" in texts(folder), "the next job never runs")
        until(lambda: "hang once ended" in texts(folder), "the job is not tried again")
        code = working.stop()

    assert code == 0, working.output
    assert working.output.count("worker 1 has ended its process; another one starts") == 1


def test_one_process_says_once_what_it_does(folder: Path) -> None:
    """The default looks as if there were no supervisor, and none is left behind."""
    dispatch(folder, "slow", "x")
    with Working(folder) as working:
        until(lambda: texts(folder) == ["x"])
        code = working.stop()

    assert (code, texts(folder)) == (0, ["x", "x ended"]), working.output
    assert working.output.count("working on") == 1
    assert working.output.count("SIGTERM: stopping once what runs has ended") == 1
    assert f"[{working.process.pid}]" not in working.output
    assert not _is_alive(log(folder)[0][0])


def test_with_processes_0_there_is_no_supervisor(folder: Path) -> None:
    """As debuggers need it."""
    dispatch(folder, "note", "x")
    with Working(folder, "--processes=0", "--stop-when-empty") as working:
        code = working.process.wait(PATIENCE_S)

    assert (code, log(folder)[0][0]) == (0, working.process.pid), working.output


def test_max_jobs_ends_the_default(folder: Path) -> None:
    """It has said so; only --processes makes it a number after which processes are replaced."""
    dispatch(folder, "note", *"abc")
    with Working(folder, "--max-jobs=2") as working:
        code = working.process.wait(PATIENCE_S)

    assert (code, len(texts(folder))) == (0, 4), working.output


def test_signals_to_all_processes_at_once_interrupt_nothing(folder: Path) -> None:
    """As systemd sends them to all of a service: the one that is passed on is no second one."""
    dispatch(folder, "slow", "x")
    with Working(folder) as working:
        until(lambda: texts(folder) == ["x"])
        working.process.terminate()
        os.kill(log(folder)[0][0], signal.SIGTERM)
        code = working.process.wait(PATIENCE_S)

    assert (code, texts(folder)) == (0, ["x", "x ended"]), working.output
    assert "stopping now" not in working.output


def test_a_process_that_somebody_stops_is_replaced(folder: Path) -> None:
    """Only the supervisor's own signals end the whole."""
    with Working(folder) as working:
        dispatch(folder, "note", "a")
        until(lambda: "a ended" in texts(folder))
        os.kill(log(folder)[0][0], signal.SIGTERM)
        until(lambda: "another one starts" in working.output)
        dispatch(folder, "note", "b")
        until(lambda: "b ended" in texts(folder))
        assert working.stop() == 0, working.output


def test_a_handler_that_ends_its_process_with_code_0_ends_no_worker(folder: Path) -> None:
    """Its exit code says that all is well; the worker has not said so."""
    dispatch(folder, "leaving", "x")
    with Working(folder) as working:
        until(lambda: "x ended" in texts(folder), "no other process has come")
        assert working.stop() == 0, working.output
    assert "worker 1 ended with exit code 0; another process starts in 1 s" in working.output


def test_a_process_is_replaced_though_one_that_it_forked_lives_on(folder: Path) -> None:
    """That it has ended is seen by its own end, not by that of what it shares with others."""
    dispatch(folder, "forking", "x")
    try:
        with Working(folder) as working:
            until(lambda: "x ended" in texts(folder), "no other process has come")
            assert _is_alive(int((folder / "forked").read_text()))
            assert working.stop() == 0, working.output
    finally:
        os.kill(int((folder / "forked").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("pidfd", ["pidfd", "no pidfd"])
def test_a_process_ends_with_its_supervisor_though_others_hold_the_line(
    tmp_path: Path, pidfd: str
) -> None:
    """By the end of its parent, not only by that of the line."""
    supervisor = """
        import os, socket, subprocess, sys, time
        ours, theirs = socket.socketpair()
        child = subprocess.Popen(
            [sys.executable, "child.py", str(theirs.fileno()), sys.argv[1]],
            pass_fds=[theirs.fileno()],
        )
        if os.fork() == 0:  # holds both ends
            time.sleep(300)
        ours.recv(1)
        os.kill(os.getpid(), 9)
    """
    child = """
        import os, sys, threading
        from pathlib import Path
        from hypercube_jobs.worker import _supervised
        if sys.argv[2] == "no pidfd":
            _supervised._pidfd = lambda pid: None
        line = _supervised.Line(int(sys.argv[1]))
        ended = threading.Event()
        line.listen(lambda number, count: None, ended.set)
        line.ready()
        Path("told").write_text(str(ended.wait(100)))
    """
    (tmp_path / "child.py").write_text(textwrap.dedent(child))
    supervising = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(supervisor), pidfd],
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text())
        assert (tmp_path / "told").read_text() == "True"
    finally:
        os.killpg(supervising.pid, signal.SIGKILL)
        supervising.wait()


def test_a_process_that_does_not_end_after_its_work_is_killed(folder: Path) -> None:
    """A thread that a handler has left behind keeps the interpreter from its end."""
    dispatch(folder, "clinging", "x")
    with Working(folder, "--processes=1", "--max-jobs=1") as working:
        until(lambda: texts(folder) == ["x"])
        dispatch(folder, "note", "after")
        until(lambda: "after ended" in texts(folder), "it is waited for")
        working.stop()

    assert "worker 1 has stopped, but its process does not end" in working.output
    assert not _is_alive(log(folder)[0][0])


@pytest.mark.parametrize("arguments", [(), ("--processes=0",)])
def test_files_of_the_current_folder_replace_no_installed_module(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    """It is looked in last, in the processes under the supervisor too."""
    for name in ("typer", "pydantic", "hypercube_queue", "socket"):
        (folder / f"{name}.py").write_text("raise SystemExit('a file of the current folder')")
    dispatch(folder, "note", "x")
    with Working(folder, "--stop-when-empty", *arguments) as working:
        code = working.process.wait(PATIENCE_S)

    assert (code, texts(folder)) == (0, ["x", "x ended"]), working.output


@pytest.mark.parametrize("arguments", [(), ("--processes=0",)])
def test_pythons_safe_path_leaves_the_current_folder_out(
    folder: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has set it does not want code from wherever the command is started."""
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    with Working(folder, "--stop-when-empty", *arguments) as working:
        code = working.process.wait(PATIENCE_S)
    assert code == 2, working.output
    assert "there is no module 'shop_app' installed, and Python's safe path" in working.output

    monkeypatch.setenv("PYTHONPATH", str(folder))
    dispatch(folder, "note", "x")
    with Working(folder, "--stop-when-empty", *arguments) as working:
        code = working.process.wait(PATIENCE_S)
    assert (code, texts(folder)) == (0, ["x", "x ended"]), working.output


def test_an_interpreter_that_stands_still_is_replaced(folder: Path) -> None:
    """No thread of Python can see to time-outs then, nor extend a lease."""
    app = folder / "shop_app.py"
    more = """
        import re
        from hypercube_jobs.worker import _watchdog

        # Time-outs are 60 s here.
        _watchdog._MARGIN, _watchdog._BEAT = -55.0, 0.2

        @jobs.handler("backtracking")
        def backtrack(job: Note) -> None:
            write(job.text)
            if (here / "log").read_text().count(job.text) == 1:
                re.match("(a+)+$", "a" * 60 + "b")
            write(f"{job.text} ended")
    """
    app.write_text(app.read_text() + textwrap.dedent(more))
    dispatch(folder, "backtracking", "x")
    with Working(folder) as working:
        until(lambda: "x ended" in texts(folder), "it stands still for good")
        assert working.stop() == 0, working.output

    assert "in backtrack" in working.output, "nobody is told where it was"
    assert "worker 1 ended with exit code 1; another process starts in 1 s" in working.output


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
