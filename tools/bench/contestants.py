"""Other queues, each in an environment and a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_SCRIPTS = Path(__file__).parent / "peers"
#: Where their environments stay, so that the next run need not make them.
_ENVIRONMENTS = Path(".nox/peers")
#: Seconds that one of them may take for everything.
_PATIENCE = 300


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another queue in its best settings."""

    title: str
    #: Of its file in peers/, and of its environment.
    name: str
    requirements: Sequence[str]
    #: How often it may run a job.
    delivery: str
    #: How many jobs are enqueued one by one, and many at once.
    singly: int = 500
    bulk: int = 10_000
    settings: Mapping[str, object] = field(default_factory=dict)

    def install(self) -> None:
        """Make its environment, unless it is there."""
        folder = _ENVIRONMENTS / self.name
        installed = folder / "installed.txt"
        wanted = "\n".join(self.requirements)
        if installed.exists() and installed.read_text() == wanted:
            return
        venv.create(folder, clear=True, with_pip=True)
        pip = (self._python, "-m", "pip", "install", "-qq", "--disable-pip-version-check")
        subprocess.run([*pip, *self.requirements], check=True)
        installed.write_text(wanted)

    def rates(self, address: str, scale: float) -> dict[str, float]:
        """Jobs per second: "singly", "bulk" where it has a call for it, and "drain"."""
        told = {
            "address": address,
            "singly": int(self.singly * scale),
            "bulk": int(self.bulk * scale),
            **self.settings,
        }
        done = subprocess.run(
            # -P: the script has the name of what it imports.
            [self._python, "-P", _SCRIPTS / f"{self.name}.py"],
            input=json.dumps(told),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_PATIENCE,
        )
        rates: dict[str, float] = json.loads(done.stdout)
        return rates

    @property
    def _python(self) -> Path:
        scripts = "Scripts" if sys.platform == "win32" else "bin"
        return _ENVIRONMENTS / self.name / scripts / "python"


def _pgqueuer(title: str, batch_size: int) -> Peer:
    return Peer(
        title=title,
        name="pgqueuer",
        requirements=("pgqueuer[asyncpg]>=1.6,<2", "uvloop"),
        delivery="at least once",
        settings={"batch_size": batch_size},
    )


def _huey(**settings: object) -> Peer:
    return Peer(
        title="huey",
        name="huey",
        requirements=("huey>=3,<4", *_REDIS),
        delivery="at most once",
        singly=5_000,
        bulk=0,
        settings=settings,
    )


#: What all that reach Redis are measured with, if they do not bring it: its compiled parser.
_REDIS = ("redis", "hiredis")


def _dramatiq(**settings: object) -> Peer:
    return Peer(
        title="dramatiq",
        name="dramatiq",
        requirements=("dramatiq[rabbitmq,redis]>=2,<3", *_REDIS),
        delivery="at least once",
        singly=5_000,
        bulk=0,
        settings=settings,
    )


def _taskiq(title: str, **settings: object) -> Peer:
    return Peer(
        title=title,
        name="taskiq",
        requirements=("taskiq-aio-pika>=0.6,<1", "taskiq-redis>=1.2,<2", "uvloop", *_REDIS),
        delivery="at least once",
        bulk=5_000,
        settings=settings,
    )


def _celery(**settings: object) -> Peer:
    return Peer(
        title="celery, late ack",
        name="celery",
        requirements=("celery[redis]>=5.6,<6", *_REDIS),
        delivery="at least once",
        singly=2_500,
        bulk=0,
        settings=settings,
    )


_ON_REDIS: Sequence[Peer] = (
    _dramatiq(threads=8, prefetch=100),
    _taskiq("taskiq, stream", concurrency=100, prefetch=1_000),
    Peer(
        title="arq",
        name="arq",
        requirements=("arq>=0.28,<1", "uvloop", *_REDIS),
        delivery="at least once",
        bulk=2_500,
        settings={"concurrency": 100},
    ),
    _celery(prefetch=100),
    _huey(),
)

_ON_RABBITMQ: Sequence[Peer] = (
    _dramatiq(threads=8, prefetch=100),
    _taskiq("taskiq, quorum queue", concurrency=100, prefetch=1_000),
    _celery(prefetch=100),
)


PEERS: dict[str, Sequence[Peer]] = {
    "sqlite": (_huey(fsync=True),),
    "sqlite-normal": (_huey(fsync=False),),
    "postgresql": (
        _pgqueuer("pgqueuer, batch 500", 500),
        _pgqueuer("pgqueuer", 10),
        Peer(
            title="procrastinate",
            name="procrastinate",
            requirements=("procrastinate>=3.10,<4", "psycopg[binary]"),
            delivery="at least once",
            bulk=1_000,
            settings={"concurrency": 10},
        ),
    ),
    "redis": _ON_REDIS,
    # They know it as a Redis.
    "valkey": _ON_REDIS,
    "rabbitmq": _ON_RABBITMQ,
    "rabbitmq-4.0": _ON_RABBITMQ,
}
