"""`hypercube queues`."""

from __future__ import annotations

import typer

from hypercube_jobs._command._output import show_json
from hypercube_jobs._command._source import (
    AppArgument,
    AppOption,
    JSONOption,
    URLOption,
    chosen_app,
    looked_at,
)
from hypercube_jobs._errors import NotSupported
from hypercube_jobs._text import one_line
from hypercube_queue import StatsProvider, capability


def queues(
    application: AppArgument = None,
    *,
    url: URLOption = None,
    app: AppOption = None,
    json: JSONOption = False,
) -> None:
    """List the queues that hold a job, waiting, running or dead."""
    with looked_at(url, chosen_app(application, app)) as source:
        provider = capability(source, StatsProvider)
        if provider is None:
            raise NotSupported(
                "this queue's driver cannot list its queues; use the broker's own tools"
            )
        names = provider.queues()
    if json:
        show_json(names)
        return
    for name in names:
        typer.echo(one_line(name))
