"""What a worker does, and says, while its backend cannot be used."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tools.backends import server

from hypercube_jobs import Ending, Jobs, Worker
from hypercube_jobs._outage import Outage, duration_text
from hypercube_queue import BackendError, Message, open_queue
from hypercube_queue_memory import MemoryQueue

HYPERCUBE = Path(sys.executable).with_name("hypercube")
#: An interpreter alone may take half of it to start on a busy machine.
PATIENCE_S = 120.0


class Failing(MemoryQueue):
    """Raises these errors, one for each pop, and works from then on."""

    def __init__(self, *errors: BackendError) -> None:
        super().__init__()
        self.errors = list(errors)
        self.pops = 0

    def pop(self, *args: Any, **kwargs: Any) -> list[Message]:
        self.pops += 1
        if self.errors:
            raise self.errors.pop(0)
        return super().pop(*args, **kwargs)


AWAY = BackendError("the server is away")
REFUSED = BackendError("the server refuses the password", permanent=True)


@pytest.mark.parametrize("queues", [["default"], ["default", "other"]])
def test_what_can_never_work_ends_at_the_start(box: Any, queues: list[str]) -> None:
    """Whatever restarts it, and whoever reads its log, learns of it at once."""
    queue = Failing(REFUSED)
    box.on(queue)
    with pytest.raises(BackendError, match="refuses the password"):
        box.start(queues=queues).end()
    assert queue.pops == 1


def test_each_queue_is_asked_at_the_start() -> None:
    """The second one may be the one that is missing."""

    class SecondMissing(MemoryQueue):
        def pop(self, name: str, *args: Any, **kwargs: Any) -> list[Message]:
            if name == "second":
                raise BackendError("there is no queue 'second'", permanent=True)
            return super().pop(name, *args, **kwargs)

    worker = Worker(Jobs(SecondMissing()), queues=["first", "second"], sleep=timedelta(hours=1))
    with pytest.raises(BackendError, match="'second'"):
        worker.run()


@pytest.mark.parametrize("queues", [["default"], ["default", "other"]])
def test_a_backend_that_is_not_up_yet_is_waited_for(
    box: Any, caplog: pytest.LogCaptureFixture, queues: list[str]
) -> None:
    """A database and its workers start together; ready is who has reached it."""
    caplog.set_level(logging.INFO, "hypercube_jobs.worker")
    queue = Failing(AWAY, AWAY, AWAY)
    seen: list[int] = []
    worker = Worker(box.on(queue), queues=queues, sleep=timedelta(seconds=0.05))

    def on_ready() -> None:
        seen.append(queue.pops)
        worker.stop()

    assert worker.run(on_ready=on_ready) is Ending.STOPPED
    assert seen == [3 + len(queues)]
    assert caplog.messages == [
        "fetching jobs failed: the server is away; retrying in 0.1 s",
        "fetching jobs works again, after 1 s",
    ]


def test_what_comes_up_and_refuses_ends_it_then(box: Any) -> None:
    """Before it, all that is known is that the backend was away."""
    box.on(Failing(AWAY, AWAY, REFUSED))
    with pytest.raises(BackendError, match="refuses the password"):
        box.start().end()


def test_a_worker_that_has_worked_waits_for_either(box: Any) -> None:
    """A password that is being changed must not end all workers at once."""
    queue = Failing()
    box.on(queue)
    box.jobs.declare("note", box.Note)
    box.jobs.handler("note")(lambda job: None)
    box.start()
    box.until(lambda: queue.pops)
    queue.errors.append(REFUSED)
    box.until(lambda: not queue.errors)
    box.jobs.dispatch_kind("note", box.Note("x"))
    box.until(lambda: box.recorder.of("processed"))


def test_an_outage_is_told_at_growing_distances(caplog: pytest.LogCaptureFixture) -> None:
    """Each line says for how long, and the last one that it is over."""
    caplog.set_level(logging.INFO, "hypercube_jobs")
    now = 1000.0
    outage = Outage("fetching jobs", logging.getLogger("hypercube_jobs.worker"), lambda: now)
    outage.end()
    told_at = []
    while now < 5000:
        before = len(caplog.messages)
        outage.note(AWAY, 5.0)
        told_at += [now - 1000] * (len(caplog.messages) - before)
        now += 5
    outage.end()
    outage.note(AWAY, 0.1)

    assert told_at == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030, 3630]
    assert caplog.messages[:2] == [
        "fetching jobs failed: the server is away; retrying in 5 s",
        "fetching jobs failed for 10 s: the server is away; retrying in 5 s",
    ]
    assert caplog.messages[-3:] == [
        "fetching jobs failed for 1 h 0 min: the server is away; retrying in 5 s",
        "fetching jobs works again, after 1 h 6 min",
        "fetching jobs failed: the server is away; retrying in 0.1 s",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7500, "2 h 5 min")]
)
def test_durations_are_told_as_people_do(seconds: float, text: str) -> None:
    """To the second, to the minute."""
    assert duration_text(seconds) == text


# On each backend


def _sqs() -> str:
    place = server("ministack")
    return f"sqs://any:any@eu-west-1?endpoint=http://{place.host}:{place.port}&prefix=missing-"


def _on(name: str, url: Callable[[], str], text: str) -> Any:
    return pytest.param(url, text, marks=pytest.mark.server(name), id=f"{name}: {text}")


def _with_user(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://nobody:wrong@{rest.rpartition('@')[2]}"


def _file_without_tables() -> str:
    Path("other.db").touch()
    return "sqlite:///other.db?create_tables=false"


PERMANENT = [
    pytest.param(lambda: "sqlite:////no/such/folder/jobs.db", "does its folder exist", id="folder"),
    pytest.param(lambda: f"sqlite:///{__file__}", "not an SQLite database", id="no database"),
    pytest.param(
        lambda: "sqlite:///jobs.db?create_tables=false", "there is no file", id="sqlite: no file"
    ),
    pytest.param(_file_without_tables, "does not exist", id="sqlite: no tables"),
    *(
        case
        for name, scheme, no_user, no_database in (
            ("postgres", "postgresql", "authentication failed", "does not exist"),
            ("mysql", "mysql", "Access denied", "Unknown database"),
            ("mariadb", "mariadb", "Access denied", "Unknown database"),
        )
        for case in (
            _on(name, lambda n=name, s=scheme: _with_user(server(n).url(s)), no_user),
            _on(name, lambda n=name, s=scheme: server(n).url(s, "missing"), no_database),
            _on(
                name,
                lambda n=name, s=scheme: server(n).url(s, table="no_such_table"),
                "table no_such_table",
            ),
        )
    ),
    *(
        case
        for name in ("redis", "valkey")
        for case in (
            _on(name, lambda n=name: _with_user(server(n).url(n, "0")), "refuses the user name"),
            _on(name, lambda n=name: server(n).url(n, "9999"), "no database of this number"),
        )
    ),
    _on("rabbitmq", lambda: _with_user(server("rabbitmq").url("amqp")), "refused the user name"),
    _on("rabbitmq", lambda: server("rabbitmq").url("amqp", "missing"), "refused the vhost"),
    _on("rabbitmq", lambda: server("rabbitmq").url("amqp", declare="false"), "no queue 'default'"),
    _on("ministack", _sqs, "QueueDoesNotExist"),
]


@pytest.mark.parametrize(("url", "text"), PERMANENT)
def test_what_only_a_person_can_repair_ends_a_worker(
    url: Callable[[], str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such user, database, table, folder or queue, as each driver tells it."""
    monkeypatch.chdir(tmp_path)
    with open_queue(url()) as queue, pytest.raises(BackendError, match=text) as caught:
        Worker(Jobs(queue)).run()
    assert caught.value.permanent


@pytest.mark.parametrize(
    "scheme", ["postgresql", "mysql", "mariadb", "redis", "valkey", "amqp", "sqs"]
)
def test_nobody_at_the_address_is_waited_for(
    scheme: str, caplog: pytest.LogCaptureFixture, box: Any
) -> None:
    """It may be starting, so it is no reason to end."""
    with socket.socket() as held:  # bound, and listened at by nobody
        held.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{held.getsockname()[1]}"
        url = f"{scheme}://{place}/"
        if scheme == "sqs":
            url = f"sqs://any:any@eu-west-1?endpoint=http://{place}"
        with open_queue(url) as queue:
            box.on(queue)
            running = box.start()
            box.until(lambda: "fetching jobs failed: " in caplog.text or running.ended)
            running.stop()
            running.end()


# The command

APP = """
    import os
    from dataclasses import dataclass
    from hypercube_jobs import Jobs
    from hypercube_queue import open_queue

    @dataclass
    class Note:
        text: str

    jobs = Jobs(open_queue(os.environ["JOBS_URL"]))

    @jobs.handler("note")
    def note(job: Note) -> None:
        pass
"""


@contextmanager
def _work(folder: Path, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "shop_app.py").write_text(textwrap.dedent(APP))
    process = subprocess.Popen(
        [HYPERCUBE, "work", "shop_app:jobs", *arguments],
        cwd=folder,
        env={**os.environ, "JOBS_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


ALONE_AND_SUPERVISED = pytest.mark.parametrize(
    "arguments", [(), ("--processes=0",), ("--processes=2",)]
)


@ALONE_AND_SUPERVISED
def test_the_command_ends_with_one_line_and_exit_code_1(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Also of several processes, none of which is tried again."""
    with _work(tmp_path, "sqlite:////no/such/folder/jobs.db", *arguments) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
    lines = [line for line in errors.splitlines() if "working on" not in line]
    assert process.returncode == 1
    (line,) = lines
    assert line.startswith("hypercube: database /no/such/folder/jobs.db: the file cannot be opened")


@ALONE_AND_SUPERVISED
def test_the_command_waits_for_a_backend_that_is_away(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """It says so, works as soon as it is there, and can be stopped before."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{held.getsockname()[1]}"
        with _work(tmp_path, url, *arguments) as process:
            assert process.stderr is not None
            end = time.monotonic() + PATIENCE_S
            while "fetching jobs failed: " not in (line := process.stderr.readline()):
                assert line, "it has ended"
                assert time.monotonic() < end
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
