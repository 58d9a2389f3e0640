"""The quickstart as a user runs it: a process over a folder and a SQLite file."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
HYPERCUBE = Path(sys.executable).with_name("hypercube")
PATIENCE_S = 60.0
#: Without what would make a terminal of anything, and a proxy between the check and this host.
ENVIRONMENT = {
    **{
        key: value
        for key, value in os.environ.items()
        if key not in {"FORCE_COLOR", "TTY_COMPATIBLE"}
    },
    "no_proxy": "*",
}
MANY = 300


class Quickstart:
    """The check of one folder, with one database file."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "notes"
        self.folder.mkdir()
        self.db = place / "notes.db"

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def write_many(self) -> None:
        """Files that take a moment each; every tenth is broken."""
        heads = "\n\n".join(f"## Part {number}\n\n[link](#part-{number})" for number in range(60))
        for number in range(MANY):
            broken = "\n\n[gone](gone.md)\n" if number % 10 == 0 else ""
            self.write(f"sub{number % 7}/file {number}.md", heads + broken)

    def start(self, *arguments: str, prelude: str = "") -> subprocess.Popen[str]:
        """The check, after the Python statements of `prelude`."""
        program = [sys.executable, "-W", "error"]
        if prelude:
            script = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import check_links\n"
            program += ["-c", script + textwrap.dedent(prelude) + "\nsys.exit(check_links.main())"]
        else:
            program += [str(EXAMPLES / "check_links.py")]
        return subprocess.Popen(
            [*program, str(self.folder), "--db", str(self.db), *arguments],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0, prelude: str = "") -> list[str]:
        """The lines of a check that ends with this exit code and no word of an error."""
        return lines_of(self.start(*arguments, prelude=prelude), code)

    def rows(self) -> int:
        """How many results there are."""
        if not self.db.exists():
            return 0
        try:
            with sqlite3.connect(self.db) as connection:
                [count] = connection.execute("SELECT count(*) FROM results").fetchone()
        except sqlite3.OperationalError:
            return 0  # the tables are not there yet
        finally:
            connection.close()
        return int(count)

    def hypercube(self, *arguments: str) -> str:
        command = [HYPERCUBE, *arguments, "--url", f"sqlite:///{self.db}"]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=PATIENCE_S
        ).stdout


def lines_of(process: subprocess.Popen[str], code: int = 0) -> list[str]:
    try:
        output, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert (process.returncode, errors) == (code, ""), output
    return output.splitlines()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def quickstart(tmp_path: Path) -> Quickstart:
    return Quickstart(tmp_path)


# What it tells


def test_every_file_is_checked_and_the_broken_ones_are_told(quickstart: Quickstart) -> None:
    """Reasons with line numbers in the table, and the sum in the last line."""
    quickstart.write("good.md", "# Good\n\n[sub](sub/broken.md#broken)\n")
    quickstart.write("sub/broken.md", "# Broken\n\n[a](a.md)\n\n[up](../good.md#bad)\n")
    lines = quickstart.run()
    text = "\n".join(lines)
    assert "line 3: a.md: no such file" in text
    assert "line 5: ../good.md#bad: no such heading in good.md" in text
    assert lines[-1] == "checked 2 files: 1 done, 1 dead"


def test_broken_files_are_among_the_failed_jobs(quickstart: Quickstart) -> None:
    """The reason is in the failure record, for whoever looks at the queue."""
    quickstart.write("broken.md", "[a](a.md) [b](b.md)")
    quickstart.run()
    [job] = json.loads(quickstart.hypercube("failed", "--json"))
    assert (job["kind"], job["attempt"]) == ("check_file", 1)
    text = "broken.md: line 1: a.md: no such file; line 1: b.md: no such file"
    assert job["failure"]["text"] == text


def test_mended_files_are_checked_alone_after_a_redrive(quickstart: Quickstart) -> None:
    """The printed command brings the dead back, and the next check looks at these only."""
    quickstart.write("good.md", "")
    quickstart.write("broken.md", "[a](a.md)")
    quickstart.write("hopeless.md", "[b](b.md)")
    lines = quickstart.run()
    [command] = [line for line in lines if " retry --all " in line]
    quickstart.write("a.md", "")
    subprocess.run(shlex.split(command), check=True, capture_output=True, timeout=PATIENCE_S)
    lines = quickstart.run()
    assert lines[1] == f"resuming the run of {quickstart.folder}"
    assert lines[-1] == "checked 3 files: 2 done, 1 dead"


def test_a_finished_check_starts_anew(quickstart: Quickstart) -> None:
    """New files are found, and the dead of the check before are forgotten."""
    quickstart.write("broken.md", "[a](a.md)")
    assert quickstart.run()[-1] == "checked 1 files: 0 done, 1 dead"
    quickstart.write("other.md", "[b](b.md)")
    lines = quickstart.run()
    assert "resuming" not in "\n".join(lines)
    assert lines[-1] == "checked 2 files: 0 done, 2 dead"
    [queue] = json.loads(quickstart.hypercube("stats", "--json"))
    assert (queue["ready"], queue["delayed"], queue["in_flight"], queue["dead"]) == (0, 0, 0, 2)


def test_strict_ends_with_one_if_a_file_is_dead(quickstart: Quickstart) -> None:
    """For scripts; without it broken links are no failure of the check."""
    quickstart.write("a.md", "[b](b.md)")
    assert quickstart.run("--strict", code=1)[-1] == "checked 1 files: 0 done, 1 dead"
    quickstart.write("b.md", "")
    assert quickstart.run("--strict")[-1] == "checked 2 files: 2 done, 0 dead"


def test_a_folder_without_markdown_is_checked_at_once(quickstart: Quickstart) -> None:
    """Nothing to do is done."""
    quickstart.write("readme.txt", "")
    assert quickstart.run()[-1] == "checked 0 files: 0 done, 0 dead"


def test_any_file_name_and_any_file_is_counted(quickstart: Quickstart) -> None:
    """Strange names are checked, and what cannot be read is dead with the reason."""
    names = ["ünï cödé ✓.md", "[bold]x[/bold].md", "50%.md", "new\nline.md", "UPPER.MD", "-x.md"]
    for name in [*names, os.fsdecode(b"caf\xe9.md")]:
        quickstart.write(name, "[a](a.md)" if name == "50%.md" else "")
    (quickstart.folder / "loop").symlink_to(quickstart.folder)
    (quickstart.folder / "self.md").symlink_to("self.md")
    (quickstart.folder / "gone.md").symlink_to("nowhere.md")
    (quickstart.folder / "folder.md").mkdir()
    os.mkfifo(quickstart.folder / "pipe.md")
    lines = quickstart.run()
    text = "\n".join(lines)
    assert "the file cannot be read: Too many levels of symbolic links" in text
    assert "the file cannot be read: No such file or directory" in text
    assert "the file cannot be read: it is not a regular file" in text
    assert lines[-1] == "checked 10 files: 6 done, 4 dead"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["{place}/nowhere"], "the folder {place}/nowhere cannot be found"),
        (["{place}/file"], "{place}/file is not a folder"),
        (["{place}", "--db", "{place}/nowhere/x.db"], "no folder {place}/nowhere to put x.db in"),
        (["{place}", "--db", "{place}"], "{place} is a folder"),
        (["{place}", "--db", "{place}/file"], "{place}/file: file is not a database"),
        (["{place}", "--sloppy"], "unrecognized arguments: --sloppy"),
    ],
)
def test_bad_arguments_are_told_with_exit_code_two(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    """What is wrong and with which value, and no traceback."""
    (tmp_path / "file").write_text("this is no database, but some text that is long enough")
    result = subprocess.run(
        [
            *(sys.executable, str(EXAMPLES / "check_links.py")),
            *(each.format(place=tmp_path) for each in arguments),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert text.format(place=tmp_path) in result.stderr
    assert "Traceback" not in result.stderr


def test_each_folder_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Without --db the same folder finds its file again, in the user's cache."""
    said = []
    for name in ["a", "b", "a"]:
        (tmp_path / name).mkdir(exist_ok=True)
        output = subprocess.run(
            [sys.executable, str(EXAMPLES / "check_links.py"), str(tmp_path / name)],
            env={**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path / "cache")},
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        ).stdout
        said.append(output.splitlines()[0])
    assert said[0] == said[2] != said[1]
    assert said[0].startswith(f"queue and results are in {tmp_path}/cache/hypercube/")


def test_a_terminal_gets_a_progress_bar(quickstart: Quickstart) -> None:
    """The bar on a terminal; without one there is no control character at all."""
    quickstart.write("a.md", "")
    assert "\x1b" not in "".join(quickstart.run())
    master, slave = pty.openpty()
    command = [sys.executable, str(EXAMPLES / "check_links.py"), str(quickstart.folder)]
    process = subprocess.Popen(
        [*command, "--db", str(quickstart.db)],
        stdout=slave,
        env={**ENVIRONMENT, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(slave)
    shown = b""
    # The other end closes with an error on Linux, with an empty read elsewhere.
    try:
        while part := os.read(master, 1024):
            shown += part
    except OSError:
        pass
    os.close(master)
    assert process.wait(PATIENCE_S) == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "1/1" in text
    assert text.splitlines()[-1] == "checked 1 files: 1 done, 0 dead"


# The web


class Site(ThreadingHTTPServer):
    """Answers each path with the statuses in it, one after another."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.asked: list[str] = []
        self.counting = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Page(BaseHTTPRequestHandler):
    server: Site

    def do_HEAD(self) -> None:
        statuses = self.path.strip("/").split("-")
        with self.server.counting:
            times = self.server.asked.count(self.path)
            self.server.asked.append(self.path)
        self.send_response(int(statuses[min(times, len(statuses) - 1)]))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a test's output is its failures."""


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_busy_servers_are_asked_again_and_missing_pages_are_not(
    quickstart: Quickstart, site: Site
) -> None:
    """503 twice, then 429, then 200 is done after four attempts; 404 is dead after one."""
    quickstart.write("busy.md", f"[a]({site.address}/503-503-429-200)")
    quickstart.write("gone.md", f"[a]({site.address}/404) [b]({site.address}/200)")
    quickstart.write("fine.md", f"[b]({site.address}/200#part)")
    lines = quickstart.run("--external")
    assert "line 1: " + f"{site.address}/404: status 404 Not Found" in "\n".join(lines)
    assert lines[-1] == "checked 3 files: 2 done, 1 dead"
    assert site.asked.count("/503-503-429-200") == 4
    assert site.asked.count("/404") == 1
    assert site.asked.count("/200") <= 2


def test_an_address_that_never_answers_is_dead_after_six_attempts(
    quickstart: Quickstart, site: Site
) -> None:
    """Retries come to an end, and the last answer is the reason."""
    quickstart.write("busy.md", f"[a]({site.address}/503)")
    prelude = """
        from datetime import timedelta
        from hypercube_jobs import Constant

        check_links.Exponential = lambda *_, **__: Constant(timedelta(milliseconds=10))
    """
    lines = quickstart.run("--external", prelude=prelude)
    assert "/503: status 503 Service Unavailable" in "\n".join(lines)
    assert lines[-1] == "checked 1 files: 0 done, 1 dead"
    assert site.asked == ["/503"] * 6


def test_without_external_no_address_is_asked_for(quickstart: Quickstart, site: Site) -> None:
    """Nothing leaves the machine unless it is asked for."""
    quickstart.write("a.md", f"[a]({site.address}/404) <{site.address}/500>")
    assert quickstart.run()[-1] == "checked 1 files: 1 done, 0 dead"
    assert site.asked == []


# Being killed


def test_a_killed_check_goes_on_and_counts_each_file_once(quickstart: Quickstart) -> None:
    """SIGKILL in the middle loses no file and counts none twice."""
    quickstart.write_many()
    process = quickstart.start()
    until(lambda: quickstart.rows() >= 20 or process.poll() is not None)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGKILL
    rows = quickstart.rows()
    assert 0 < rows < MANY, "the kill did not land in the middle"

    lines = quickstart.run()
    assert lines[1] == f"resuming the run of {quickstart.folder}"
    assert lines[-1] == f"checked {MANY} files: {MANY * 9 // 10} done, {MANY // 10} dead"
    assert quickstart.rows() == MANY
    assert len(json.loads(quickstart.hypercube("failed", "--limit", "999", "--json"))) == MANY // 10


def test_a_check_killed_while_it_dispatches_starts_from_nothing(quickstart: Quickstart) -> None:
    """The run and its jobs are there together or not at all."""
    for number in range(10):
        quickstart.write(f"{number}.md", "")
    prelude = """
        import os
        from hypercube_jobs import Jobs
        dispatch_within = Jobs.dispatch_within

        def die_at_the_fifth(self, connection, job, **options):
            if job.path == "5.md":
                os._exit(77)
            return dispatch_within(self, connection, job, **options)

        Jobs.dispatch_within = die_at_the_fifth
    """
    quickstart.run(code=77, prelude=prelude)
    lines = quickstart.run()
    assert "resuming" not in "\n".join(lines)
    assert lines[-1] == "checked 10 files: 10 done, 0 dead"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_check_killed_beside_a_result_counts_it_once(quickstart: Quickstart, moment: str) -> None:
    """Whether the result was written or not, the job comes back and ends in the same row."""
    for number in range(10):
        quickstart.write(f"{number}.md", "[a](a.md)" if number == 5 else "")
    prelude = f"""
        import os
        from link_check import Runs
        record = Runs.record

        def die_at_the_fifth(self, run, path, links, problems):
            if path == "5.md" and {moment == "before"}:
                os._exit(77)
            record(self, run, path, links, problems)
            if path == "5.md":
                os._exit(77)

        Runs.record = die_at_the_fifth
    """
    quickstart.run(code=77, prelude=prelude)
    assert quickstart.run()[-1] == "checked 10 files: 9 done, 1 dead"


def test_ctrl_c_says_how_to_go_on(quickstart: Quickstart) -> None:
    """Exit code 130, no traceback, and the next start resumes."""
    quickstart.write_many()
    process = quickstart.start()
    until(lambda: quickstart.rows() >= 20 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    lines = lines_of(process, code=130)
    assert lines[-1] == "stopped; start the same check again and it goes on from here"
    assert 0 < quickstart.rows() < MANY
    lines = quickstart.run()
    assert lines[1] == f"resuming the run of {quickstart.folder}"
    assert lines[-1] == f"checked {MANY} files: {MANY * 9 // 10} done, {MANY // 10} dead"


def test_two_checks_at_once_share_the_work(quickstart: Quickstart) -> None:
    """Both end, and both tell the same."""
    quickstart.write_many()
    first, second = quickstart.start(), quickstart.start()
    last = [lines_of(process)[-1] for process in (first, second)]
    assert last == [f"checked {MANY} files: {MANY * 9 // 10} done, {MANY // 10} dead"] * 2


def test_a_job_that_dies_without_a_result_is_told_too(quickstart: Quickstart) -> None:
    """Whatever kills a job, its file is in the table with the reason of its dead letter."""
    quickstart.write("a.md", "")
    quickstart.write("b.md", "")
    prelude = """
        from hypercube_jobs import PermanentError

        problems_of = check_links.problems_of

        def stumble(job, runs):
            if job.path == "a.md":
                raise PermanentError("stumbled")
            return problems_of(job, runs)

        check_links.problems_of = stumble
    """
    lines = quickstart.run(prelude=prelude)
    assert "PermanentError: stumbled" in "\n".join(lines)
    assert lines[-1] == "checked 2 files: 1 done, 1 dead"
