"""`hypercube stats`."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hypercube_jobs._clock import utc_now
from hypercube_jobs._command._output import lines_of, show_json, show_moment, show_table
from hypercube_jobs._command._source import (
    AppArgument,
    AppOption,
    JSONOption,
    QueuesOption,
    URLOption,
    chosen_app,
    looked_at,
    queue_names,
    seconds,
)
from hypercube_jobs._errors import NotSupported
from hypercube_queue import Queue, QueueStats, StatsProvider, capability

_COLUMNS = ("queue", "ready", "delayed", "in flight", "dead")
_NOTHING = "no queue holds a job"


def stats(
    application: AppArgument = None,
    *,
    queue: QueuesOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C, and show what changes.")
    ] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="How often to look, with --watch.")
    ] = 2.0,
    url: URLOption = None,
    app: AppOption = None,
    json: JSONOption = False,
) -> None:
    """Show how many jobs of each queue are ready, delayed, in flight and dead."""
    pause = seconds("--interval", interval, may_be_zero=False).total_seconds()
    with looked_at(url, chosen_app(application, app)) as source:
        if watch:
            _watch(source, queue, pause, json=json)
            return
        found = _look(source, queue)
    if json:
        show_json([asdict(each) for each in found])
    elif found:
        show_table(_COLUMNS, _rows(found))
    else:
        typer.echo(_NOTHING)


def _look(source: Queue, names: Iterable[str] | None) -> list[QueueStats]:
    provider = capability(source, StatsProvider)
    if provider is None:
        raise NotSupported("this queue's driver cannot count messages; use the broker's own tools")
    return [provider.stats(name) for name in queue_names(source, names)]


def _rows(found: Iterable[QueueStats]) -> list[tuple[str, int, int, int, int]]:
    return [(each.name, each.ready, each.delayed, each.in_flight, each.dead) for each in found]


def _watch(source: Queue, names: Iterable[str] | None, pause: float, *, json: bool) -> None:
    """On a terminal the table is drawn anew; elsewhere, and as JSON, each look adds to it."""
    console = Console()
    live = None if json or not console.is_terminal else Live(console=console, auto_refresh=False)
    try:
        if live is None:
            while True:
                found = _look(source, names)
                if json:
                    line = {"at": utc_now().isoformat(), "queues": [asdict(each) for each in found]}
                    typer.echo(json_module.dumps(line))
                else:
                    show_table(_COLUMNS, _rows(found))
                time.sleep(pause)
        with live:
            while True:
                found = _look(source, names)
                lines = lines_of(_COLUMNS, _rows(found)) if found else [_NOTHING]
                moment = Text(f"{show_moment(utc_now())} UTC, Ctrl-C ends", "dim")
                live.update(Group(*map(Text, lines), moment), refresh=True)
                time.sleep(pause)
    except KeyboardInterrupt:
        return  # that is how it is meant to end
