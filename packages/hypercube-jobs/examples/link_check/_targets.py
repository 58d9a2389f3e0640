"""Whether a link leads somewhere on this disk."""

from __future__ import annotations

import difflib
import os
import re
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from link_check._markdown import Document

_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:", re.IGNORECASE)
#: The line numbers that Git hosting sites offer in the plain view of a file.
_LINES = re.compile(r"L\d+(C\d+)?(-L\d+(C\d+)?)?")
#: What every browser understands without an anchor.
_TOP = frozenset({"", "top"})
_README = "README.md"


def is_web_address(target: str) -> bool:
    """Whether only a request over the network can tell whether `target` is there."""
    return target.lower().startswith(("http://", "https://", "//"))


def is_local(target: str) -> bool:
    """Whether `target` is a place on this disk: no other scheme, no web address."""
    return not is_web_address(target) and not _SCHEME.match(target)


def is_markdown(path: str | Path) -> bool:
    """Whether the name says Markdown."""
    return str(path).lower().endswith(".md")


def read_document(path: Path) -> Document:
    """The Markdown file at `path`. Raises OSError when it is no file that can be read."""
    facts = path.stat()
    if not path.is_file():
        # Reading a pipe would wait for a writer that may never come.
        raise OSError(0, "it is not a regular file")
    return _read(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=256)
def _read(path: Path, _modified: int, _size: int) -> Document:
    return Document(path.read_text(encoding="utf-8-sig", errors="replace"))


def why_broken(target: str, file: Path, root: Path) -> str | None:
    """Why the local `target` of a link in `file` leads nowhere, or None if it is in order.

    A target that begins with a slash is looked up in `root`.
    """
    if not target:
        return "the link has no target"
    place, _, fragment = target.partition("#")
    place = unquote(place.partition("?")[0])
    fragment = unquote(fragment)
    if "\0" in place:
        return "a file name has no NUL character"
    if not place:
        destination = file
    elif place.startswith("/"):
        destination = Path(f"{root}{place}")
    else:
        destination = Path(f"{file.parent}/{place}")
    # As text, since a Path forgets the slash that a file must not have at its end.
    if not os.path.exists(f"{destination}/" if place.endswith("/") else destination):  # noqa: PTH110
        where = f" in {root}" if place.startswith("/") else ""
        return f"no such file{where}{_similar_file(destination)}"
    return _why_no_anchor(destination, fragment)


def _why_no_anchor(destination: Path, fragment: str) -> str | None:
    if destination.is_dir():
        destination /= _README
    if fragment.lower() in _TOP or fragment.startswith(":~:") or not is_markdown(destination):
        return None
    if not destination.is_file() or _LINES.fullmatch(fragment):
        return None
    try:
        document = read_document(destination)
    except OSError as error:
        return f"{destination.name} cannot be read: {error.strerror}"
    if document.has_anchor(fragment):
        return None
    hint = _similar(fragment, document.anchors, "#")
    return f"no such heading in {destination.name}{hint}"


def _similar_file(missing: Path) -> str:
    try:
        names = sorted(entry.name for entry in missing.parent.iterdir())
    except OSError:
        return ""
    return _similar(missing.name, names, "")


def _similar(name: str, names: list[str], mark: str) -> str:
    # What cannot be printed cannot have been meant.
    by_folded = {other.casefold(): other for other in names if other.isprintable()}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.8)
    return f" (is it {mark}{by_folded[near[0]]}?)" if near else ""
