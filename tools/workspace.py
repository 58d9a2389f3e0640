"""What the workspace consists of, read from its pyprojects.

    python tools/workspace.py list
    python tools/workspace.py changed --base origin/main

`list` prints every distribution, dependencies first; `changed` prints those that a change
since BASE can break. Both print a JSON object {"package": [...]}, which a CI matrix takes as it
is. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import ast
import graphlib
import hashlib
import json
import re
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

#: A change here can break any distribution: it decides how all of them are built and tested.
_SHARED = ("pyproject.toml", "noxfile.py", "tools/", ".ci/", ".github/")

#: Folders of caches, which no build reads.
_IGNORED = frozenset({"__pycache__", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"})

#: The entry points by which a distribution says that it is a driver.
_DRIVERS = "hypercube.drivers"


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution of the workspace."""

    name: str
    #: Relative to the root of the repository.
    folder: Path
    version: str
    #: Requirements as written, by where they are written.
    dependencies: tuple[str, ...]
    extras: Mapping[str, tuple[str, ...]]
    groups: Mapping[str, tuple[str, ...]]
    build_requires: tuple[str, ...]
    is_driver: bool

    @property
    def import_name(self) -> str:
        return self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        """The folder of its modules, relative to the root."""
        return self.folder / "src" / self.import_name

    @property
    def tests(self) -> Path:
        """The folder of its tests, relative to the root."""
        return self.folder / "tests"

    @property
    def wheel_name(self) -> str:
        return f"{self.import_name}-{self.version}-py3-none-any.whl"

    def runtime_names(self) -> set[str]:
        """The distributions that it needs in some installation, extras included."""
        wanted = [*self.dependencies, *(item for items in self.extras.values() for item in items)]
        return {requirement_name(item) for item in wanted}

    def test_names(self) -> set[str]:
        """The distributions that its tests need beside it."""
        return {requirement_name(item) for item in self.groups.get("test", ())}


def requirement_name(requirement: str) -> str:
    """The normalised name of the distribution that a requirement asks for."""
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement.strip())
    if match is None:
        raise ValueError(f"no distribution is named in the requirement {requirement!r}")
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def load(root: Path = ROOT) -> dict[str, Package]:
    """Every distribution of the workspace by name, dependencies first."""
    members = _read(root / "pyproject.toml")["tool"]["hatch"]["envs"]["default"]["workspace"]
    folders = sorted(
        file.parent
        for pattern in members["members"]
        for file in root.glob(f"{pattern}/pyproject.toml")
    )
    packages = {package.name: package for package in (_package(root, at) for at in folders)}
    graph = {
        package.name: sorted(package.runtime_names() & packages.keys())
        for package in packages.values()
    }
    return {name: packages[name] for name in graphlib.TopologicalSorter(graph).static_order()}


def affected(packages: Mapping[str, Package], changed: Iterable[str]) -> list[str]:
    """The distributions whose tests a change of these files can break, dependencies first.

    Those that own a changed file, all that need them at run time, directly or not, and all
    whose tests use one of these: a test group is followed for one step only, because nobody
    installs it along with the distribution.
    """
    files = list(changed)
    if any(file.startswith(_SHARED) for file in files):
        return list(packages)
    reached = {
        package.name
        for package in packages.values()
        if any(Path(file).is_relative_to(package.folder) for file in files)
    }
    for package in packages.values():  # dependencies first, so one pass reaches everybody
        if package.runtime_names() & reached:
            reached.add(package.name)
    testers = {package.name for package in packages.values() if package.test_names() & reached}
    return [name for name in packages if name in reached | testers]


def fingerprint(packages: Iterable[Package], root: Path = ROOT) -> str:
    """A digest of all that the wheels of these distributions are built from."""
    digest = hashlib.sha256()
    for package in packages:
        for file in sorted((root / package.folder).rglob("*")):
            name = file.relative_to(root)
            if file.is_file() and not _IGNORED.intersection(name.parts):
                digest.update(f"{name}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def changed_files(base: str, root: Path = ROOT) -> list[str]:
    """The files that differ from where the present state left `base`, both names of a move."""
    command = ["git", "diff", "--name-only", "--no-renames", "-z", "--merge-base", base]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.split("\0") if name]


def _package(root: Path, folder: Path) -> Package:
    settings = _read(folder / "pyproject.toml")
    project = settings["project"]
    groups = settings.get("dependency-groups", {})
    return Package(
        name=project["name"],
        folder=folder.relative_to(root),
        version=_version(folder / settings["tool"]["hatch"]["version"]["path"]),
        dependencies=tuple(project.get("dependencies", ())),
        extras={
            extra: tuple(items) for extra, items in project.get("optional-dependencies", {}).items()
        },
        groups={group: tuple(_resolved(groups, group)) for group in groups},
        build_requires=tuple(settings["build-system"]["requires"]),
        is_driver=_DRIVERS in project.get("entry-points", {}),
    )


def _resolved(groups: Mapping[str, list[Any]], group: str) -> Iterable[str]:
    """The requirements of a dependency group, those of the groups it includes among them."""
    for item in groups[group]:
        if isinstance(item, str):
            yield item
        else:
            yield from _resolved(groups, item["include-group"])


def _version(about: Path) -> str:
    for statement in ast.parse(about.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__version__":
            return str(ast.literal_eval(statement.value))
    raise ValueError(f"{about} assigns no __version__")


def _read(pyproject: Path) -> dict[str, Any]:
    return tomllib.loads(pyproject.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description="What the workspace consists of.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="every distribution, dependencies first")
    changed = commands.add_parser("changed", help="what a change since BASE can break")
    changed.add_argument("--base", required=True, help="a revision that git knows")
    arguments = parser.parse_args()
    packages = load()
    names = list(packages)
    if arguments.command == "changed":
        names = affected(packages, changed_files(arguments.base))
    print(json.dumps({"package": names}))


if __name__ == "__main__":
    main()
