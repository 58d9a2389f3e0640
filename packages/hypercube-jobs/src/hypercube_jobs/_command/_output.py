"""How commands show what they found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hypercube_jobs._failure import cleaned

#: So that a line stays a line where no terminal limits it.
_WIDE = 10_000


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str | int]]) -> None:
    """A table on a terminal; elsewhere one line for each row, for grep and the like."""
    console = Console()
    if console.is_terminal:
        table = Table()
    else:
        console = Console(width=_WIDE)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = list(rows)
    for number, column in enumerate(columns):
        numeric = all(isinstance(row[number], int) for row in rows)
        table.add_column(column, overflow="fold", justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(printable(str(value))) for value in row))
    with console.capture() as capture:
        console.print(table)
    # Beside a terminal nobody wants the padding of the last column.
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def show_json(value: object) -> None:
    """The value as JSON."""
    typer.echo(json.dumps(value, indent=2))


def show_moment(moment: datetime) -> str:
    """To the second, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def printable(text: str) -> str:
    """A text from a message, without what a terminal would act on."""
    return cleaned(text)


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
