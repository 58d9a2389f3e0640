"""Arrows point one way: what a distribution imports, its pyproject names."""

from __future__ import annotations

from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import workspace
from imports import imported_drivers, undeclared_imports

PACKAGES = workspace.load()
EACH = pytest.mark.parametrize("package", PACKAGES.values(), ids=list(PACKAGES))


@EACH
def test_a_distribution_imports_only_what_its_pyproject_names(package: workspace.Package) -> None:
    """Or it would break where nothing else happens to bring the other along."""
    assert undeclared_imports(package, PACKAGES, packages_distributions()) == []


@EACH
def test_no_distribution_imports_a_driver(package: workspace.Package) -> None:
    """Drivers are found by URL, so any of them can be left out or replaced."""
    assert imported_drivers(package, PACKAGES) == []


@pytest.fixture
def driver(tmp_path: Path) -> workspace.Package:
    """A driver under `tmp_path` that depends on the contract and on SQLAlchemy."""
    package = workspace.Package(
        name="made-up",
        folder=Path("made-up"),
        version="1.0.0",
        dependencies=("core>=1.0,<2", "SQLAlchemy>=2"),
        extras={"mysql": ("pymysql",)},
        groups={},
        build_requires=(),
        is_driver=True,
    )
    (tmp_path / package.source).mkdir(parents=True)
    return package


def _packages(driver: workspace.Package) -> dict[str, workspace.Package]:
    others = {
        name: workspace.Package(name, Path(name), "1.0.0", (), {}, {}, (), is_driver)
        for name, is_driver in (("core", False), ("other-driver", True))
    }
    return {**others, driver.name: driver}


@pytest.mark.parametrize(
    "statement",
    [
        "import json, os.path",
        "import core.driver",
        "from sqlalchemy.engine import Engine",
        "from made_up._x import y",
        "from . import _x",
        "if TYPE_CHECKING:\n    from _typeshed import StrPath",
    ],
)
def test_a_named_import_is_no_finding(
    driver: workspace.Package, tmp_path: Path, statement: str
) -> None:
    """The standard library, dependencies by whatever import name, and the package itself."""
    (tmp_path / driver.source / "_x.py").write_text(statement)
    providers = {"sqlalchemy": ["SQLAlchemy"]}

    assert undeclared_imports(driver, _packages(driver), providers, tmp_path) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import other_driver", "imports other_driver of other-driver, which is not among"),
        ("def f():\n    from yaml import load", "imports yaml of pyyaml, which is not among"),
        ("import nowhere", "imports nowhere, which no installed distribution provides"),
        ("if TYPE_CHECKING:\n    import yaml", "imports yaml of pyyaml, which is not among"),
    ],
)
def test_an_unnamed_import_is_found_wherever_it_stands(
    driver: workspace.Package, tmp_path: Path, statement: str, expected: str
) -> None:
    """Another distribution of ours, a stranger's, one unknown."""
    (tmp_path / driver.source / "_x.py").write_text(statement)
    providers = {"yaml": ["PyYAML"]}

    (finding,) = undeclared_imports(driver, _packages(driver), providers, tmp_path)

    assert finding.startswith("made-up/src/made_up/_x.py:")
    assert expected in finding


def test_what_an_extra_brings_is_imported_only_where_the_package_itself_does_not(
    driver: workspace.Package, tmp_path: Path
) -> None:
    """A module that is loaded by name may need it; one on the way of every import may not."""
    source = tmp_path / driver.source
    (source / "__init__.py").write_text("from made_up._door import door")
    (source / "_door.py").write_text("door = 'made_up._x'")
    (source / "_x.py").write_text("import pymysql")
    providers = {"pymysql": ["PyMySQL"]}
    packages = _packages(driver)
    assert undeclared_imports(driver, packages, providers, tmp_path) == []

    (source / "_door.py").write_text("import made_up._x")
    (finding,) = undeclared_imports(driver, packages, providers, tmp_path)

    assert finding.startswith("made-up/src/made_up/_x.py:1 imports pymysql of pymysql, which only")


def test_a_driver_that_imports_a_driver_is_found(driver: workspace.Package, tmp_path: Path) -> None:
    """Declared or not; itself it may import."""
    (tmp_path / driver.source / "_x.py").write_text("import made_up\nfrom other_driver import q")

    assert imported_drivers(driver, _packages(driver), tmp_path) == [
        "made-up/src/made_up/_x.py:2 imports the driver other_driver"
    ]
