"""`hypercube plugins`."""

from __future__ import annotations

import json
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hypercube_plugins._application import Application, AsyncApplication
from hypercube_plugins._declaration import Declaration
from hypercube_plugins._errors import PluginError
from hypercube_plugins._tree import mermaid, tree
from hypercube_plugins.commands._output import say

#: Exit codes: the plugins do not fit together; the command line makes no sense.
FAILED = 1
USAGE = 2


def plugins(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:ATTRIBUTE",
            help="An application, as in shop:application. If not given, all installed plugins.",
        ),
    ] = None,
    *,
    graph: Annotated[bool, typer.Option("--graph", help="Write a Mermaid diagram.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON, for other programs.")
    ] = False,
) -> None:
    """Show the plugins in the order in which they start, with what they require."""
    if graph and as_json:
        say("--graph and --json are two ways to write; give one of them")
        raise typer.Exit(USAGE)
    application = _discovered() if app is None else _application(app)
    try:
        order = application.order()
    except PluginError as error:
        say(error)
        raise typer.Exit(FAILED) from error
    if as_json:
        typer.echo(json.dumps(_plain(order), indent=2))
    elif not order:
        typer.echo("there are no plugins")
    else:
        typer.echo(mermaid(order) if graph else tree(order))


def _discovered() -> AsyncApplication:
    application = AsyncApplication()
    try:
        application.discover()
    except PluginError as error:
        say(error)
        raise typer.Exit(FAILED) from error
    return application


def _application(reference: str) -> Application | AsyncApplication:
    """The application at MODULE:ATTRIBUTE, imported as Python does from the current folder."""
    module, _, attribute = reference.partition(":")
    if not module or not attribute:
        raise _refused(f"{reference!r} is not MODULE:ATTRIBUTE, such as shop:application")
    here = str(Path.cwd())
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last, so that no file there replaces an installed module
    try:
        found = pkgutil.resolve_name(reference)
    except Exception as error:
        raise _refused(f"{reference} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Application | AsyncApplication):
        raise _refused(f"{reference} is no application, but of type {type(found).__name__}")
    return found


def _refused(text: str) -> typer.Exit:
    say(text)
    return typer.Exit(USAGE)


def _plain(order: Sequence[Declaration]) -> list[dict[str, Any]]:
    found = {each.key: each for each in order}
    return [
        {
            "name": each.name,
            "version": str(each.version),
            "requires": [
                {
                    "name": found[requirement.key].name,
                    "versions": str(requirement.versions),
                    "found": str(found[requirement.key].version),
                }
                for requirement in each.requires
            ],
        }
        for each in order
    ]
