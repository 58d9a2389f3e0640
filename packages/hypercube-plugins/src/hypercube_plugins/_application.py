"""An application, and its asynchronous twin."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from hypercube_plugins._errors import PluginFailed, ShutdownFailed
from hypercube_plugins._lifecycle import Lifecycle
from hypercube_plugins._plugin import AsyncPlugin, Plugin


class Application(Lifecycle[Plugin]):
    """Plugins, started in the order of their requirements and stopped in the reverse one.

        application = Application(Mail(), Shop(), requires=["mail>=1.2"])
        application.discover(deny=["debug"])
        with application:
            ...

    `requires` is what the application itself needs, whoever adds it. As a context manager it
    sets up and boots, and shuts down at the end, also when booting fails half-way.
    """

    _accepts = (Plugin,)

    def boot(self) -> None:
        """Boot every plugin, in the order of `order()`.

        Nothing happens if it succeeded before. Raises LifecycleError before `setup()`;
        PluginFailed when a plugin raises: then those before it are up, until `shutdown()`.
        """
        with self._boot_pass() as going_up:
            for declaration, plugin, services in going_up:
                with self._step("boot", declaration):
                    plugin.boot(services)

    def shutdown(self) -> None:
        """Shut down what is up, the last one that booted first.

        A plugin that raises does not keep the others up; ShutdownFailed reports all that did.
        Without anything up nothing happens. Afterwards `boot()` may be called again, and what
        factories have made is made anew. An interruption such as KeyboardInterrupt ends the
        call at once; the next call goes on with the rest.
        """
        failures: list[PluginFailed] = []
        with self._shutdown_pass(failures) as going_down:
            for declaration, plugin, services in going_down:
                with self._last_step(declaration, failures):
                    plugin.shutdown(services)

    def __enter__(self) -> Self:
        self.setup()
        try:
            self.boot()
        except BaseException as error:
            try:
                self.shutdown()
            except ShutdownFailed as more:
                error.add_note(str(more))
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()


class AsyncApplication(Lifecycle[Plugin | AsyncPlugin]):
    """An Application for asyncio: `boot` and `shutdown` are coroutines.

        async with AsyncApplication(Database(), Shop()) as application:
            ...

    It takes both sorts of plugins. Those of the synchronous sort run on the event loop's thread
    and block it as long as they take. `setup()` is no coroutine, so an application can be set up
    at import, and booted when the event loop runs.
    """

    _accepts = (Plugin, AsyncPlugin)

    async def boot(self) -> None:
        """As `Application.boot`. Cancelling it leaves up what is up, until `shutdown()`."""
        with self._boot_pass() as going_up:
            for declaration, plugin, services in going_up:
                with self._step("boot", declaration):
                    if isinstance(plugin, AsyncPlugin):
                        await plugin.boot(services)
                    else:
                        plugin.boot(services)

    async def shutdown(self) -> None:
        """As `Application.shutdown`. Cancelling it cancels the plugin that is being shut down.

        The next call goes on with the rest.
        """
        failures: list[PluginFailed] = []
        with self._shutdown_pass(failures) as going_down:
            for declaration, plugin, services in going_down:
                with self._last_step(declaration, failures):
                    if isinstance(plugin, AsyncPlugin):
                        await plugin.shutdown(services)
                    else:
                        plugin.shutdown(services)

    async def __aenter__(self) -> Self:
        self.setup()
        try:
            await self.boot()
        except BaseException as error:
            try:
                await self.shutdown()
            except ShutdownFailed as more:
                error.add_note(str(more))
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()
