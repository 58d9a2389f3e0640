"""Runs commands on a bare Debian: a root file system of packages alone, without Docker engine.

    python tools/bare.py trixie FOLDER
    python tools/bare.py trixie FOLDER "nox -s lint"

The first form runs the commands of README.md under "Try it", one after the other, as a user does
who has cloned the repository; the second one runs another command in that clone. The exit code is
that of the first command that fails. The clone has what is committed.

The packages come from the machine's own source of Debian packages, else from debootstrap's
default; network, proxies and the settings of pip and uv are the machine's, too. FOLDER keeps the
bare system, from which each run takes a fresh copy. Needs root, debootstrap and git, and only the
standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from snippets import blocks
from workspace import ROOT

#: What README.md asks for, by Debian's names.
PACKAGES = ("python3", "python3-venv", "git")

#: Where the clone is; root's home is as closed as on any Debian.
_CHECKOUT = "/root/hypercube"

#: Settings of the machine without which packages and wheels may be out of reach.
_PASSED_ON = re.compile(
    r"PIP_\w+|UV_\w+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|(?:https?|no|all)_proxy", re.IGNORECASE
)
_APT_SETTINGS = re.compile(r"Acquire::(?:https?|Check-[\w-]+|Retries)\b")

#: Makes the folder a file system of its own, mounts what a system has, and becomes the process
#: that all orphans are handed to.
_ENTER = """\
set -eu
root=$1
shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
while [ "$1" != -- ]; do
  mount --bind "$1" "$root$1"
  mount -o remount,bind,ro "$root$1"
  shift
done
shift
chroot "$root" "$@" < /dev/null
exit "$?"
"""


class Failed(Exception):
    """The bare system cannot be made; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process on this machine has and a bare system lacks."""

    environment: Mapping[str, str]
    #: By where they are.
    files: Mapping[str, bytes]
    #: Seen in the bare system at the same place, but not written to.
    folders: tuple[str, ...]


def commands(readme: str) -> list[str]:
    """The commands that a README tells a user to try."""
    section = re.search(r"(?ms)^## Try it$(.*?)^## ", readme)
    found = [block.body for block in blocks(section[1] if section else "")]
    return [line for body in found for line in body.splitlines() if line.strip()]


def mirror(targets: str) -> str:
    """The first address of Debian's main archive among those that apt has; "" if it has none."""
    found = re.search(r"(?m)^\S+/debian/?$", targets)
    return found[0] if found else ""


def settings(environment: Mapping[str, str], home: Path) -> Settings:
    """The machine's settings of pip and uv, with the files and folders that they name."""
    passed = {name: text for name, text in environment.items() if _PASSED_ON.fullmatch(name)}
    homes = (Path("/etc"), Path("/etc/xdg"), home / ".config")
    written = [folder / name for folder in homes for name in ("pip/pip.conf", "uv/uv.toml")]
    written += [Path("/etc/pip.conf"), home / ".pip/pip.conf"]
    files = {str(file): file.read_bytes() for file in written if file.is_file()}
    texts = [*passed.values(), *(content.decode() for content in files.values())]
    named = [Path(path) for text in texts for path in _paths(text)]
    files |= {str(path): path.read_bytes() for path in named if path.is_file()}
    # The pages of an index link to files beside them.
    seen = (path.parent if path.name == "simple" else path for path in named if path.is_dir())
    folders = tuple(sorted(set(map(str, seen))))
    in_home = {re.sub(rf"^{home}/", "/root/", path): content for path, content in files.items()}
    return Settings(passed, in_home, folders)


def make(suite: str, folder: Path) -> Path:
    """A root file system with these packages alone; the one from before if it is there."""
    base = folder / suite
    if base.exists():
        return base
    if shutil.which("debootstrap") is None:
        raise Failed("there is no debootstrap; install the package of that name")
    targets = _output("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    new = folder / f"{suite}.new"
    shutil.rmtree(new, ignore_errors=True)
    # Servers that are installed later run as users of their own, who pass through.
    new.mkdir(parents=True)
    options = ("--variant=minbase", f"--include={','.join(PACKAGES)}")
    source = [mirror(targets)] if mirror(targets) else []
    subprocess.run(["debootstrap", *options, suite, str(new), *source], check=True)
    return new.rename(base)


def prepare(base: Path, root: Path, found: Settings) -> None:
    """A copy of the bare system with a clone of this repository, and the machine's settings."""
    if root.exists():
        shutil.rmtree(root)
    subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
    clone = ["git", "clone", "--quiet", f"file://{ROOT}", str(root) + _CHECKOUT]
    subprocess.run(clone, check=True)
    apt = [line for line in _output("apt-config", "dump").splitlines() if _APT_SETTINGS.match(line)]
    files = {**found.files, "/etc/apt/apt.conf.d/90machine": "\n".join([*apt, ""]).encode()}
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        files[name] = Path(name).read_bytes()
    for name, content in files.items():
        file = Path(f"{root}{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(content)


def run(root: Path, found: Settings, command: str) -> int:
    """The exit code of a command in the clone; what it leaves running is killed."""
    # What is there without being passed on belongs to the bare system.
    folders = [folder for folder in found.folders if not Path(f"{root}{folder}").exists()]
    for folder in folders:
        Path(f"{root}{folder}").mkdir(parents=True)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {**found.environment, "PATH": path, "HOME": "/root", "USER": "root"}
    within = ["env", "-i", *(f"{name}={text}" for name, text in environment.items())]
    within += ["sh", "-c", f"cd {shlex.quote(_CHECKOUT)} && {command}"]
    enter = ["unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child"]
    enter += ["sh", "-c", _ENTER, "sh", str(root), *folders, "--", *within]
    try:
        return subprocess.run(enter, check=False).returncode
    finally:
        for folder in folders:  # only where it was mounted; here it is empty
            Path(f"{root}{folder}").rmdir()


def _paths(text: str) -> Iterable[str]:
    """The absolute paths in a text, in file URLs as well."""
    return (match[1] for match in re.finditer(r"(?:^|[\s\"'=,]|file://)(/[^\s\"',]+)", text))


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs commands on a bare Debian.")
    parser.add_argument("suite", help="Debian's name of a release, such as trixie")
    parser.add_argument("folder", type=Path, help="where the bare system is kept")
    parser.add_argument("command", nargs="?", help="by default those of README.md")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("a root file system is made and entered by root alone; run this as root")
    folder = arguments.folder.resolve()
    readme = (ROOT / "README.md").read_text()
    wanted = [arguments.command] if arguments.command else commands(readme)
    found = settings(os.environ, Path.home())
    try:
        root = folder / f"{arguments.suite}.run"
        prepare(make(arguments.suite, folder), root, found)
        for command in wanted:
            print(f"{arguments.suite}: {command}", flush=True)
            code = run(root, found, command)
            print(f"{arguments.suite}: exit code {code}", flush=True)
            if code:
                sys.exit(code)
    except (Failed, subprocess.CalledProcessError) as error:
        sys.exit(f"{arguments.suite}: {error}")


if __name__ == "__main__":
    main()
