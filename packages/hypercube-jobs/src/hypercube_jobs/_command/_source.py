"""Which queue a command is about: that of a URL, or that of an application."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from hypercube_jobs._command._current_folder import look_in_current_folder
from hypercube_jobs._errors import NotSupported
from hypercube_jobs._jobs import Jobs
from hypercube_queue import InvalidArgument, Queue, StatsProvider, capability, open_queue

URL_VARIABLE = "HYPERCUBE_URL"

# No `envvar=`: help and error texts would show the variable's value, password and all.
URLOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help=f"The queue; if not given, ${URL_VARIABLE}."),
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:ATTRIBUTE", help="A Jobs object, in place of a URL."),
]
QueuesOption = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", metavar="NAME", help="Only this queue. May be repeated."),
]
JSONOption = Annotated[bool, typer.Option("--json", help="Write JSON, for other programs.")]


class AppNotLoaded(Exception):
    """MODULE:ATTRIBUTE leads to no Jobs object; the text says why."""


@contextmanager
def opened(url: str | None, app: str | None) -> Iterator[Queue]:
    """The queue that the options name, else the one of the environment."""
    if app is not None:
        if url is not None:
            raise InvalidArgument("--url and --app each name a queue; give one of them")
        with load_jobs(app).queue as queue:
            yield queue
        return
    url = url or os.environ.get(URL_VARIABLE)
    if not url:
        raise InvalidArgument(
            f"which queue? Give --url, such as sqlite:///jobs.db, set {URL_VARIABLE}, or give "
            "--app MODULE:ATTRIBUTE"
        )
    with open_queue(url) as queue:
        yield queue


def queue_names(queue: Queue, given: Iterable[str] | None) -> list[str]:
    """The queues that were given, else all. Raises NotSupported where they cannot be listed."""
    if given:
        return list(dict.fromkeys(given))
    provider = capability(queue, StatsProvider)
    if provider is None:
        raise NotSupported("this queue's driver cannot list its queues; name one with --queue")
    return provider.queues()


def seconds(option: str, value: float) -> timedelta:
    """A duration that was given as a number."""
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise InvalidArgument(f"{option} is {value}; it is a number of seconds") from None


def load_jobs(reference: str) -> Jobs:
    """The Jobs object at MODULE:ATTRIBUTE, imported as Python does from the current folder.

    Raises AppNotLoaded.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise AppNotLoaded(f"{reference!r} is not MODULE:ATTRIBUTE, such as shop.jobs:jobs")
    look_in_current_folder()
    found = _imported(module_name)
    for name in attribute.split("."):
        missing = object()
        value = getattr(found, name, missing)
        if value is missing:
            hint = _jobs_within(found, name)
            raise AppNotLoaded(f"{module_name} has no {attribute!r}{hint}")
        found = value
    if not isinstance(found, Jobs):
        raise AppNotLoaded(f"{reference} is no Jobs object, but of type {type(found).__name__}")
    return found


def _imported(module_name: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _failed_import(module_name, error) from error
        if str(Path.cwd()) not in sys.path and "" not in sys.path:
            raise AppNotLoaded(
                f"there is no module {error.name!r} installed, and Python's safe path (-P, "
                "PYTHONSAFEPATH) keeps it from looking in the current folder"
            ) from error
        raise AppNotLoaded(
            f"there is no module {error.name!r}, neither in {Path.cwd()} nor installed; start "
            "hypercube in the folder that you would import it from"
        ) from error
    except Exception as error:
        raise _failed_import(module_name, error) from error


def _failed_import(module_name: str, error: Exception) -> AppNotLoaded:
    # The last frame outside the import machinery is the line that somebody has to change.
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen ")
    ]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else "at import"
    return AppNotLoaded(
        f"importing {module_name} failed: {type(error).__name__}: {error} ({place})"
    )


def _jobs_within(module: object, name: str) -> str:
    candidates = [key for key, value in vars(module).items() if isinstance(value, Jobs)]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.0)
    return f"; is it {near[0]!r}?" if near else ", nor any other Jobs object"
