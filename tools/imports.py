"""Which distributions a package imports, read from its source without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from workspace import ROOT, Package, requirement_name

#: What type checkers bring; nothing has it at run time.
_OF_CHECKERS = "_typeshed"

#: Import names to the distributions that provide them, as importlib.metadata gives them.
Providers = Mapping[str, Sequence[str]]


def undeclared_imports(
    package: Package, packages: Mapping[str, Package], providers: Providers, root: Path = ROOT
) -> list[str]:
    """One line for each import of a distribution that the package does not depend on.

    What an extra brings may be missing, so only modules may import it that the package does not
    import itself: it loads them by name when they are needed.
    """
    source = root / package.source
    declared = {requirement_name(item) for item in package.dependencies}
    optional = {requirement_name(item) for items in package.extras.values() for item in items}
    needed = _needed_modules(source, package.import_name)
    problems = []
    for name, file, line in _imported(source):
        place = f"{file.relative_to(root)}:{line}"
        wanted = _distributions(name, packages, providers)
        if not wanted:
            problems.append(f"{place} imports {name}, which no installed distribution provides")
        elif package.name in wanted or wanted & declared:
            continue
        elif not wanted & optional:
            problems.append(
                f"{place} imports {name} of {' or '.join(sorted(wanted))}, which is not among the "
                f"dependencies of {package.name}"
            )
        elif file in needed:
            problems.append(
                f"{place} imports {name} of {' or '.join(sorted(wanted))}, which only an extra of "
                f"{package.name} brings, and {package.import_name} imports this module"
            )
    return problems


def imported_drivers(
    package: Package, packages: Mapping[str, Package], root: Path = ROOT
) -> list[str]:
    """One line for each import of a driver other than the package itself.

    A driver that an extra of the package brings is none of these: tools for tests are built on it.
    """
    optional = {requirement_name(item) for items in package.extras.values() for item in items}
    drivers = {
        other.import_name
        for other in packages.values()
        if other.is_driver and other.name not in {package.name, *optional}
    }
    return [
        f"{file.relative_to(root)}:{line} imports the driver {name}"
        for name, file, line in _imported(root / package.source)
        if name in drivers
    ]


def _distributions(
    name: str, packages: Mapping[str, Package], providers: Providers
) -> frozenset[str]:
    for package in packages.values():
        if package.import_name == name:
            return frozenset({package.name})
    return frozenset(requirement_name(item) for item in providers.get(name, ()))


def _imported(source: Path) -> Iterator[tuple[str, Path, int]]:
    """The top-level name of each import that leaves the standard library, and where it is."""
    for file in sorted(source.rglob("*.py")):
        for module, line in _imports(file):
            name = module.partition(".")[0]
            if name not in sys.stdlib_module_names and name != _OF_CHECKERS:
                yield name, file, line


def _needed_modules(source: Path, import_name: str) -> set[Path]:
    """The files that an import of the package runs, as far as they import each other by name."""
    found: set[Path] = set()
    waiting = [source / "__init__.py"]
    while waiting:
        file = waiting.pop()
        if file in found or not file.exists():
            continue
        found.add(file)
        for module, _ in _imports(file):
            package, _, inner = module.partition(".")
            if package == import_name:
                path = source.joinpath(*inner.split(".")) if inner else source
                waiting += [path.with_suffix(".py"), path / "__init__.py"]
    return found


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """The module of each import in a file, and its line."""
    for node in ast.walk(ast.parse(file.read_text(), file)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module, node.lineno
