"""What plugins add their commands to."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer

from hypercube_plugins._application import Application, AsyncApplication
from hypercube_plugins._errors import InvalidPlugin, PluginError
from hypercube_plugins.commands._output import say

C = TypeVar("C", bound=Callable[..., Any])


class CommandGroup(typer.Typer):
    """A Typer application whose commands run while an application is booted.

    It is booted for the one command, and shut down afterwards; `--help` boots nothing. In an
    AsyncApplication commands may be coroutine functions, and all run on the event loop that it
    is booted on. A plain Typer that is added to a group does without all this.
    """

    def __init__(self, application: Application | AsyncApplication, **options: Any) -> None:
        """Take the options of `typer.Typer` too."""
        super().__init__(**{"no_args_is_help": True, **options})
        self._application = application
        self._groups: dict[str, CommandGroup] = {}

    def under(self, name: str, /) -> CommandGroup:
        """The group of this name within this one, the same at each call."""
        if name not in self._groups:
            self._groups[name] = CommandGroup(self._application)
            self.add_typer(self._groups[name], name=name, help=f"Commands of {name}.")
        return self._groups[name]

    def command(self, *args: Any, **options: Any) -> Callable[[C], C]:
        """As `typer.Typer.command`. The function itself stays as it is.

        Raises InvalidPlugin for a coroutine function where the application is synchronous.
        """
        add = super().command(*args, **options)

        def bind(function: C) -> C:
            if inspect.iscoroutinefunction(function) and isinstance(self._application, Application):
                raise InvalidPlugin(
                    f"the command {function.__name__} is a coroutine function; "
                    "it needs an AsyncApplication"
                )
            add(_booted(self._application, function))
            return function

        return bind


class Commands(CommandGroup):
    """The commands of all plugins of an application, a group for each plugin.

        commands = Commands(application)
        application.setup()

    It offers itself to the plugins, and each adds to a group of its own name:

        @registration.own(Commands).command()
        def resend(order: int) -> None: ...

    Run it as `commands()`, or make it a part of the command `hypercube` through the entry-point
    group `hypercube.commands`.
    """

    def __init__(self, application: Application | AsyncApplication, **options: Any) -> None:
        """Take the options of `typer.Typer` too. Raises LifecycleError after `setup()`."""
        super().__init__(application, **options)
        application.provide(Commands).value(self)


def _booted(
    application: Application | AsyncApplication, function: Callable[..., Any]
) -> Callable[..., None]:
    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> None:
        try:
            if isinstance(application, Application):
                with application:
                    function(*args, **options)
            else:
                asyncio.run(_run_async(application, function, *args, **options))
        except PluginError as error:
            say(error)
            raise typer.Exit(1) from error

    return run


async def _run_async(
    application: AsyncApplication, function: Callable[..., Any], *args: Any, **options: Any
) -> None:
    async with application:
        result = function(*args, **options)
        if inspect.isawaitable(result):
            await result
