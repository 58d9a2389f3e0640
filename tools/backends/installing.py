"""Putting a server's program on this machine: Debian's and Ubuntu's packages, or pip's."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.backends.kind import Kind, Unavailable
from tools.backends.run import base, locked

#: Asked by the packages whether they may start their servers.
POLICY = Path("/usr/sbin/policy-rc.d")

_OURS = "#!/bin/sh\n# Tests are installing servers, which they start themselves.\nexit 101\n"

#: Seconds for one call of a package manager.
_PATIENCE = 600


def install(kind: Kind) -> Path:
    """The program of a server, after everything that it needs was installed."""
    program = _from_pip(kind) if kind.requirement else _from_apt(kind)
    if program is None:
        raise Unavailable(f"{' '.join(kind.packages) or kind.requirement} brings no such program")
    return program


def cached(kind: Kind) -> Path | None:
    """The program that pip brought earlier."""
    program = _environment(kind) / "bin" / kind.programs[0]
    return program if kind.requirement and program.exists() else None


def _from_apt(kind: Kind) -> Path | None:
    if shutil.which("apt-get") is None:
        raise Unavailable("there is no apt-get; only Debian and Ubuntu are served")
    if os.geteuid() != 0:
        raise Unavailable("installing needs root")
    with locked(base() / "apt.lock"), _no_autostart():
        _update()
        # What is there stays as it is: an upgrade would restart a server that is in use.
        options = ("-y", "-q", "--no-install-recommends", "--no-upgrade")
        _call("apt-get", "install", *options, *kind.packages)
    return kind.find()


def _from_pip(kind: Kind) -> Path | None:
    folder = _environment(kind)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if cached(kind) is None:
            _call(sys.executable, "-m", "venv", "--clear", str(folder))
            _call(str(folder / "bin/python"), "-m", "pip", "install", "-q", kind.requirement)
    return cached(kind)


def _environment(kind: Kind) -> Path:
    """In a folder that a server's own user can read too."""
    version = re.sub(r"[^a-z0-9.]+", "-", kind.requirement)
    return base() / f"programs-{sys.version_info.major}.{sys.version_info.minor}" / version


@contextmanager
def _no_autostart() -> Iterator[None]:
    """Packages must not start servers; what forbade or allowed it before is back afterwards."""
    saved = POLICY.with_name(POLICY.name + ".saved-by-tests")
    if POLICY.exists() and POLICY.read_text() != _OURS:  # else a run was killed right here
        POLICY.replace(saved)
    POLICY.write_text(_OURS)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
        if saved.exists():
            saved.replace(POLICY)


@functools.cache
def _update() -> None:
    _call("apt-get", "update", "-q")


def _call(*command: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PYTHONPATH": ""}
    try:
        done = subprocess.run(
            command,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if re.match("E:|ERROR", line)] or lines[-3:]
        raise Unavailable(f"`{' '.join(command)}` failed: {' / '.join(errors)}")
