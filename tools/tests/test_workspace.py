"""Reading the workspace, on one made for the purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import workspace

#: name: (runtime dependencies, extras, test group)
_MADE_UP = {
    "core": ([], {}, ["pytest>=8", "store"]),
    "store": (["core>=1.0,<2"], {}, [{"include-group": "shared"}]),
    "suite": (["core>=1.0,<2", "Py_Test>=8"], {}, []),
    "work": (["core>=1.0,<2"], {"testing": ["store>=1.0,<2"]}, ["other-store"]),
    "other-store": (["core>=1.0,<2"], {}, ["suite"]),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace of five distributions."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.hatch.envs.default]\nworkspace.members = ["packages/*", "suite"]\n'
    )
    for name, (dependencies, extras, group) in _MADE_UP.items():
        folder = tmp_path / ("suite" if name == "suite" else f"packages/{name}")
        source = folder / "src" / name.replace("-", "_")
        source.mkdir(parents=True)
        (source / "__about__.py").write_text('"""Version."""\n\n__version__ = "1.2.3"\n')
        test = ", ".join(
            f'{{include-group = "{item["include-group"]}"}}'
            if isinstance(item, dict)
            else json.dumps(item)
            for item in group
        )
        drivers = '[project.entry-points."hypercube.drivers"]\nmade-up = "store:from_url"\n'
        (folder / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["hatchling>=1"]\n'
            f'[project]\nname = "{name}"\ndependencies = {json.dumps(dependencies)}\n'
            "[project.optional-dependencies]\n"
            + "".join(f"{extra} = {json.dumps(items)}\n" for extra, items in extras.items())
            + (drivers if name.endswith("store") else "")
            + f'[dependency-groups]\ntest = [{test}]\nshared = ["suite"]\n'
            + f'[tool.hatch.version]\npath = "src/{source.name}/__about__.py"\n'
        )
    return tmp_path


def test_every_member_is_found_dependencies_first(root: Path) -> None:
    """Members come from the patterns of the root, and none before what it needs."""
    names = list(workspace.load(root))

    assert sorted(names) == sorted(_MADE_UP)
    assert names[0] == "core"
    assert names.index("store") < names.index("work")


def test_a_package_knows_what_its_pyproject_says(root: Path) -> None:
    """Version, extras, groups with the included ones, and whether it is a driver."""
    packages = workspace.load(root)

    assert packages["store"].version == "1.2.3"
    assert packages["store"].groups["test"] == ("suite",)
    assert packages["store"].build_requires == ("hatchling>=1",)
    assert packages["work"].extras == {"testing": ("store>=1.0,<2",)}
    assert packages["work"].runtime_names() == {"core", "store"}
    assert packages["suite"].runtime_names() == {"core", "py-test"}
    assert {name for name, package in packages.items() if package.is_driver} == {
        "store",
        "other-store",
    }
    assert packages["other-store"].wheel_name == "other_store-1.2.3-py3-none-any.whl"
    assert packages["other-store"].source == Path("packages/other-store/src/other_store")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("packages/core/src/core/_x.py", ["core", "other-store", "store", "suite", "work"]),
        # An extra is a dependency; the test groups of core and work use what changed.
        ("packages/store/src/store/_x.py", ["core", "store", "work"]),
        # Used by the test groups of the stores, and core's tests use a store: one step only.
        ("suite/src/suite/_x.py", ["other-store", "store", "suite"]),
        ("packages/other-store/README.md", ["other-store", "work"]),
        ("packages/work/tests/test_x.py", ["work"]),
        ("README.md", []),
        # Not a file of the package whose name it begins with.
        ("packages/store-of-old/x.py", []),
        ("pyproject.toml", ["core", "other-store", "store", "suite", "work"]),
        ("tools/backends/__init__.py", ["core", "other-store", "store", "suite", "work"]),
    ],
)
def test_a_change_affects_its_package_and_all_whose_tests_it_can_break(
    root: Path, file: str, expected: list[str]
) -> None:
    """Transitive over dependencies, one step over test groups, everything for shared files."""
    assert sorted(workspace.affected(workspace.load(root), [file])) == expected


def test_what_is_affected_comes_in_the_order_of_dependencies(root: Path) -> None:
    """So that a matrix builds what others need first."""
    packages = workspace.load(root)

    assert workspace.affected(packages, ["packages/core/x"]) == list(packages)


def test_changed_files_are_those_since_the_branch_left_its_base(root: Path) -> None:
    """What others did to the base meanwhile does not count; both names of a move do."""

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(
            ["git", *identity, *arguments],
            cwd=root,
            check=True,
            capture_output=True,
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
        )

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "start")
    git("checkout", "-qb", "topic")
    git("mv", "packages/store/pyproject.toml", "packages/store/moved ü.toml")
    git("commit", "-qam", "move")
    (root / "suite/pyproject.toml").write_text("not committed yet")
    git("stash", "-q")
    git("checkout", "-q", "main")
    (root / "pyproject.toml").write_text("changed on main")
    git("commit", "-qam", "meanwhile")
    git("checkout", "-q", "topic")
    git("stash", "pop", "-q")

    assert sorted(workspace.changed_files("main", root)) == [
        "packages/store/moved ü.toml",
        "packages/store/pyproject.toml",
        "suite/pyproject.toml",
    ]


def test_a_fingerprint_changes_with_content_and_names_only(root: Path) -> None:
    """Wheels are built again exactly when something they are built from is different."""
    packages = workspace.load(root)
    before = workspace.fingerprint(packages.values(), root)
    cache = root / "packages/core/src/core/__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"x")
    assert workspace.fingerprint(packages.values(), root) == before

    source = root / "packages/core/src/core/__about__.py"
    text = source.read_text()
    source.write_text(text + "\n")
    assert workspace.fingerprint(packages.values(), root) != before
    source.write_text(text)
    assert workspace.fingerprint(packages.values(), root) == before

    source.rename(source.with_name("_moved.py"))
    assert workspace.fingerprint(packages.values(), root) != before


def test_a_requirement_without_a_name_is_refused() -> None:
    """The text names the requirement."""
    with pytest.raises(ValueError, match="'>=1'"):
        workspace.requirement_name(">=1")


def test_the_command_prints_a_matrix() -> None:
    """One JSON object, every distribution of this workspace in it."""
    done = subprocess.run(
        [sys.executable, "tools/workspace.py", "list"],
        cwd=workspace.ROOT,
        check=True,
        capture_output=True,
        text=True,
    )

    assert json.loads(done.stdout) == {"package": list(workspace.load())}
