"""A run of tests: its folder, which is held as long as it lives, and what others left behind."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tools.backends import processes

#: Tells the processes of a run where its folder is.
VARIABLE = "HYPERCUBE_TEST_RUN"


def base() -> Path:
    """Where the folders of all runs of this user are."""
    folder = Path(tempfile.gettempdir()) / f"hypercube-tests-{os.getuid()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else; remove it")
    folder.chmod(0o711)  # servers of other users pass through
    return folder


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds the file, over all threads and processes; the end of the process lets go."""
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Run:
    """The folder of one run, as each of its processes sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def current(cls) -> Run | None:
        """The run that this process is part of."""
        folder = os.environ.get(VARIABLE)
        return cls(Path(folder)) if folder and Path(folder).is_dir() else None

    @property
    def token(self) -> str:
        """What tells the containers of this machine from those of another with the same engine."""
        return (self.folder.parent / "token").read_text()

    def folder_of(self, label: str) -> Path:
        """A new folder for one server."""
        folder = self.folder / label
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o711)
        return folder

    def write(self, name: str, value: Any) -> None:
        """Keep a value for the other processes of the run."""
        made = self.folder / f".{name}.{os.getpid()}"
        made.write_text(json.dumps(value))
        made.rename(self.folder / name)

    def read(self, name: str) -> Any:
        """A value that `write` kept; None if nobody did."""
        file = self.folder / name
        return json.loads(file.read_text()) if file.exists() else None

    def clean(self) -> None:
        """End every server of the run, and remove its folder."""
        if (self.folder / "containers").exists():
            from tools.backends import containers

            containers.remove_of_run(self)
        processes.end_all(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


class OwnRun(Run):
    """The run whose servers this process started; nobody sweeps it while this process lives."""

    def __init__(self) -> None:
        with locked(base() / "lock"):
            token = base() / "token"
            if not token.exists():
                token.write_text(secrets.token_hex(8))
            for folder in base().glob("run-*"):
                _sweep(folder)
            super().__init__(Path(tempfile.mkdtemp(prefix="run-", dir=base())))
            self.folder.chmod(0o711)
            self._held = (self.folder / "alive").open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX)
        os.environ[VARIABLE] = str(self.folder)

    def close(self) -> None:
        """`clean`, once."""
        if self._held.closed:
            return
        os.environ.pop(VARIABLE, None)
        try:
            self.clean()
        finally:
            self._held.close()


def _sweep(folder: Path) -> None:
    """End what a run left behind, if nobody holds it any more."""
    alive = folder / "alive"
    if alive.exists():
        with alive.open("r") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            with suppress(ImportError):  # without the library there is no way to a container
                Run(folder).clean()
    else:
        shutil.rmtree(folder, ignore_errors=True)
