"""How commands show what they found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hypercube_jobs._text import one_line

#: Enough of a text to recognise it on a terminal.
_LONG = 300
#: So that a row stays a line.
_WIDE = 10_000


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
    """A table, one line for each row, for people as for grep."""
    for line in lines_of(columns, rows):
        typer.echo(line)


def show_list(columns: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
    """As `show_table`, but on a terminal the last column stands below the others."""
    console = Console()
    if not console.is_terminal:
        show_table(columns, rows)
        return
    heading, *lines = lines_of(columns[:-1], [row[:-1] for row in rows])
    console.print(Text(heading, "bold"), soft_wrap=True)
    for line, row in zip(lines, rows, strict=True):
        console.print(Text(line), soft_wrap=True)
        text = Text(one_line(str(row[-1])), "dim")
        text.truncate(_LONG, overflow="ellipsis")
        console.print(Padding(text, (0, 0, 0, 4)))


def lines_of(columns: Sequence[str], rows: Sequence[Sequence[str | int]]) -> list[str]:
    """The lines of a table, the heading first."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        numeric = all(isinstance(row[number], int) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(one_line(str(value))) for value in row))
    console = Console(width=_WIDE, color_system=None)
    with console.capture() as capture:
        console.print(table)
    # Not splitlines, which knows more ends of a line than there are rows.
    return [line.rstrip() for line in capture.get().removesuffix("\n").split("\n")]


def show_json(value: object) -> None:
    """The value as JSON."""
    typer.echo(json.dumps(value, indent=2))


def show_moment(moment: datetime) -> str:
    """To the second, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
