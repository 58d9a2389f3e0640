"""The command line as a whole: its subcommands, and how errors come out."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hypercube_jobs.__about__ import __version__
from hypercube_jobs._command._dead import failed, forget, retry
from hypercube_jobs._command._dispatch import dispatch
from hypercube_jobs._command._guarantees import guarantees
from hypercube_jobs._command._queues import queues
from hypercube_jobs._command._schedule import schedule
from hypercube_jobs._command._schema import schema
from hypercube_jobs._command._source import DEBUG_VARIABLE, AppNotLoaded
from hypercube_jobs._command._stats import stats
from hypercube_jobs._command._work import work
from hypercube_jobs._errors import JobError
from hypercube_jobs._text import lines_of, one_line
from hypercube_queue import InvalidArgument, QueueError

#: Other distributions register `name = "module:function"` or a whole Typer application here.
ENTRY_POINT_GROUP = "hypercube.commands"

#: Exit codes: the operation failed; the command line makes no sense.
FAILED = 1
USAGE = 2


class _Commands(TyperGroup):
    """Tells errors that a user can act on in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (InvalidArgument, AppNotLoaded) as error:
            _show_traceback(error)
            _say(error)
            raise typer.Exit(USAGE) from error
        except (QueueError, JobError) as error:
            _show_traceback(error)
            _say(error)
            raise typer.Exit(FAILED) from error


app = typer.Typer(
    name="hypercube",
    cls=_Commands,
    help="Work on the jobs of a Hypercube queue, and look after the failed ones.",
    no_args_is_help=True,
    # A traceback with the values of variables would show URLs with their passwords.
    pretty_exceptions_enable=False,
)
for _command in (work, schedule, dispatch, stats, queues, failed, retry, forget, guarantees):
    app.command()(_command)
app.add_typer(schema, name="schema")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hypercube-jobs {__version__}")
        raise typer.Exit


@app.callback()
def hypercube(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Work on the jobs of a Hypercube queue, and look after the failed ones."""


def main() -> None:
    """The entry point: add the commands of other distributions, and run."""
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        add_command(point)
    app()


def add_command(point: EntryPoint) -> None:
    """Add a subcommand of another distribution; if that cannot be done, say so and go on."""
    try:
        command = point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # it runs foreign code at import
        _pass_over(point, f"cannot be loaded: {error!r}")
        return
    if point.name in _names():
        _pass_over(point, "has a name that is taken")
    elif isinstance(command, typer.Typer):
        app.add_typer(command, name=point.name)
    elif callable(command):
        app.command(point.name)(command)
    else:
        _pass_over(point, f"is no function and no typer.Typer, but {type(command).__name__}")


def _names() -> set[str | None]:
    """All subcommands by their names."""
    commands = {
        each.name or getattr(each.callback, "__name__", None) for each in app.registered_commands
    }
    return commands | {group.name for group in app.registered_groups}


def _pass_over(point: EntryPoint, reason: str) -> None:
    source = point.value if point.dist is None else f"of {point.dist.name}"
    _say(f"the command {point.name} ({source}) {reason}")


def _show_traceback(error: Exception) -> None:
    """Show the traceback to who asked for it, by the environment or by --log-level debug."""
    if os.environ.get(DEBUG_VARIABLE) or logging.getLogger().isEnabledFor(logging.DEBUG):
        # How the command came to import an application is of no interest.
        cause = error.__cause__ if isinstance(error, AppNotLoaded) else None
        trace = "".join(traceback.format_exception(cause or error)).removesuffix("\n")
        sys.stderr.write("\n".join(lines_of(trace)) + "\n")


def _say(what: object) -> None:
    line = one_line(" ".join(str(what).split()))
    sys.stderr.write(f"hypercube: {line}\n")
