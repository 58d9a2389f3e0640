"""Calling a handler."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, cast

from hypercube_jobs._errors import UnknownKind
from hypercube_jobs._registry import Handler, Kind
from hypercube_queue.checks import safe_repr


def handler_of(kind: Kind) -> Handler:
    """The handler of a kind. Raises UnknownKind if it has none here."""
    if kind.handler is None:
        raise UnknownKind(f"the kind {safe_repr(kind.name)} has no handler here")
    return kind.handler


def call(handler: Handler, job: object) -> None:
    """Run a synchronous handler to its end. Raises what it raises."""
    result = handler(job)
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            "the handler is no async function but returned an awaitable, which nobody awaits; "
            "declare it with `async def`"
        )


async def call_async(handler: Handler, job: object) -> None:
    """Run an asynchronous handler to its end. Raises what it raises."""
    await cast("Awaitable[object]", handler(job))


def loop_runs_here() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _django() -> Any:
    """The module here that knows Django; None where the application does not use it."""
    if "django.db" not in sys.modules:
        return None
    return importlib.import_module("hypercube_jobs._transactions._django")


async def run_in_thread(function: Callable[[], None], context: Context) -> None:
    """Run a synchronous function where it may block. Raises what it raises.

    With Django that is the thread of its asynchronous API, whose transaction it is part of.
    """
    if (django := _django()) is not None:
        await django.run_in_thread(function, context)
    else:
        await asyncio.to_thread(context.run, function)


def run_to_end(
    make: Callable[[], Coroutine[Any, Any, None]],
    context: Context,
    runner: asyncio.Runner | None = None,
) -> None:
    """Run a coroutine on a loop of its own, or that of `runner`, and wait. Raises what it raises.

    It runs in this thread, or in another if an event loop runs here, which then waits. If this
    thread is in a transaction of Django's, its asynchronous API takes part in that.
    """
    if not loop_runs_here():
        if (django := _django()) is not None and django.in_transaction():
            context.run(django.run_to_end, make)
            return
        if runner is not None:
            runner.run(make(), context=context)
            return
        with asyncio.Runner() as own:
            own.run(make(), context=context)
        return
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with asyncio.Runner() as own:
                own.run(make(), context=context)
        except BaseException as error:  # noqa: BLE001  # raised below
            errors.append(error)

    thread = threading.Thread(target=run, name="hypercube-loop")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
