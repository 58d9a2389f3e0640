"""What long-running commands log, and where."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Annotated

import typer

from hypercube_jobs._text import lines_of

_LINE = "%(asctime)s %(levelname)s %(message)s"
_LINE_OF_PROCESS = "%(asctime)s %(levelname)s [%(process)d] %(message)s"

#: Client libraries whose lines repeat what drivers report, or tell of each connection, with the
#: level from which theirs are shown. pika logs each failed connection as a dozen errors.
_CLIENT_LIBRARIES = {
    "pika": logging.CRITICAL,
    "boto3": logging.WARNING,
    "botocore": logging.WARNING,
}


class _Formatter(logging.Formatter):
    """Begins a line for each record only, whatever texts of others are in it."""

    def format(self, record: logging.LogRecord) -> str:
        first, *others = lines_of(super().format(record))
        below = (line if line.startswith(" ") else f"    {line}" for line in others)
        return "\n".join((first, *below))


class LogLevel(StrEnum):
    """How much is told."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="What to log.")]


def set_log_level(level: LogLevel) -> None:
    """Set the level before the application is imported, which may then set up its logging.

    With a handler here already, `logging.basicConfig` would do nothing there.
    """
    logging.getLogger().setLevel(level.upper())


def log_to_stderr(level: LogLevel, *, processes: bool = False) -> None:
    """Log to standard error, unless the application set up its logging when it was imported.

    What the drivers' client libraries log is shown at the debug level only. With `processes`
    each line names its process.
    """
    root = logging.getLogger()
    if root.hasHandlers():
        return
    logging.basicConfig(level=level.upper())
    formatter = _Formatter(_LINE_OF_PROCESS if processes else _LINE)
    for handler in root.handlers:
        handler.setFormatter(formatter)
    if level is not LogLevel.debug:
        for handler in root.handlers:
            handler.addFilter(_is_worth_showing)


def _is_worth_showing(record: logging.LogRecord) -> bool:
    library, _, _ = record.name.partition(".")
    return record.levelno >= _CLIENT_LIBRARIES.get(library, logging.NOTSET)
