"""`hypercube dispatch`."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hypercube_jobs._command._output import show_json
from hypercube_jobs._command._source import JSONOption, check_shared, load_jobs, number, seconds
from hypercube_jobs._policy import MAX_RETRIES, DispatchOptions
from hypercube_queue import InvalidArgument
from hypercube_queue.checks import checked_name


def dispatch(
    app: Annotated[
        str,
        typer.Argument(metavar="MODULE:ATTRIBUTE", help="A Jobs object, as in shop.jobs:jobs."),
    ],
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="The kind of job, as it is declared there.")
    ],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="JSON", help="A JSON object with the job's fields; - reads standard input."
        ),
    ] = "{}",
    *,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", metavar="NAME", help="If not given, as the kind says."),
    ] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long it is invisible at first.")
    ] = None,
    id: Annotated[
        str | None, typer.Option(help="An id of your own; the queue holds one job of it at a time.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="How often it may be tried again.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long an attempt may take.")
    ] = None,
    json: JSONOption = False,
) -> None:
    """Dispatch a job, and write its id."""
    checked: DispatchOptions = {"queue": queue, "retries": retries}
    if queue is not None:
        checked_name("--queue", queue, may_be_empty=False)
    if retries is not None:
        number("--retries", retries, at_least=0, at_most=MAX_RETRIES)
    if delay is not None:
        checked["delay"] = seconds("--delay", delay)
    if id is not None:
        checked["id"] = checked_name("--id", id, may_be_empty=False)
    if timeout is not None:
        checked["timeout"] = seconds("--timeout", timeout, may_be_zero=False)
    fields = _fields(sys.stdin.read() if payload == "-" else payload)
    jobs = load_jobs(app)
    check_shared(jobs, app, "work on what is dispatched here")
    with jobs.queue:
        result = jobs.dispatch_kind(kind, fields, **checked)
    if json:
        show_json(asdict(result))
    else:
        typer.echo(result.id)
        if not result.created:
            typer.echo("the queue holds a job of this id already, which stays as it is", err=True)


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json_module.loads(text)
    except ValueError as error:
        # It quotes nothing of the text, which is nobody's to show.
        raise InvalidArgument(f"the payload is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidArgument(
            "the payload is no JSON object with the fields of the job, such as '{\"order_id\": 1}'"
        )
    return fields
