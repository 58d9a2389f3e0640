"""The API reference: what it has, and how it reads docstrings."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

import workspace
from reference import Reference, as_markup, public_modules

ROOT = workspace.ROOT
PACKAGES = workspace.load()


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(PACKAGES.values(), ROOT)


def test_every_distribution_has_a_page(reference: Reference) -> None:
    """With what its import name exports."""
    assert list(reference.pages()) == list(PACKAGES)
    for name, package in PACKAGES.items():
        exported = set(importlib.import_module(package.import_name).__all__) - {"__version__"}
        assert set(reference.names[name][package.import_name]) == exported


def test_a_name_that_two_modules_export_is_there_once(reference: Reference) -> None:
    """Where it is met first."""
    modules = reference.names["hypercube-jobs"]

    assert "Worker" in modules["hypercube_jobs"]
    assert "Worker" not in modules.get("hypercube_jobs.worker", [])


def test_private_modules_are_left_out(tmp_path: Path) -> None:
    """Files and folders whose names begin with an underscore, and all below these."""
    for file in ("__init__", "_hidden", "__about__", "open/__init__", "open/door", "_shut/in"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / f"{file}.py").touch()

    assert public_modules(tmp_path, "house") == ["house", "house.open", "house.open.door"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hypercube_queue._message.Message", "hypercube_queue.Message"),
        ("hypercube_queue._message.Message.delay", "hypercube_queue.Message.delay"),
        ("Message", "hypercube_queue.Message"),
        ("Message.delay", "hypercube_queue.Message.delay"),
        ("hypercube_queue._message.Nothing", None),
        ("Nothing", None),
    ],
)
def test_a_name_leads_to_where_it_is_public(
    reference: Reference, name: str, expected: str | None
) -> None:
    """From the module that defines it, and by itself where it means one thing only."""
    assert reference.public_path(name) == expected


def test_only_pages_are_left_in_the_folder(reference: Reference, tmp_path: Path) -> None:
    """What was renamed is gone, and what did not change is not written again."""
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "former.md").touch()
    reference.write(folder)
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    reference.write(folder)

    assert {file.stem for file in before} == set(PACKAGES)
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_an_indented_block_of_a_docstring_is_code() -> None:
    """Until a line that is not indented."""
    lines = ["Does it.", "", "    a = 1", "", "    b = 2", "", "Then `*args` and *more*."]

    assert as_markup(lines) == [
        *["Does it.", "", "", "::", "", "    a = 1", "", "    b = 2", ""],
        "Then `*args` and \\*more\\*.",
    ]


def test_a_block_that_ends_without_an_empty_line_gets_one() -> None:
    """Else Sphinx would complain."""
    assert as_markup(["    a = 1", "Text."]) == ["", "::", "", "    a = 1", "", "Text."]


def test_a_module_that_has_only_constants_of_its_own_lists_no_members(tmp_path: Path) -> None:
    """Its other names stand where they were met first."""
    source = tmp_path / "packages/house/src/house"
    (source / "door").mkdir(parents=True)
    (source / "__init__.py").write_text("from house.door import Door\n\n__all__ = ['Door']\n")
    (source / "door/__init__.py").write_text(
        "class Door: ...\n\nWIDTH = 1\n\n__all__ = ['WIDTH', 'Door']\n"
    )
    package = replace(next(iter(PACKAGES.values())), name="house", folder=Path("packages/house"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(source.parent))
        page = Reference([package], tmp_path).pages()["house"]

    assert "   :members: Door\n" in page
    assert page.count(":members:") == 1
    assert ".. autodata:: house.door.WIDTH\n" in page
