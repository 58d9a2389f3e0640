"""What tests of workers have in common, and the backends that some of them run on."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tools.backends import server

from hypercube_jobs import Ending, JobEvent, Jobs, Observer, Worker
from hypercube_queue import Queue
from hypercube_queue_memory import MemoryQueue

#: Longer than anything here takes on a machine that works.
PATIENCE = 30.0


@dataclass
class Note:
    """The job of most tests."""

    text: str


#: Every backend by the server that it takes, if any, and its URL. `name` is the test's own.
BACKENDS: dict[str, tuple[str, Callable[[str, Path], str]]] = {
    "memory": ("", lambda name, _folder: f"memory://{name}"),
    "sqlite": ("", lambda name, folder: f"sqlite:///{folder}/{name}.db"),
    "postgresql": ("postgres", lambda name, _folder: _sql("postgres", "postgresql", name)),
    "mysql": ("mysql", lambda name, _folder: _sql("mysql", "mysql", name)),
    "mariadb": ("mariadb", lambda name, _folder: _sql("mariadb", "mariadb", name)),
    "redis": ("redis", lambda name, _folder: server("redis").url("redis", "0", prefix=name)),
    "valkey": ("valkey", lambda name, _folder: server("valkey").url("valkey", "0", prefix=name)),
    "rabbitmq": (
        "rabbitmq",
        lambda name, _folder: server("rabbitmq").url("amqp", prefix=f"{name}."),
    ),
    "rabbitmq-classic": (
        "rabbitmq",
        lambda name, _folder: server("rabbitmq").url(
            "amqp", prefix=f"{name}.", queue_type="classic"
        ),
    ),
    "sqs": ("ministack", lambda name, _folder: _sqs(name)),
}


def pytest_hypercube_servers() -> list[str]:
    """The plugin of tools/backends asks."""
    return [needed for needed, _ in BACKENDS.values() if needed]


def _sql(name: str, scheme: str, table: str) -> str:
    return server(name).url(scheme, table=table, create_tables="true")


def _sqs(name: str) -> str:
    place = server("ministack")
    return (
        f"sqs://any:any@eu-west-1?endpoint=http://{place.host}:{place.port}&prefix={name}-"
        "&ensure_queues=true"
    )


def _params(*names: str) -> list[object]:
    marks = {name: pytest.mark.server(needed) for name, (needed, _) in BACKENDS.items() if needed}
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]


@pytest.fixture(params=_params(*BACKENDS))
def url_of_each(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URL of the test's own, on each backend."""
    return BACKENDS[request.param][1](f"t{secrets.token_hex(6)}", tmp_path)


@pytest.fixture(params=_params(*(name for name in BACKENDS if name != "memory")))
def url_of_each_shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same on each backend that several processes can share."""
    return BACKENDS[request.param][1](f"t{secrets.token_hex(6)}", tmp_path)


@pytest.fixture(params=_params("sqlite", "postgresql", "redis"))
def url_of_some(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same on three backends that are as different as can be."""
    return BACKENDS[request.param][1](f"t{secrets.token_hex(6)}", tmp_path)


@pytest.fixture(params=_params("memory", "sqlite", "postgresql"))
def url_of_threads(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same where it is about the threads of the worker: one in memory, one real server."""
    return BACKENDS[request.param][1](f"t{secrets.token_hex(6)}", tmp_path)


class Recorder(Observer):
    """Keeps what it is told, as `(step, event)`."""

    def __init__(self) -> None:
        self.events: list[tuple[str, JobEvent]] = []

    def steps(self) -> list[str]:
        return [step for step, _ in self.events]

    def of(self, step: str) -> list[JobEvent]:
        return [event for each, event in self.events if each == step]

    def dispatched(self, event: JobEvent) -> None:
        self.events.append(("dispatched", event))

    def processed(self, event: JobEvent) -> None:
        self.events.append(("processed", event))

    def failed(self, event: JobEvent) -> None:
        self.events.append(("failed", event))

    def interrupted(self, event: JobEvent) -> None:
        self.events.append(("interrupted", event))

    def lost(self, event: JobEvent) -> None:
        self.events.append(("lost", event))


class Running:
    """A worker that runs in a thread of its own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.returned: Ending | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.returned = self.worker.run()
        except BaseException as error:  # noqa: BLE001  # end() raises it
            self.error = error

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self, *, now: bool = False) -> None:
        self.worker.stop(now=now)

    def end(self) -> None:
        """Wait until it has ended; raises what `run` raised."""
        self._thread.join(PATIENCE)
        assert self.ended, "the worker does not end"
        if self.error is not None:
            raise self.error


class Toolbox:
    """What tests of workers do again and again."""

    Note = Note
    Recorder = Recorder

    def __init__(self) -> None:
        self.queue: Queue = MemoryQueue()
        self.recorder = Recorder()
        self.jobs = Jobs(self.queue, observers=[self.recorder])
        self._running: list[Running] = []

    def on(self, queue: Queue) -> Jobs:
        """Jobs on another queue, with the same recorder."""
        self.queue = queue
        self.jobs = Jobs(queue, observers=[self.recorder])
        return self.jobs

    def start(self, **options: object) -> Running:
        """A worker that runs until it is stopped."""
        running = Running(Worker(self.jobs, **{"sleep": timedelta(seconds=0.05), **options}))
        self._running.append(running)
        return running

    def drain(self, **options: object) -> None:
        """Work until nothing is ready any more."""
        self.start(stop_when_empty=True, **options).end()

    def counts(self, name: str = "default") -> tuple[int, int, int, int]:
        """Ready, delayed, in flight, dead."""
        stats = self.queue.stats(name)
        return stats.ready, stats.delayed, stats.in_flight, stats.dead

    def stop_all(self) -> None:
        for running in self._running:
            running.stop(now=True)
        for running in self._running:
            running._thread.join(PATIENCE)

    @staticmethod
    def until(condition: Callable[[], object], what: str = "") -> None:
        """Wait until `condition` holds."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, what or "it never came to this"
            time.sleep(0.002)


@pytest.fixture
def box() -> Iterator[Toolbox]:
    toolbox = Toolbox()
    yield toolbox
    toolbox.stop_all()
