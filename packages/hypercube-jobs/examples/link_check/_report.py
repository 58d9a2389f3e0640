"""What the checker shows while it runs and when it is done."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from link_check._runs import Run, Tally

#: Problems of one file that the table shows; the dead letter has them all.
_SHOWN_PROBLEMS = 5
#: Plain lines of progress come at most this often.
_LINE_EVERY_S = 1.0
#: Where there is no terminal to say so.
_PLAIN_WIDTH = 120


class ShowProgress(Protocol):
    def __call__(self, checked: int, again: int) -> None:
        """So many files are checked, and so many are waiting to be tried again."""


class Report:
    """Writes to standard output: for people on a terminal, in plain lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console()
        if not self._console.is_terminal:
            self._console = Console(width=_PLAIN_WIDTH)

    def say(self, text: str) -> None:
        """One line, whatever its length."""
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    @contextmanager
    def progress(self, files: int) -> Iterator[ShowProgress]:
        """Something to call with the state of things, again and again."""
        if not self._console.is_terminal:
            yield self._lines(files)
            return
        columns = (
            TextColumn("checking"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[again]}"),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task("", total=files, again="")

            def show(checked: int, again: int) -> None:
                text = f"{again} to be tried again" if again else ""
                progress.update(task, completed=checked, again=text)

            yield show

    def _lines(self, files: int) -> ShowProgress:
        said_at = time.monotonic()
        said = ""

        def show(checked: int, again: int) -> None:
            nonlocal said_at, said
            line = f"checked {checked} of {files} so far"
            if again:
                line += f", {again} to be tried again"
            now = time.monotonic()
            if line != said and (checked == files or now >= said_at + _LINE_EVERY_S):
                said_at, said = now, line
                self.say(line)

        return show

    def result(self, run: Run, tally: Tally, dead: dict[str, list[str]], retry: str) -> None:
        """The tables, how to try the dead again, and the sum in the last line."""
        if dead:
            self._console.print(_dead_table(dead))
            self.say("Mend them, give their jobs back to the queue with this command, and start")
            self.say("the same check again: it looks at these files only.")
            self.say(f"  {retry}")
        if run.files:
            self._console.print(_sum_table(tally))
        self.say(f"checked {run.files} files: {tally.done} done, {tally.dead} dead")


def retry_command(run: Run, url: str) -> str:
    """The command that brings the dead files of `run` back, to be pasted into a shell."""
    program = Path(sys.executable).with_name("hypercube")
    if not program.exists():
        program = Path("hypercube")
    elif program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    return shlex.join([str(program), "retry", "--all", "--queue", run.queue, "--url", url])


def _dead_table(dead: dict[str, list[str]]) -> Table:
    table = Table(title="Dead", title_justify="left", show_lines=True)
    table.add_column("file", overflow="fold")
    table.add_column("why", overflow="fold", ratio=1)
    for path, problems in dead.items():
        shown = problems[:_SHOWN_PROBLEMS]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more")
        table.add_row(escape(path), escape("\n".join(shown)))
    return table


def _sum_table(tally: Tally) -> Table:
    table = Table(title="All files", title_justify="left")
    table.add_column("state")
    table.add_column("files", justify="right")
    table.add_column("links checked", justify="right")
    table.add_row("done", f"{tally.done:,}", f"{tally.links_done:,}")
    table.add_row("dead", f"{tally.dead:,}", f"{tally.links_dead:,}")
    return table
