"""Servers as plain processes: started, found again by their folder, and ended with all theirs."""

from __future__ import annotations

import atexit
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from tools.backends.kind import Kind, Site, Unavailable

#: Seconds for a server to end in good order, and for the preparation of one.
_PATIENCE = 60.0

#: Those that this process started, to be asked for their end by it alone.
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


@atexit.register
def _let_go() -> None:
    """A server lives as long as its run, which may be longer than this process of it."""
    for child in _CHILDREN.values():
        if child.poll() is None:
            child.returncode = 0


@dataclass
class _Record:
    """What is kept of a process, beside its output."""

    command: list[str]
    environment: dict[str, str]
    user: str | None
    stop_signal: str
    lock_files: list[str]
    pid: int = 0
    created: float = 0.0


class Process:
    """One server, by its folder, from any process of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def launch(cls, kind: Kind, site: Site) -> Process:
        """Prepare the folder and start; does not wait for it to answer."""
        user, folder = service_user(kind.user), site.folder
        environment = {
            "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            **kind.process_environment(site),
        }
        if user is not None:
            shutil.chown(folder, user)

        def run(command: Sequence[str | Path]) -> None:
            _prepare(command, environment, user, folder)

        kind.prepare(site, run)
        command = [str(word) for word in kind.command(site)]
        process = cls(folder)
        locks = list(kind.lock_files)
        process._spawn(_Record(command, environment, user, kind.stop_signal, locks))
        return process

    def start(self) -> None:
        """Once more, on the same address, with its data."""
        if not self.running():
            record = self._record()
            for name in record.lock_files:
                (self._folder / name).unlink(missing_ok=True)
            self._spawn(record)

    def running(self) -> bool:
        return bool(self._tree())

    def stop(self) -> None:
        """End it in good order."""
        tree = self._tree()
        if tree:
            self.resume()
            tree[0].send_signal(signal.Signals[self._record().stop_signal])
            _gone(tree[:1], _PATIENCE)
        _kill(tree)  # what it started may outlive it

    def kill(self) -> None:
        """End it without warning, and all that it started."""
        _kill(self._tree())

    def pause(self) -> None:
        """It keeps its connections and says nothing."""
        for process in self._tree():
            _send(process, signal.SIGSTOP)

    def resume(self) -> None:
        for process in reversed(self._tree()):
            _send(process, signal.SIGCONT)

    def log(self) -> str:
        """The end of what it said."""
        return _tail((self._folder / "log").read_text(errors="replace"))

    def _record(self) -> _Record:
        return _Record(**json.loads((self._folder / "process.json").read_text()))

    def _tree(self) -> list[psutil.Process]:
        """It and its descendants, those that are alive."""
        record = self._record()
        try:
            process = psutil.Process(record.pid)
            if abs(process.create_time() - record.created) > 1:
                return []
            tree = [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        tree = [each for each in tree if not _ended(each)]
        return tree if process in tree else []

    def _spawn(self, record: _Record) -> None:
        with (self._folder / "log").open("ab") as log:
            try:
                child = subprocess.Popen(
                    record.command,
                    cwd=self._folder,
                    env=record.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # the keyboard's interrupt is for the tests
                    **_identity(record.user),
                )
            except OSError as error:
                raise Unavailable(f"{record.command[0]}: {error}") from error
        _CHILDREN[child.pid] = child
        record.pid = child.pid
        record.created = psutil.Process(child.pid).create_time()
        made = self._folder / "process.json.new"
        made.write_text(json.dumps(asdict(record)))
        made.rename(self._folder / "process.json")


def end_all(folder: Path) -> None:
    """Kill every process that has its record in a folder below."""
    for record in folder.glob("*/process.json"):
        Process(record.parent).kill()


def service_user(name: str) -> str | None:
    """Whom root makes run a server; None for no change."""
    if os.geteuid() != 0 or not name:
        return None
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        return "nobody"


def _prepare(
    command: Sequence[str | Path], environment: Mapping[str, str], user: str | None, folder: Path
) -> None:
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE,
            **_identity(user),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed: {_tail(done.stdout.decode(errors='replace'))}")


def _identity(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _kill(tree: Sequence[psutil.Process]) -> None:
    for process in tree:
        _send(process, signal.SIGKILL)
    _gone(tree, _PATIENCE)


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _gone(processes: Sequence[psutil.Process], patience: float) -> None:
    end = time.monotonic() + patience
    while not all(_ended(process) for process in processes) and time.monotonic() < end:
        time.sleep(0.01)


def _ended(process: psutil.Process) -> bool:
    """Also where its parent, another process of the run, has not asked for it yet."""
    child = _CHILDREN.get(process.pid)
    if child is not None and child.poll() is not None:
        return True
    try:
        if not process.is_running():
            return True
        # Killed in the middle of a sync, some of its threads outlive the first.
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


def _tail(text: str) -> str:
    """What a person needs of an output: its errors, or else its end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search("error|fatal", line, re.IGNORECASE)]
    return " / ".join((errors or lines)[-6:])[-1_000:]
