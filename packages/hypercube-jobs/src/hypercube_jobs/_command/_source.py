"""Which queue a command is about: that of a URL, or that of an application."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Annotated, Protocol, runtime_checkable

import typer

from hypercube_jobs._command._current_folder import look_in_current_folder
from hypercube_jobs._errors import NotSupported
from hypercube_jobs._jobs import Jobs
from hypercube_queue import (
    MAX_DURATION,
    InvalidArgument,
    Queue,
    StatsProvider,
    capability,
    open_queue,
)

URL_VARIABLE = "HYPERCUBE_URL"
#: Set to anything, it has commands show the tracebacks of errors.
DEBUG_VARIABLE = "HYPERCUBE_DEBUG"

# No `envvar=`: help and error texts would show the variable's value, password and all.
URLOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help=f"The queue; if not given, ${URL_VARIABLE}."),
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:ATTRIBUTE", help="The same as the argument."),
]
AppArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:ATTRIBUTE",
        help="A Jobs object, as in shop.jobs:jobs, whose queue it is about, in place of a URL.",
        show_default=False,
    ),
]
QueuesOption = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", metavar="NAME", help="Only this queue. May be repeated."),
]
JSONOption = Annotated[bool, typer.Option("--json", help="Write JSON, for other programs.")]

_REFERENCE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NOTHING = timedelta(0)


class AppNotLoaded(Exception):
    """MODULE:ATTRIBUTE leads to no Jobs object; the text says why."""


@runtime_checkable
class Creator(Protocol):
    """A queue that may create what it is kept in, such as a file or tables."""

    def create_nothing(self) -> None:
        """From now on raise BackendError where something would have to be created."""
        ...


@contextmanager
def opened(url: str | None, app: str | None) -> Iterator[Queue]:
    """The queue that the options name, else the one of the environment."""
    if app is not None:
        if url is not None:
            raise InvalidArgument("--url and an application each name a queue; give one of them")
        with load_jobs(app).queue as queue:
            yield queue
        return
    url = url or os.environ.get(URL_VARIABLE)
    if not url:
        raise InvalidArgument(
            f"which queue? Give --url, such as sqlite:///jobs.db, set {URL_VARIABLE}, or give an "
            "application, MODULE:ATTRIBUTE"
        )
    with open_queue(url) as queue:
        yield queue


@contextmanager
def looked_at(url: str | None, app: str | None) -> Iterator[Queue]:
    """The same for commands that only look, or change what is there: nothing is created."""
    with opened(url, app) as queue:
        creator = capability(queue, Creator)
        if creator is not None:
            creator.create_nothing()
        yield queue


def chosen_app(argument: str | None, option: str | None) -> str | None:
    """The application that was given as an argument or by --app."""
    if argument is None:
        return option
    if option is not None:
        raise InvalidArgument("the argument and --app each name an application; give one of them")
    return argument


def app_and_ids(
    arguments: Sequence[str] | None, url: str | None, option: str | None
) -> tuple[str | None, list[str]]:
    """What stands for an application, and the ids behind it.

    Ids may look like one. Where --url or --app is given all arguments are ids, and with a URL
    in the environment so is what no module can be found for.
    """
    ids = list(arguments or ())
    if url is not None or option is not None or not ids or not _REFERENCE.fullmatch(ids[0]):
        return option, ids
    if os.environ.get(URL_VARIABLE) and not _is_importable(ids[0]):
        return option, ids
    return ids[0], ids[1:]


def queue_names(queue: Queue, given: Iterable[str] | None) -> list[str]:
    """The queues that were given, else all. Raises NotSupported where they cannot be listed."""
    if given:
        return list(dict.fromkeys(given))
    provider = capability(queue, StatsProvider)
    if provider is None:
        raise NotSupported("this queue's driver cannot list its queues; name one with --queue")
    return provider.queues()


def check_shared(jobs: Jobs, app: str, verb: str) -> None:
    """Refuse a queue in the memory of this process, where `verb` would be of no use."""
    if not jobs.queue.guarantees.shared:
        raise InvalidArgument(
            f"the queue of {app} is in the memory of this process, so no other process can "
            f"{verb}; give the application the URL of a queue that processes share, such as "
            "sqlite:///jobs.db"
        )


def seconds(option: str, value: float, *, may_be_zero: bool = True) -> timedelta:
    """A duration that was given as a number. Raises InvalidArgument, which names the option."""
    try:
        duration = timedelta(seconds=value)
    except (OverflowError, ValueError):
        duration = None
    if duration is None or not _NOTHING <= duration <= MAX_DURATION:
        raise InvalidArgument(
            f"{option} is {value:g}; it is a number of seconds from 0 to "
            f"{MAX_DURATION.total_seconds():,.0f}"
        )
    if not duration and not may_be_zero:
        raise InvalidArgument(f"{option} is {value:g}; it is a number of seconds above zero")
    return duration


def number(option: str, value: int, *, at_least: int, at_most: int) -> int:
    """A whole number within bounds. Raises InvalidArgument, which names the option."""
    if not at_least <= value <= at_most:
        raise InvalidArgument(f"{option} is {value}; it is from {at_least} to {at_most:,}")
    return value


def load_jobs(reference: str) -> Jobs:
    """The Jobs object at MODULE:ATTRIBUTE, imported as Python does from the current folder.

    Raises AppNotLoaded.
    """
    module_name, attribute = _parts(reference)
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


def _is_importable(reference: str) -> bool:
    look_in_current_folder()
    return importlib.util.find_spec(reference.partition(":")[0].partition(".")[0]) is not None


def _parts(reference: str) -> tuple[str, str]:
    if "://" in reference:
        # It may hold a password.
        raise AppNotLoaded(
            "a URL is no application: that is MODULE:ATTRIBUTE, such as shop.jobs:jobs; commands "
            "that take a URL take it by --url"
        )
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        example = f"{module_name}:jobs" if _MODULE.fullmatch(module_name) else "shop.jobs:jobs"
        raise AppNotLoaded(f"{reference!r} is not MODULE:ATTRIBUTE, such as {example}")
    if "/" in module_name or os.sep in module_name or module_name.endswith(".py"):
        raise AppNotLoaded(f"{reference!r} names a file, not a module{_as_module(reference)}")
    return module_name, attribute


def _as_module(reference: str) -> str:
    """How the reference of a file is written, as far as that can be told."""
    file, _, attribute = reference.partition(":")
    path = Path(file.removesuffix(".py"))
    if path.is_absolute() or ".." in path.parts:
        return f"; write {path.name}:{attribute}, and start hypercube in its folder"
    return f"; write {'.'.join(path.parts)}:{attribute}"


def _imported(module_name: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _failed_import(module_name, error) from error
        raise _missing_module(error.name) from error
    except Exception as error:
        raise _failed_import(module_name, error) from error


def _missing_module(name: str) -> AppNotLoaded:
    parent, _, attribute = name.rpartition(".")
    if parent in sys.modules:
        return AppNotLoaded(
            f"there is no module {name!r}, as {parent} has none of this name; is it "
            f"{parent}:{attribute}?"
        )
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        return AppNotLoaded(
            f"there is no module {name!r} installed, and Python's safe path (-P, PYTHONSAFEPATH) "
            "keeps it from looking in the current folder"
        )
    return AppNotLoaded(
        f"there is no module {name!r}, neither in {Path.cwd()} nor installed; start hypercube in "
        "the folder that you would import it from"
    )


def _failed_import(module_name: str, error: Exception) -> AppNotLoaded:
    return AppNotLoaded(
        f"importing {module_name} failed: {type(error).__name__}: {error} "
        f"({_place_of(error, module_name)}); {DEBUG_VARIABLE}=1 shows the traceback"
    )


def _place_of(error: Exception, module_name: str) -> str:
    """The innermost line of the application's own, which somebody has to change."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    package = module_name.partition(".")[0]
    here = Path.cwd()
    nearby = named = other = ""
    for filename, line, name in _frames(error.__traceback__):
        place = f"{filename}:{line}"
        if not _is_installed(filename):
            other = place
            # Libraries may be installed as a link to where they are worked on.
            if Path(filename).is_relative_to(here):
                nearby = place
        if name.partition(".")[0] == package:
            named = place
    return nearby or named or other or "at import"


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    """File, line and module of each frame but those of the command and of generated code."""
    ours = str(Path(__file__).parent)
    for frame, line in traceback.walk_tb(trace):
        filename = frame.f_code.co_filename
        if not filename.startswith(("<", ours)):
            yield filename, line, str(frame.f_globals.get("__name__", ""))


def _is_installed(filename: str) -> bool:
    """Whether a file belongs to Python or to a distribution that was installed."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(filename).is_relative_to(folder) for folder in folders)


def _jobs_within(module: object, name: str) -> str:
    candidates = [key for key, value in vars(module).items() if isinstance(value, Jobs)]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.0)
    return f"; is it {near[0]!r}?" if near else ", nor any other Jobs object"
