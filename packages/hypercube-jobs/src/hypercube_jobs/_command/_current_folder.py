"""The current folder as a place that applications are imported from."""

from __future__ import annotations

import sys
from pathlib import Path


def look_in_current_folder() -> None:
    """Let modules be found there, after all others; not where Python's safe path forbids it.

    Last, so that a file that lies there by chance replaces no module of Python or of a
    distribution.
    """
    if not sys.flags.safe_path:
        append_current_folder()


def append_current_folder() -> None:
    """The same in a process whose parent has looked at the safe path."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
