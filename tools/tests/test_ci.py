"""What `.ci/run` does around the command of the README, with every program but bash made up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import workspace

_PYTHON = """\
#!/bin/bash
if [ "$1" = --version ]; then echo "Python 3.99"; exit; fi
echo "python3 $*" >> "$LOG"
[ -e "$LOG.no-venv" ] && exit 1
mkdir -p "$3/bin"
cp "${0%/*}/pip" "${0%/*}/nox" "$3/bin"
"""
_PIP = """\
#!/bin/bash
echo "pip $*" >> "$LOG"
"""
_NOX = """\
#!/bin/bash
echo "nox $* CI=$CI stdin=$(cat)" >> "$LOG"
echo "$HYPERCUBE_TEST_REQUIRE $TESTCONTAINERS_RYUK_DISABLED" > "$LOG.servers"
exit "$NOX_EXIT"
"""
_GIT = """\
#!/bin/bash
if [ "$1" = --version ]; then echo "git version 9"; exit; fi
[ "$*" = "remote get-url origin" ] && [ -e "$LOG.origin" ] && exec cat "$LOG.origin"
exit 2
"""
_DOCKER = """\
#!/bin/bash
echo "docker $*" >> "$LOG"
[ -e "$LOG.registry" ]
"""
_UP = """\
#!/bin/bash
echo "up" >> "$LOG"
"""
_APT = """\
#!/bin/bash
echo "apt-get $*" >> "$LOG"
[ "$1" = install ] && rm "$LOG.no-venv"
exit 0
"""
_TESTS = [
    "python3 -m venv .venv",
    "pip install -q nox[uv]",
    "nox -s tests -- --install-servers CI=true stdin=",
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the made-up programs write what they were called with."""
    programs = {"python3": _PYTHON, "pip": _PIP, "nox": _NOX, "git": _GIT, "apt-get": _APT}
    programs["docker"] = _DOCKER
    for name, text in programs.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    (tmp_path / "checkout/.ci").mkdir(parents=True)
    shutil.copy(workspace.ROOT / ".ci/run", tmp_path / "checkout/.ci/run")
    return tmp_path / "log"


def _run(log: Path, *, nox_exit: int = 0, venvs_tried: int = 1) -> tuple[int, list[str], str]:
    done = subprocess.run(
        [log.parent / "checkout/.ci/run"],
        check=False,
        capture_output=True,
        text=True,
        input="nobody reads this",
        env={
            "PATH": f"{log.parent / 'bin'}:{os.defpath}",
            "LOG": str(log),
            "NOX_EXIT": str(nox_exit),
        },
    )
    calls = log.read_text().splitlines()
    tried = [call for call in calls if call.startswith("python3 -m venv /")]
    assert len(tried) == venvs_tried
    return done.returncode, [call for call in calls if call not in tried], done.stdout


def test_ci_runs_the_command_where_it_lies(log: Path) -> None:
    """Whatever folder it is called from, with nothing to read, and installs nothing needless."""
    code, calls, output = _run(log)

    assert code == 0
    assert calls == _TESTS
    assert "Python 3.99" in output
    assert (log.parent / "checkout/.venv/bin/nox").exists()


@pytest.mark.parametrize("code", [1, 2, 101])
def test_ci_fails_as_the_tests_fail(log: Path, code: int) -> None:
    """With the very exit code."""
    assert _run(log, nox_exit=code)[0] == code


def test_ci_adds_what_a_bare_debian_lacks(log: Path) -> None:
    """Only where creating an environment fails."""
    Path(f"{log}.no-venv").touch()
    code, calls, _ = _run(log)

    assert code == 0
    assert calls == [
        "apt-get update -q",
        "apt-get install -q -y --no-install-recommends python3-venv",
        *_TESTS,
    ]


def _build_beside(folder: Path) -> None:
    up = folder / "shared/images/up"
    up.parent.mkdir(parents=True)
    up.write_text(_UP)
    up.chmod(0o755)


def test_ci_fails_without_the_servers(log: Path) -> None:
    """A missing one would otherwise leave out tests."""
    _run(log)

    assert Path(f"{log}.servers").read_text() == "all true\n"


def test_ci_builds_images_where_none_can_be_pulled(log: Path) -> None:
    """Before the tests, from what lies beside the repository."""
    _build_beside(log.parent)
    code, calls, _ = _run(log)

    assert code == 0
    assert calls == ["docker pull -q hello-world", "up", *_TESTS]


def test_ci_builds_images_from_beside_the_repository_that_it_was_cloned_from(log: Path) -> None:
    """A clone may lie anywhere."""
    _build_beside(log.parent / "elsewhere")
    Path(f"{log}.origin").write_text(f"{log.parent}/elsewhere/main\n")
    (log.parent / "elsewhere/main").mkdir()
    _, calls, _ = _run(log)

    assert calls == ["docker pull -q hello-world", "up", *_TESTS]


def test_ci_builds_no_images_where_they_can_be_pulled(log: Path) -> None:
    _build_beside(log.parent)
    Path(f"{log}.registry").touch()
    _, calls, _ = _run(log)

    assert calls == ["docker pull -q hello-world", *_TESTS]


def test_ci_does_not_run_tests_without_the_images_that_it_should_build(log: Path) -> None:
    """A failure is one at once, and not that of a server an hour later."""
    _build_beside(log.parent)
    (log.parent / "shared/images/up").write_text("#!/bin/bash\nexit 3\n")
    code, calls, _ = _run(log, venvs_tried=0)

    assert code == 3
    assert calls == ["docker pull -q hello-world"]
