"""What a plugin is: three declarations, and three methods that do nothing unless overridden."""

from __future__ import annotations

from collections.abc import Sequence

from hypercube_plugins._registration import Registration
from hypercube_plugins._services import Services


class _Declared:
    """What both sorts of plugins declare. In the class, or in each object."""

    #: What others require it by, and the namespace of what it contributes. As the name of a
    #: distribution: letters, digits, and `-`, `_`, `.` between them.
    name: str
    #: Its version (PEP 440), such as "1.2.0".
    version: str
    #: The plugins it needs, with the versions it works with: ("mail>=1.2,<2", "templates").
    requires: Sequence[str] = ()

    def register(self, registration: Registration) -> None:
        """Declare what it contributes: services, jobs, commands. Acquire nothing.

        Called once, by `setup()`, when all plugins it requires are registered. A failure ends
        setup, and the plugin is not shut down.
        """


class Plugin(_Declared):
    """A part of an application: derive from it, and declare a name and a version.

    class Mail(Plugin):
        name = "mail"
        version = "1.2.0"
        requires = ("templates>=1.0,<2",)

        def register(self, registration: Registration) -> None:
            registration.provide(Mailer).value(Mailer())

        def boot(self, services: Services) -> None:
            services.get(Mailer).connect()

        def shutdown(self, services: Services) -> None:
            services.get(Mailer).close()
    """

    def boot(self, services: Services) -> None:
        """Acquire what it needs: connect, start threads.

        Called by `boot()`, when every plugin is registered and all it requires are booted. A
        failure ends the pass; this plugin is not shut down then, so it lets go of what it had.
        """

    def shutdown(self, services: Services) -> None:
        """Let go of it. Called when all plugins that require it have been shut down.

        A failure is reported, and the other plugins are shut down all the same.
        """


class AsyncPlugin(_Declared):
    """A plugin of an AsyncApplication, which starts and stops on the event loop.

    As Plugin, but `boot` and `shutdown` are coroutines. `register` is not: it only declares,
    so that an application can be set up at import, before any event loop runs.
    """

    async def boot(self, services: Services) -> None:
        """As `Plugin.boot`, awaited."""

    async def shutdown(self, services: Services) -> None:
        """As `Plugin.shutdown`, awaited."""
