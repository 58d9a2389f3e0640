"""The documents tell the truth: their code runs, their commands exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.backends import server
from typer.core import TyperGroup, TyperOption
from typer.main import get_command

import guarantees
import workspace
from hypercube_jobs._command import app
from snippets import blocks, run

ROOT = workspace.ROOT
PACKAGES = workspace.load()


def _is_made_or_tested(file: Path) -> bool:
    return any(part == "tests" or part.startswith(".") for part in file.parts)


DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        # What is below is made from docstrings.
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/decisions/*.md"),
        *(
            file
            for package in PACKAGES.values()
            for file in (ROOT / package.folder).rglob("*.md")
            if not _is_made_or_tested(file.relative_to(ROOT))
        ),
    ]
)
EACH = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[str(file.relative_to(ROOT)) for file in DOCUMENTS]
)

#: What a block may be called. Another name for Python would dodge the test that runs it.
_LANGUAGES = {
    *("console", "ini", "json", "markdown", "python", "sql", "text", "toml", "yaml"),
    "{toctree}",
}


#: Whose code a block marked as foreign may show.
_FOREIGN = {"celery", "dramatiq", "rq"}

#: What documents call a server of the reader's, by the server that they get. Valkey's client
#: speaks to either.
_ADDRESSES = {
    "redis": {
        "redis://localhost:6379": "redis://{0.host}:{0.port}",
        "valkey://localhost:6379": "valkey://{0.host}:{0.port}",
        'Redis(host="localhost")': 'Redis(host="{0.host}", port={0.port})',
        'NodeAddress("localhost")': 'NodeAddress("{0.host}", {0.port})',
    },
    "rabbitmq": {
        "amqp://guest:guest@localhost/": "{url}",
        'PlainCredentials("guest", "guest")': 'PlainCredentials("{0.username}", "{0.password}")',
        'ConnectionParameters("localhost"': 'ConnectionParameters("{0.host}", {0.port}',
    },
}


def _needed(document: Path) -> list[str]:
    """The servers whose addresses it has in the Python that is run."""
    bodies = [
        block.body
        for block in blocks(document.read_text())
        if block.language == "python" and not block.foreign
    ]
    return [
        name
        for name, addresses in _ADDRESSES.items()
        if any(written in body for body in bodies for written in addresses)
    ]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            file,
            id=str(file.relative_to(ROOT)),
            marks=[pytest.mark.server(name) for name in _needed(file)],
        )
        for file in DOCUMENTS
    ],
)
def test_the_python_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    """Block after block, in an empty folder, with every warning an error."""
    addresses = {}
    for name in _needed(document):
        place = server(name)
        for written, meant in _ADDRESSES[name].items():
            addresses[written] = meant.format(place, url=place.url("amqp"))
    run(document, tmp_path, addresses)


@EACH
def test_every_block_says_what_it_is(document: Path) -> None:
    """So that none is passed over by those who run them."""
    odd = [
        f"line {block.line}: {block.language or 'no language'}"
        for block in blocks(document.read_text())
        if block.language not in _LANGUAGES
    ]

    assert odd == []


@EACH
def test_a_block_that_is_not_run_uses_what_is_not_installed(document: Path) -> None:
    """So that the mark for code of others dodges no test."""
    for block in blocks(document.read_text()):
        if block.foreign:
            imported = {
                name.partition(".")[0]
                for node in ast.walk(ast.parse(block.body))
                if isinstance(node, ast.Import | ast.ImportFrom)
                for name in (
                    [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else [alias.name for alias in node.names]
                )
            }
            assert imported & _FOREIGN, f"line {block.line}"
            assert not any(name.startswith("hypercube") for name in imported), f"line {block.line}"


@EACH
def test_the_sessions_that_a_document_names_exist(document: Path) -> None:
    """Each name after `nox -s`, in blocks and in sentences."""
    sessions = {
        node.name
        for node in ast.parse((ROOT / "noxfile.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    named = {
        name
        for names in re.findall(
            r'nox -s ((?:"?[a-z]\w*(?:\([\w-]+\))?"? ?)+)', document.read_text()
        )
        for name in re.findall(r"([a-z]\w*)(?:\(|\"|\b)", re.sub(r"\([^)]*\)", "", names))
    }

    assert named - sessions == set()


@EACH
def test_the_subcommands_that_a_document_names_exist(document: Path) -> None:
    """Each word after `hypercube` in a block or between backquotes."""
    text = document.read_text()
    lines = [
        line
        for block in blocks(text)
        if block.language == "console"
        for line in block.body.splitlines()
    ] + re.findall(r"`([^`\n]+)`", text)
    named = {
        match[1] for line in lines if (match := re.match(r"(?:\$ )?hypercube ([a-z][\w-]*)", line))
    }

    for name in sorted(named):
        done = subprocess.run(
            [str(Path(sys.executable).with_name("hypercube")), name, "--help"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"hypercube {name}: {done.stdout}{done.stderr}"


def _options(command: Any, *path: str) -> dict[str, set[str]]:
    """The long options of each command below this one that its help shows."""
    if isinstance(command, TyperGroup):
        return {
            name: options
            for child, each in command.commands.items()
            if not each.hidden
            for name, options in _options(each, *path, child).items()
        }
    shown = {
        option
        for parameter in command.params
        if isinstance(parameter, TyperOption) and not parameter.hidden
        for option in [*parameter.opts, *parameter.secondary_opts]
        if option.startswith("--")
    }
    return {" ".join(path): shown}


def test_the_page_of_the_command_has_each_of_its_options_and_no_other() -> None:
    """A new option or subcommand is documented, and a removed one is not."""
    text = (ROOT / "packages/hypercube-jobs/COMMANDS.md").read_text()
    options = _options(get_command(app))
    offered = set().union(*options.values())
    written = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))

    assert [name for name in options if f"`hypercube {name}" not in text] == []
    assert offered - written == set()
    assert written - offered == {"--help", "--install-completion"}


def test_the_suites_readme_has_each_option_of_its_plugin_and_no_other() -> None:
    """As `pytest --help` shows them."""
    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    text = (ROOT / "conformance/README.md").read_text()
    offered = set(re.findall(r"--conformance-[a-z-]+", shown))

    assert offered
    assert set(re.findall(r"--conformance-[a-z-]+", text)) == offered


@EACH
def test_what_a_document_installs_exists(document: Path) -> None:
    """Each distribution of ours after `pip install`, and each extra of it."""
    for line in re.findall(r"pip install ([^`\n&;]+)", document.read_text()):
        for name, extras in re.findall(r"(hypercube-[a-z-]+)(?:\[([\w,-]+)\])?", line):
            assert name in PACKAGES
            assert set(filter(None, extras.split(","))) <= set(PACKAGES[name].extras), line


@EACH
def test_the_files_that_a_document_links_to_exist(document: Path) -> None:
    """Relative links only; nothing is asked of the network."""
    targets = re.findall(
        r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"`[^`\n]*`", "", document.read_text())
    )
    relative = [target for target in targets if not re.match(r"[a-z]+:", target)]

    assert [target for target in relative if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", guarantees.DOCUMENTS, ids=lambda document: document.name)
def test_the_table_of_guarantees_is_what_the_drivers_say(document: Path) -> None:
    """`nox -s guarantees` would change nothing."""
    text = document.read_text()

    assert text == guarantees.with_table(text)


def test_every_driver_has_a_column_in_the_table_of_guarantees() -> None:
    """A new driver cannot be forgotten there."""
    schemes = {url.partition("://")[0] for url in guarantees.CONFIGURATIONS.values()}
    drivers = {
        package.name: set(_schemes(package)) for package in PACKAGES.values() if package.is_driver
    }

    assert [name for name, offered in drivers.items() if not offered & schemes] == []


def test_the_table_shows_each_field_and_each_capability() -> None:
    """In the order of the contract, one row each."""
    rows = [line.split("|")[1].strip() for line in guarantees.table().splitlines()[2:]]

    assert rows[:2] == ["`durable`", "`shared`"]
    assert rows[-1] == "`TransactionalPusher`"
    assert "| `durable` | no | yes | no |" in guarantees.table()


def test_a_text_without_markers_is_refused() -> None:
    """Rather than losing the table."""
    with pytest.raises(ValueError, match="lacks the markers"):
        guarantees.with_table("no markers")


def test_ci_runs_every_part_of_the_tests() -> None:
    """The parts of the workspace stand in a workflow by name; the packages are found."""
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    named = re.search(r"part: \[(.*)\]", workflow)
    parts = re.search(r"^PARTS = \[(.*)\]", (ROOT / "noxfile.py").read_text(), re.MULTILINE)

    assert named is not None
    assert parts is not None
    assert named[1].split(", ") == re.findall(r'"(\w+)"', parts[1])


def test_ci_runs_the_very_command_of_the_readme() -> None:
    """Not a word less, so that green there means green here."""
    commands = {
        line
        for block in blocks((ROOT / "README.md").read_text())
        if block.language == "console"
        for line in block.body.splitlines()
        if "nox -s tests" in line
    }
    script = (ROOT / ".ci/run").read_text().splitlines()

    assert commands == {
        'python3 -m venv .venv && .venv/bin/pip install -q "nox[uv]" '
        "&& .venv/bin/nox -s tests -- --install-servers"
    }
    assert script[-1] in commands
    assert script[1:].count(script[-1]) == 1


def _schemes(package: workspace.Package) -> list[str]:
    from importlib.metadata import distribution

    points = distribution(package.name).entry_points
    return [point.name for point in points.select(group="hypercube.drivers")]
