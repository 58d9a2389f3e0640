"""Commands on a bare Debian; debootstrap is made up, the nightly run has the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bare

_DEBOOTSTRAP = """\
#!/bin/sh
echo "debootstrap $1 $2 $3" >> "$LOG"
mkdir -p "$4/etc/apt/apt.conf.d" "$4/root"
"""
#: Fails for a command that says so.
_UNSHARE = """\
#!/bin/sh
for each; do :; done
echo "$each" >> "$LOG"
case $each in *fail*) exit 7;; esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the made-up programs were called with; the machine has no settings."""
    for name, text in {"debootstrap": _DEBOOTSTRAP, "unshare": _UNSHARE}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(bare, "settings", lambda *_: bare.Settings({}, {}, ()))
    return tmp_path / "log"


def _main(monkeypatch: pytest.MonkeyPatch, log: Path, *command: str) -> int | str | None:
    """The exit code, or the text with which it ends."""
    arguments = ["bare.py", "trixie", str(log.parent / "kept"), *command]
    monkeypatch.setattr(sys, "argv", arguments)
    try:
        bare.main()
    except SystemExit as end:
        return end.code
    return 0


def test_the_readme_has_two_commands_to_try() -> None:
    """The very ones that a user copies."""
    quickstart, tests = bare.commands((bare.ROOT / "README.md").read_text())

    assert quickstart.endswith(".venv/bin/nox -s quickstart")
    assert tests.endswith(".venv/bin/nox -s tests -- --install-servers")


def test_the_packages_are_those_that_the_readme_asks_for() -> None:
    readme = (bare.ROOT / "README.md").read_text()

    assert all(name in readme for name in bare.PACKAGES)


def test_both_commands_run_in_a_clone_on_packages_alone(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _main(monkeypatch, log) == 0

    made, first, second = log.read_text().splitlines()
    assert made == f"debootstrap --variant=minbase --include={','.join(bare.PACKAGES)} trixie"
    assert first.startswith("cd /root/hypercube && python3 -m venv")
    assert second.startswith("cd /root/hypercube && python3 -m venv")
    assert (log.parent / "kept/trixie.run/root/hypercube/README.md").exists()


def test_the_first_command_that_fails_is_the_end(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its exit code."""
    monkeypatch.setattr(bare, "commands", lambda _: ["first fails", "second"])

    assert _main(monkeypatch, log) == 7
    assert "second" not in log.read_text()


def test_each_run_begins_anew_on_the_system_that_was_made_once(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier run left in its copy is gone."""
    assert _main(monkeypatch, log, "first") == 0
    left = log.parent / "kept/trixie.run/left"
    left.touch()

    assert _main(monkeypatch, log, "second") == 0
    assert not left.exists()
    assert log.read_text().count("debootstrap") == 1


def test_half_a_system_is_made_again(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that made it was ended, or its packages could not be had."""
    program = log.parent / "bin/debootstrap"
    program.write_text(_DEBOOTSTRAP + "exit 1\n")
    assert "debootstrap" in str(_main(monkeypatch, log, "first"))

    program.write_text(_DEBOOTSTRAP)
    assert _main(monkeypatch, log, "first") == 0


def test_a_missing_debootstrap_is_named(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bare.shutil.which
    monkeypatch.setattr(
        bare.shutil, "which", lambda name: None if name == "debootstrap" else real(name)
    )

    assert _main(monkeypatch, log) == (
        "trixie: there is no debootstrap; install the package of that name"
    )


def test_the_archive_is_the_one_of_this_machine() -> None:
    """Not that of security updates, and none where there is no Debian."""
    targets = (
        "http://one.test/debian-security/\nhttp://two.test/debian/\nhttp://three.test/debian\n"
    )

    assert bare.mirror(targets) == "http://two.test/debian/"
    assert bare.mirror("http://one.test/ubuntu/\n") == ""


def test_settings_come_with_the_files_and_folders_that_they_name(tmp_path: Path) -> None:
    """And without those of anything else."""
    for name in (
        "certificates.pem",
        "constraints.txt",
        "index/simple/x",
        "home/.config/pip/pip.conf",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "wheels").mkdir()
    settings = tmp_path / "home/.config/pip/pip.conf"
    index = f"find-links = file://{tmp_path}/index/simple https://files.test{tmp_path}/missing"
    settings.write_text(f"[global]\nconstraint={tmp_path}/constraints.txt\n{index}\n")
    environment = {
        "PIP_CERT": f"{tmp_path}/certificates.pem",
        "PIP_FIND_LINKS": f"{tmp_path}/wheels",
        "https_proxy": "http://proxy.test:1",
        "SECRET": f"{tmp_path}/home",
    }

    found = bare.settings(environment, tmp_path / "home")
    assert set(found.environment) == {"PIP_CERT", "PIP_FIND_LINKS", "https_proxy"}
    ours = {name for name in found.files if name.startswith((str(tmp_path), "/root"))}
    assert {
        "/root/.config/pip/pip.conf",
        f"{tmp_path}/certificates.pem",
        f"{tmp_path}/constraints.txt",
    } <= ours
    assert {f"{tmp_path}/index", f"{tmp_path}/wheels"} <= set(found.folders)
    assert f"{tmp_path}/home" not in found.folders


def _may_mount() -> bool:
    probe = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    try:
        return subprocess.run(probe, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not _may_mount(), reason="needs Linux, root and the right to mount")
def test_a_command_is_within_and_its_code_comes_out(tmp_path: Path) -> None:
    """Beside nothing that runs on the machine, and without its Docker engine."""
    root = tmp_path / "root"
    for folder in ("proc", "dev", "run", "root/hypercube", "usr", "tmp"):
        (root / folder).mkdir(parents=True)
    for link in ("bin", "lib", "lib64", "sbin"):
        (root / link).symlink_to(f"usr/{link}")
    found = bare.Settings({"PIP_X": "here"}, {}, ("/usr",))
    (root / "usr").rmdir()
    script = 'pwd > /tmp/seen; ls /run >> /tmp/seen; echo "$PIP_X" >> /tmp/seen; exit 7'

    assert bare.run(root, found, script) == 7
    assert (root / "tmp/seen").read_text() == "/root/hypercube\nhere\n"
    assert subprocess.run(["mountpoint", "-q", str(root / "proc")], check=False).returncode != 0
