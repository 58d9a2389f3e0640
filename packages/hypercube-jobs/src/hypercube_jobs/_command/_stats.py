"""`hypercube stats`."""

from __future__ import annotations

from dataclasses import asdict

import typer

from hypercube_jobs._command._output import show_json, show_table
from hypercube_jobs._command._source import (
    AppOption,
    JSONOption,
    QueuesOption,
    URLOption,
    opened,
    queue_names,
)
from hypercube_jobs._errors import NotSupported
from hypercube_queue import StatsProvider, capability


def stats(
    *,
    queue: QueuesOption = None,
    url: URLOption = None,
    app: AppOption = None,
    json: JSONOption = False,
) -> None:
    """Show how many jobs of each queue are ready, delayed, in flight and dead."""
    with opened(url, app) as source:
        provider = capability(source, StatsProvider)
        if provider is None:
            raise NotSupported(
                "this queue's driver cannot count messages; use the broker's own tools"
            )
        found = [provider.stats(name) for name in queue_names(source, queue)]
    if json:
        show_json([asdict(each) for each in found])
    elif found:
        rows = [(each.name, each.ready, each.delayed, each.in_flight, each.dead) for each in found]
        show_table(("queue", "ready", "delayed", "in flight", "dead"), rows)
    else:
        typer.echo("no queue holds a job")
