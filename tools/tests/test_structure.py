"""What every distribution of the workspace has, and how its files are laid out."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
from collections.abc import Iterator
from importlib.metadata import files, version
from pathlib import Path
from types import ModuleType

import pytest

import hypercube_queue
import workspace

ROOT = workspace.ROOT
PACKAGES = workspace.load()
EACH = pytest.mark.parametrize("package", PACKAGES.values(), ids=list(PACKAGES))

#: Named on purpose, so that each is a decision. Keep it empty.
_MAY_BE_LONG: frozenset[str] = frozenset()
_MOST_LINES = 500


def _sources(package: workspace.Package) -> list[Path]:
    return sorted((ROOT / package.source).rglob("*.py"))


def _public_modules(package: workspace.Package) -> Iterator[ModuleType]:
    """The doors of a package: it, and each of its subpackages whose name has no underscore."""
    for door in sorted((ROOT / package.source).rglob("__init__.py")):
        parts = door.parent.relative_to(ROOT / package.source).parts
        if not any(part.startswith("_") for part in parts):
            yield importlib.import_module(".".join((package.import_name, *parts)))


@EACH
def test_a_distribution_has_what_its_readers_and_tools_look_for(
    package: workspace.Package,
) -> None:
    """A README, a changelog, a licence, a version, tests, and the mark that it is typed."""
    wanted = [
        *(package.folder / name for name in ("README.md", "CHANGELOG.md", "LICENSE")),
        *(package.source / name for name in ("__about__.py", "__init__.py", "py.typed")),
        package.tests,
    ]

    assert [str(path) for path in wanted if not (ROOT / path).exists()] == []


@EACH
def test_the_licence_is_the_one_of_the_repository(package: workspace.Package) -> None:
    """Each distribution is shipped with a copy."""
    assert (ROOT / package.folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@EACH
def test_the_changelog_has_an_entry_for_the_present_version(package: workspace.Package) -> None:
    """A release that says nothing cannot be judged by those who upgrade."""
    changelog = (ROOT / package.folder / "CHANGELOG.md").read_text()

    assert re.search(rf"^## {re.escape(package.version)}\b", changelog, re.MULTILINE)


@EACH
def test_the_installed_version_is_the_one_of_the_source(package: workspace.Package) -> None:
    """The build takes it from __about__, and the package shows it."""
    assert version(package.name) == package.version
    assert importlib.import_module(package.import_name).__version__ == package.version


@EACH
def test_a_wheel_ships_the_package_and_nothing_beside_it(package: workspace.Package) -> None:
    """A second top-level name would collide with somebody's."""
    shipped = {file.parts[0] for file in files(package.name) or () if file.suffix != ".exe"}
    scripts_outside = {".."}  # console scripts lie in the environment's bin

    assert {name for name in shipped if not name.endswith(".dist-info")} - scripts_outside == {
        package.import_name
    }
    assert any(file.name == "py.typed" for file in files(package.name) or ())


@EACH
def test_distributions_of_one_major_resolve_together(package: workspace.Package) -> None:
    """In-repo requirements are `>=1.N,<2`, with a 1.N that exists."""
    requirements = [*package.dependencies, *(i for items in package.extras.values() for i in items)]
    for requirement in requirements:
        wanted = PACKAGES.get(workspace.requirement_name(requirement))
        if wanted is None:
            continue
        major, minor = map(int, wanted.version.split(".")[:2])
        match = re.fullmatch(rf"[\w-]+>={major}\.(\d+),<{major + 1}", requirement)
        assert match, f"{requirement} of {package.name} is not >={major}.N,<{major + 1}"
        assert int(match[1]) <= minor, f"{requirement} of {package.name} asks for a later release"


@EACH
def test_test_groups_name_packages_of_the_workspace_without_a_version(
    package: workspace.Package,
) -> None:
    """Tests always run against the wheels of the same checkout."""
    ours = [
        item
        for item in package.groups.get("test", ())
        if workspace.requirement_name(re.sub(r"\[.*", "", item)) in PACKAGES
    ]

    assert [item for item in ours if re.search(r"[<>=~!]", item)] == []


@EACH
def test_public_errors_are_named_by_where_they_are_imported_from(
    package: workspace.Package,
) -> None:
    """A traceback that names a private module sends its reader to the wrong place."""
    named = {
        f"{module.__name__}.{name}": error.__module__
        for module in _public_modules(package)
        for name in getattr(module, "__all__", ())
        if isinstance(error := getattr(module, name), type) and issubclass(error, BaseException)
    }

    assert [name for name, place in named.items() if "._" in place] == []
    for name, place in named.items():
        error = getattr(importlib.import_module(place), name.rpartition(".")[2])
        assert pickle.loads(pickle.dumps(error)) is error


@EACH
def test_one_idea_has_one_file_of_a_size_that_can_be_read(package: workspace.Package) -> None:
    """At most 500 lines, and no exceptions so far."""
    long = {
        str(file.relative_to(ROOT))
        for file in _sources(package)
        if len(file.read_text().splitlines()) > _MOST_LINES
    }

    assert long - _MAY_BE_LONG == set()


@EACH
def test_annotations_are_not_evaluated_anywhere(package: workspace.Package) -> None:
    """One rule for all modules, so that moving code changes nothing."""
    without = [
        str(file.relative_to(ROOT))
        for file in _sources(package)
        if "from __future__ import annotations" not in file.read_text()
        and any(
            not isinstance(statement, ast.Expr | ast.Assign)
            for statement in ast.parse(file.read_text()).body
        )
    ]

    assert without == []


@EACH
def test_modules_are_private_and_packages_are_doors(package: workspace.Package) -> None:
    """What is public is what an `__init__` lists; everything else can move."""
    public = [
        str(file.relative_to(ROOT))
        for file in _sources(package)
        if not any(part.startswith("_") for part in file.relative_to(ROOT / package.source).parts)
    ]

    assert public == []


@EACH
def test_a_door_exports_exactly_what_it_lists(package: workspace.Package) -> None:
    """`__all__` is what the module imports from within, in sorted order, and all of it exists."""
    for module in _public_modules(package):
        assert module.__file__ is not None
        imported = {
            alias.asname or alias.name
            for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith(package.import_name)
            for alias in node.names
        }
        listed = module.__all__

        assert set(listed) == imported, module.__name__
        assert listed == sorted(listed, key=_constants_then_classes), module.__name__
        assert [name for name in listed if not hasattr(module, name)] == []


@EACH
def test_everything_public_is_documented(package: workspace.Package) -> None:
    """Classes, functions and methods; one that keeps a documented Protocol's promise may be bare.

    (Linters do not see these: the modules that define them are private.)
    """
    protocols = (hypercube_queue.Queue, *hypercube_queue.CAPABILITIES)
    promised = {name for protocol in protocols for name in vars(protocol)}
    bare = []
    for module in _public_modules(package):
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            if not (value.__doc__ or "").strip() or (value.__doc__ or "").startswith(f"{name}("):
                bare.append(f"{module.__name__}.{name}")
            if inspect.isclass(value):
                bare += [
                    f"{module.__name__}.{name}.{member}"
                    for member, method in vars(value).items()
                    if not member.startswith("_")
                    and member not in promised
                    and (inspect.isroutine(method) or isinstance(method, property))
                    and not inspect.getdoc(getattr(value, member))
                ]

    assert bare == []


def test_nothing_in_the_repository_names_a_registry_or_pins_an_environment() -> None:
    """Where packages come from is the business of whoever installs; libraries lock nothing."""
    hosts = ("files.pythonhosted" + ".org", "pypi.org/" + "simple", "index" + "-url")
    found = []
    for file in _own_files():
        if file.suffix == ".lock" or re.fullmatch(
            r"requirements.*\.txt|constraints\.txt", file.name
        ):
            found.append(str(file.relative_to(ROOT)))
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{file.relative_to(ROOT)} names {host}" for host in hosts if host in text]

    assert found == []


def _own_files() -> Iterator[Path]:
    made = {"__pycache__", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
    roots = [
        ROOT / name
        for name in (".ci", ".github", "conformance", "docs", "examples", "packages", "tools")
    ]
    yield from (path for path in ROOT.iterdir() if path.is_file())
    for root in roots:
        for path in root.rglob("*"):
            if path.is_file() and not made.intersection(path.parts):
                yield path


def _constants_then_classes(name: str) -> tuple[int, str]:
    """The linter's order of `__all__`: constants, classes, all the rest."""
    if name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name
