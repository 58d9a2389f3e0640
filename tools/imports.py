"""Which distributions a package imports, read from its source without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from workspace import ROOT, Package, requirement_name

#: Import names to the distributions that provide them, as importlib.metadata gives them.
Providers = Mapping[str, Sequence[str]]


def undeclared_imports(
    package: Package, packages: Mapping[str, Package], providers: Providers, root: Path = ROOT
) -> list[str]:
    """One line for each import of a distribution that the package does not depend on.

    An extra does not count: what it brings may be missing, so nothing may import it.
    """
    declared = {requirement_name(item) for item in package.dependencies}
    problems = []
    for name, place in _imported(root / package.source, root):
        wanted = _distributions(name, packages, providers)
        if not wanted:
            problems.append(f"{place} imports {name}, which no installed distribution provides")
        elif package.name not in wanted and not wanted & declared:
            problems.append(
                f"{place} imports {name} of {' or '.join(sorted(wanted))}, which is not among the "
                f"dependencies of {package.name}"
            )
    return problems


def imported_drivers(
    package: Package, packages: Mapping[str, Package], root: Path = ROOT
) -> list[str]:
    """One line for each import of a driver other than the package itself."""
    drivers = {
        other.import_name
        for other in packages.values()
        if other.is_driver and other.name != package.name
    }
    return [
        f"{place} imports the driver {name}"
        for name, place in _imported(root / package.source, root)
        if name in drivers
    ]


def _distributions(
    name: str, packages: Mapping[str, Package], providers: Providers
) -> frozenset[str]:
    for package in packages.values():
        if package.import_name == name:
            return frozenset({package.name})
    return frozenset(requirement_name(item) for item in providers.get(name, ()))


def _imported(source: Path, root: Path) -> Iterator[tuple[str, str]]:
    """The top-level name of each import that leaves the standard library, and where it is."""
    for file in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(), file)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                modules = [node.module]
            else:
                continue
            for module in modules:
                name = module.partition(".")[0]
                if name not in sys.stdlib_module_names:
                    yield name, f"{file.relative_to(root)}:{node.lineno}"
