"""Jobs that kill their process, in real processes and on every backend (ATT-3, ATT-4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hypercube_jobs import Jobs
from hypercube_queue import StatsProvider, capability, open_queue

PATIENCE_S = 300.0
HYPERCUBE = Path(sys.executable).with_name("hypercube")

APP = """
    import logging, os, sys, time
    from dataclasses import dataclass
    from hypercube_jobs import JobEvent, Jobs, Observer, Worker
    from hypercube_queue import open_queue

    @dataclass
    class Note:
        text: str
        fuse: float = 0

    log = os.open(os.environ["LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(line):
        os.write(log, f"{line}\\n".encode())

    class Outcomes(Observer):
        def failed(self, event):
            if event.final:
                write(f"dead {event.id} {type(event.error).__name__}")

    jobs = Jobs(open_queue(os.environ["URL"]), observers=[Outcomes()])

    @jobs.handler("good")
    def good(job: Note) -> None:
        write(f"ran {job.text}")
        time.sleep(0.02)
        write(f"done {job.text}")

    jobs.declare("killer", Note)

    @jobs.handler("killer")
    def killer(job: Note) -> None:
        write(f"ran {job.text}")
        time.sleep(job.fuse)
        os._exit(9)

    if __name__ == "__main__":
        logging.basicConfig(level=logging.INFO)
        Worker(jobs, concurrency=8, queues=sys.argv[1:]).run()
"""


@dataclass
class Note:
    """The job of these tests."""

    text: str
    fuse: float = 0


@dataclass
class Deaths:
    """Workers that are started again after each death, and what they write down."""

    folder: Path
    url: str
    queues: tuple[str, ...] = ("default",)
    command: tuple[str, ...] = ()
    deaths: int = 0
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        separator = "&" if "?" in self.url else "?"
        self.url += f"{separator}visibility_timeout=5"
        (self.folder / "deadly_app.py").write_text(textwrap.dedent(APP))
        self.log = self.folder / "log"
        self.log.touch()
        self.errors = self.folder / "errors"

    def dispatch(self, *kinds: str, retries: int, fuse: float = 0) -> None:
        """One job of each of these kinds, over the queues in turn, in this order."""
        with open_queue(self.url) as queue:
            jobs = Jobs(queue)
            jobs.declare("good", Note)
            jobs.declare("killer", Note)
            for number, kind in enumerate(kinds):
                id = f"{kind}-{number}"
                self.ids.append(id)
                jobs.dispatch_kind(
                    kind,
                    Note(id, fuse),
                    id=id,
                    retries=retries,
                    queue=self.queues[number % len(self.queues)],
                )

    def work(self) -> None:
        """Until each job is done or dead."""
        end = time.monotonic() + PATIENCE_S
        while True:
            worker = self._start()
            try:
                while worker.poll() is None and not self._has_ended():
                    assert time.monotonic() < end, self.log.read_text() + self.errors.read_text()
                    time.sleep(0.02)
                if worker.poll() is None:
                    worker.send_signal(signal.SIGTERM)
                    assert worker.wait(PATIENCE_S) == 0
                    return
                assert worker.returncode == 9, self.errors.read_text()
                self.deaths += 1
            finally:
                worker.kill()
                worker.wait()

    def _has_ended(self) -> bool:
        if len(self.outcomes()) < len(self.ids):
            return False
        # What had been done when its process died is run again, and must not be dead then.
        with open_queue(self.url) as queue:
            counting = capability(queue, StatsProvider)
            stats = [counting.stats(name) for name in self.queues] if counting else []
        return not any(each.ready + each.delayed + each.in_flight for each in stats)

    def _start(self) -> subprocess.Popen[bytes]:
        own = (sys.executable, "deadly_app.py", *self.queues)
        with self.errors.open("a") as errors:
            return subprocess.Popen(
                self.command or own,
                cwd=self.folder,
                env={**os.environ, "URL": self.url, "LOG": str(self.log)},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def outcomes(self) -> dict[str, str]:
        """What became of each job that has come to an end."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return {line[1]: " ".join(line[::2]) for line in lines if line[0] != "ran"}

    def expected(self) -> dict[str, str]:
        return {id: "dead WorkerLost" if id.startswith("killer") else "done" for id in self.ids}

    def runs(self, id: str) -> int:
        return self.log.read_text().split("\n").count(f"ran {id}")


@pytest.mark.parametrize("fuse", [0, 0.5])
def test_on_every_backend_only_the_one_that_did_it_is_dead(
    url_of_each_shared: str, tmp_path: Path, fuse: float
) -> None:
    """After one run among others and one alone; its neighbours lose nothing, without retries."""
    deaths = Deaths(tmp_path, url_of_each_shared)
    deaths.dispatch(*["good"] * 3, "killer", *["good"] * 12, retries=0, fuse=fuse)
    deaths.work()

    assert deaths.outcomes() == deaths.expected()
    assert deaths.runs("killer-3") == deaths.deaths == 2


@pytest.mark.parametrize("retries", [1, 3])
def test_it_runs_alone_as_often_as_it_has_attempts(tmp_path: Path, retries: int) -> None:
    """And once among others."""
    deaths = Deaths(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    deaths.dispatch("killer", *["good"] * 7, retries=retries)
    deaths.work()

    assert deaths.outcomes() == deaths.expected()
    assert deaths.runs("killer-0") == deaths.deaths == retries + 2


@pytest.mark.parametrize("fuse", [0, 0.5])
def test_several_of_them_do_not_condemn_each_other(tmp_path: Path, fuse: float) -> None:
    """Nor anybody else: each runs alone once the first of them has ended its process."""
    deaths = Deaths(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    deaths.dispatch(*["good", "killer", "good"] * 3, retries=1, fuse=fuse)
    deaths.work()

    assert deaths.outcomes() == deaths.expected()
    for number in (1, 4, 7):
        assert deaths.runs(f"killer-{number}") in {2, 3}


def test_with_several_queues_the_others_lose_nothing(
    url_of_each_shared: str, tmp_path: Path
) -> None:
    """What a waiting pop of another queue brings is held by the same process."""
    deaths = Deaths(tmp_path, url_of_each_shared, queues=("first", "second"))
    deaths.dispatch("good", "killer", *["good"] * 8, retries=0, fuse=0.5)
    deaths.work()

    assert deaths.outcomes() == deaths.expected()
    assert deaths.runs("killer-1") == deaths.deaths == 2


@pytest.mark.parametrize("processes", [1, 3])
def test_under_a_supervisor_it_is_the_same(
    url_of_some: str, tmp_path: Path, processes: int
) -> None:
    """Whichever process gets it, among others and then alone."""
    command = (str(HYPERCUBE), "work", "deadly_app:jobs", "--concurrency=8")
    deaths = Deaths(tmp_path, url_of_some, command=(*command, f"--processes={processes}"))
    deaths.dispatch(*["good"] * 3, "killer", *["good"] * 16, retries=0)
    deaths.work()

    assert deaths.outcomes() == deaths.expected()
    assert deaths.runs("killer-3") == 2
