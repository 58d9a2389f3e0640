"""Statements by name, from the SQL file of a dialect."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (?P<name>\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def load_statements(file_name: str, **tables: str) -> dict[str, str]:
    """The statements of a file beside this module, `{messages}` and the like filled in.

    A statement starts under a line `-- name: claim` and ends where the next one starts.
    `tables` are quoted names.
    """
    text = (files("hypercube_queue_sql") / file_name).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {
        name: _COMMENT.sub("", body).strip().format(**tables)
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
