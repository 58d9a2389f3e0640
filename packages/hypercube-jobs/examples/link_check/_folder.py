"""The Markdown files below a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from link_check._targets import is_markdown

#: What tools put there and nobody wrote. Checked all the same when it is the folder itself.
_SKIPPED = frozenset({".git", ".nox", ".venv", "node_modules"})


def markdown_files(folder: Path, on_error: Callable[[OSError], None]) -> list[str]:
    """The paths of all Markdown files below `folder`, relative to it, sorted, as text.

    Links to folders are not followed, so no loop can catch it. A folder that cannot be
    listed is reported to `on_error` and left out.
    """
    found: list[str] = []
    for where, folders, names in os.walk(folder, onerror=on_error):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        within = os.path.relpath(where, folder)
        found += [as_text(os.path.normpath(f"{within}/{n}")) for n in names if is_markdown(n)]
    return sorted(found)


def as_text(path: str) -> str:
    """A path that JSON and a database can carry, whatever bytes it is made of.

    Only a percent sign and bytes that are no UTF-8 change, to percent-escapes.
    """
    return "".join(
        f"%{ord(character) - 0xDC00:02X}" if "\udc80" <= character <= "\udcff" else character
        for character in path.replace("%", "%25")
    )


def as_path(text: str) -> str:
    """The path that `as_text` made a text of."""
    return unquote(text, errors="surrogateescape")


def repository_root(folder: Path) -> Path:
    """Where links that begin with a slash start: the Git repository around, else `folder`."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return folder
