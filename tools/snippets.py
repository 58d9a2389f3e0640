"""The fenced code blocks of a Markdown file, and how to run its Python ones."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<info>.*)$")
_CLOSING = r"^ *{fence}+ *$"
#: A block under this comment is a file that later blocks and commands find, and is run too.
_FILE = re.compile(r"<!-- file: (?P<name>[\w.-]+) -->")
#: A block under this comment uses a library that is not installed, and is not run.
_FOREIGN = "<!-- foreign -->"
#: A block under this comment is a part of a file of the repository, and is tested there.
_PART = re.compile(r"<!-- part of (?P<name>\S+) -->")

#: No snippet of ours is meant to wait for anything.
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    body: str
    #: The line of the file on which the body starts, from 1.
    line: int
    #: The name under which the block is to be stored, if the line above gives one.
    file_name: str | None
    #: Whether it is the code of somebody else's library.
    foreign: bool
    #: The file that it is a part of, as the line above calls it.
    part_of: str | None


class SnippetFailed(Exception):
    """A Python block of a Markdown file does not run."""


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, those within lists too."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        at += 1
        if opening is None:
            continue
        closing = re.compile(_CLOSING.format(fence=re.escape(opening["fence"])))
        start = at
        while at < len(lines) and not closing.match(lines[at]):
            at += 1
        above = lines[start - 2] if start >= 2 else ""
        named, part = _FILE.search(above), _PART.search(above)
        yield Block(
            language=opening["info"].strip().partition(" ")[0],
            body=textwrap.dedent("\n".join(lines[start:at]) + "\n"),
            line=start + 1,
            file_name=named["name"] if named else None,
            foreign=above.strip() == _FOREIGN,
            part_of=part["name"] if part else None,
        )
        at += 1


def run(markdown: Path, folder: Path, addresses: Mapping[str, str] | None = None) -> None:
    """Run the Python blocks in their order, as one script of a new interpreter in `folder`.

    `addresses` are what documents call a server of the reader's, and what to put there. Warnings
    are errors. An error names the line of the Markdown file. A foreign block is only compiled,
    and a part of a file is left to the tests of that file. Raises SnippetFailed with the output.
    """
    program = []
    for block in blocks(markdown.read_text()):
        if block.language != "python" or block.part_of is not None:
            continue
        if block.file_name is not None:
            (folder / block.file_name).write_text(block.body)
        # The empty lines in front make a traceback count as the file does.
        body = "\n" * (block.line - 1) + block.body
        for written, meant in (addresses or {}).items():
            body = body.replace(written, meant)
        compiled = f"compile({body!r}, {str(markdown)!r}, 'exec')"
        program.append(compiled if block.foreign else f"exec({compiled})")
    script = folder / "_snippets.py"
    script.write_text("\n".join(program) + "\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if done.returncode:
        output = done.stdout + done.stderr
        raise SnippetFailed(f"{markdown} fails with {done.returncode}:\n{output}")
