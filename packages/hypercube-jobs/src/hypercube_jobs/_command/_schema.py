"""`hypercube schema`: the tables of a queue that is kept in a database."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import typer

from hypercube_jobs._command._output import show_json
from hypercube_jobs._command._source import (
    AppArgument,
    AppOption,
    JSONOption,
    URLOption,
    chosen_app,
    opened,
)
from hypercube_jobs._errors import NotSupported
from hypercube_queue import Queue, capability

schema = typer.Typer(help="Create the tables of a queue in a database.", no_args_is_help=True)


@runtime_checkable
class SchemaOwner(Protocol):
    """A queue that keeps its messages in tables."""

    def create_tables(self) -> None:
        """Create what is missing, and bring what is older to the present layout."""
        ...

    def creation_statements(self) -> list[str]:
        """The statements that create the tables, without contacting anybody."""
        ...


@schema.command()
def create(
    application: AppArgument = None, *, url: URLOption = None, app: AppOption = None
) -> None:
    """Create the tables that are missing and migrate older ones; safe to repeat."""
    with opened(url, chosen_app(application, app)) as source:
        _owner(source).create_tables()
    typer.echo("the tables are there")


@schema.command()
def sql(
    application: AppArgument = None,
    *,
    url: URLOption = None,
    app: AppOption = None,
    json: JSONOption = False,
) -> None:
    """Write the statements that create the tables, for a migration of your own."""
    with opened(url, chosen_app(application, app)) as source:
        statements = [statement.strip() for statement in _owner(source).creation_statements()]
    if json:
        show_json(statements)
        return
    for statement in statements:
        typer.echo(f"{statement};\n")


def _owner(source: Queue) -> SchemaOwner:
    owner = capability(source, SchemaOwner)
    if owner is None:
        raise NotSupported(
            "this queue's driver has no tables to create; it makes what it needs by itself, or its "
            "README says how"
        )
    return owner
