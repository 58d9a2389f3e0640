"""The guide for driver authors and the driver that it leads to are one."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

import workspace
from hypercube_queue import CAPABILITIES, Guarantees
from snippets import blocks

GUIDE = workspace.ROOT / "docs/driver-guide.md"
EXAMPLE = workspace.ROOT / "examples/hypercube-queue-files"
TEXT = GUIDE.read_text()
#: What the guide has the reader write with a shell, or not at all.
_NOT_SHOWN = {"README.md", "src/hypercube_queue_files/py.typed"}


#: The name of a file and a part of it, in the order of the guide.
_PARTS: list[tuple[str, str]] = re.findall(
    r"^<!-- part of (\S+) -->\n```\w+\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
)


def _files() -> list[str]:
    made = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "dist"}
    return sorted(
        str(file.relative_to(EXAMPLE))
        for file in EXAMPLE.rglob("*")
        if file.is_file() and not made.intersection(file.parts)
    )


def _code(text: str) -> list[str]:
    """Where one part ends and the next begins, empty lines do not count."""
    return [line for line in text.splitlines() if line]


def test_the_guide_shows_every_file_of_the_example() -> None:
    """So a reader needs nothing but the guide."""
    shown = {name for name, _ in _PARTS}

    assert set(_files()) - _NOT_SHOWN == shown


@pytest.mark.parametrize("name", [name for name in _files() if name not in _NOT_SHOWN])
def test_the_parts_of_a_file_are_the_whole_of_it(name: str) -> None:
    """Block after block, to the letter."""
    shown = "".join(body for part_of, body in _PARTS if part_of == name)

    assert _code(shown) == _code((EXAMPLE / name).read_text())


def test_no_python_of_the_guide_belongs_to_no_file() -> None:
    """Whatever stands there is built and certified."""
    parts = [body for name, body in _PARTS if name.endswith(".py")]

    assert re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL) == parts


def test_no_other_document_shows_parts_of_files() -> None:
    """They are not run as other blocks are, and here alone they are compared."""
    documents = [*workspace.ROOT.glob("*.md"), *workspace.ROOT.glob("docs/*.md")]
    for package in workspace.load().values():
        documents += (workspace.ROOT / package.folder).rglob("*.md")
    showing = [
        document.name
        for document in documents
        if any(block.part_of for block in blocks(document.read_text()))
    ]

    assert showing == [GUIDE.name]


def test_the_guide_says_of_each_guarantee_what_it_costs() -> None:
    """In the order of the contract, one row each."""
    section = TEXT.partition("\n## 9.")[2].partition("\n## 10.")[0]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)

    assert rows == [field.name for field in fields(Guarantees)]


def test_the_declaration_of_the_example_is_what_the_guide_counts() -> None:
    """Three capabilities of six."""
    [harness] = [body for name, body in _PARTS if name.endswith("files_harness.py")]
    [declared] = re.findall(r"capabilities = frozenset\(\{(.*)\}\)", harness)

    assert (len(declared.split(",")), len(CAPABILITIES)) == (3, 6)
    assert "Of six, files have three" in TEXT


def test_the_links_of_guide_and_example_lead_somewhere() -> None:
    """To files, and to headings of the guide itself."""
    headings = {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    }
    for document in (GUIDE, EXAMPLE / "README.md"):
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        targets = re.findall(r"\]\(([^)\s]+)\)", text)
        assert targets != []
        for target in targets:
            if target.startswith("#"):
                assert target[1:] in headings, target
            else:
                assert (document.parent / target).exists(), target
