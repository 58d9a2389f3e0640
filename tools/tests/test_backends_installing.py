"""Installing servers by a made-up apt-get, which leaves this machine as it is.

The real one is behind "redis@apt", which other tests use.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tools.backends import installing
from tools.backends.kind import Kind, Unavailable

_APT = """\
#!/bin/sh
echo "$*" >> "$LOG"
[ "$1" = install ] || exit 0
cat "$POLICY" >> "$LOG"
ls -l "$POLICY" | cut -c1-10 >> "$LOG"
[ -e "$LOG.broken" ] && { echo "some words"; echo "E: no such package"; exit 100; }
cp "$0" "${0%/*}/made-up-server"
"""


class _MadeUp(Kind):
    """A server of two packages."""

    name = "made-up"
    title = "Made-up"
    programs = ("made-up-server",)
    packages = ("made-up-server", "made-up-tools")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the made-up apt-get writes what it was told and saw."""
    apt = tmp_path / "bin/apt-get"
    apt.parent.mkdir()
    apt.write_text(_APT)
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{apt.parent}:{os.defpath}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("POLICY", str(tmp_path / "policy-rc.d"))
    monkeypatch.setattr(installing, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    installing._update.cache_clear()
    return tmp_path / "log"


def test_packages_are_installed_and_their_servers_not_started(log: Path) -> None:
    """Nor is anything upgraded, which would restart a server that is in use."""
    program = installing.install(_MadeUp())

    assert program == log.parent / "bin/made-up-server"
    update, install, *policy = log.read_text().splitlines()
    assert update == "update -q"
    assert install == (
        "install -y -q --no-install-recommends --no-upgrade made-up-server made-up-tools"
    )
    assert policy[0] == "#!/bin/sh"
    assert policy[-2:] == ["exit 101", "-rwxr-xr-x"]
    assert not (log.parent / "policy-rc.d").exists()


def test_lists_are_updated_once(log: Path) -> None:
    installing.install(_MadeUp())
    installing.install(_MadeUp())

    assert log.read_text().count("update") == 1


@pytest.mark.parametrize("broken", [False, True])
def test_an_existing_policy_is_restored(log: Path, *, broken: bool) -> None:
    """Also where the installation fails."""
    policy = log.parent / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 104\n")
    policy.chmod(0o700)
    if broken:
        Path(f"{log}.broken").touch()
        with pytest.raises(Unavailable, match=r"apt-get install .* failed: E: no such package$"):
            installing.install(_MadeUp())
    else:
        installing.install(_MadeUp())

    assert "exit 101" in log.read_text()
    assert policy.read_text() == "#!/bin/sh\nexit 104\n"
    assert policy.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in log.parent.glob("policy*")] == ["policy-rc.d"]


def test_what_a_killed_run_left_is_not_taken_for_the_machines_own(log: Path) -> None:
    """Its policy goes, and the one that it had put aside comes back."""
    policy = log.parent / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 104\n")
    killed = installing._no_autostart()
    killed.__enter__()
    installing.install(_MadeUp())

    assert policy.read_text() == "#!/bin/sh\nexit 104\n"


def test_only_root_installs(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="needs root"):
        installing.install(_MadeUp())

    assert not log.exists()


def test_other_systems_are_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(log.parent))
    with pytest.raises(Unavailable, match="no apt-get"):
        installing.install(_MadeUp())


def test_a_package_without_the_program_is_no_success(log: Path) -> None:
    class Other(_MadeUp):
        programs = ("another-server",)

    with pytest.raises(Unavailable, match="made-up-server made-up-tools brings no such program"):
        installing.install(Other())
