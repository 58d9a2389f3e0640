"""What long-running commands log, and where."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Annotated

import typer

_LINE = "%(asctime)s %(levelname)s %(message)s"
_LINE_OF_PROCESS = "%(asctime)s %(levelname)s [%(process)d] %(message)s"


class LogLevel(StrEnum):
    """How much is told."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="What to log.")]


def log_to_stderr(level: LogLevel, *, processes: bool = False) -> None:
    """Unless the application has set up its logging at import, and keeps it."""
    line = _LINE_OF_PROCESS if processes else _LINE
    logging.basicConfig(level=level.upper(), format=line)
