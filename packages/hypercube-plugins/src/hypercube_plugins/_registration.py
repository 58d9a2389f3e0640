"""What a plugin contributes, while it registers."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from hypercube_plugins._errors import InvalidService, LifecycleError
from hypercube_plugins._services import Container, Provision, Services, ServiceType

T = TypeVar("T")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


@runtime_checkable
class Shared(Protocol[V_co]):
    """A service that gives each plugin a part of its own, in which names clash with nobody's.

    `Jobs` of hypercube-jobs is one: its part takes kinds of jobs, and stores them under the
    plugin's name. Neither package knows the other; this method is all that joins them.
    """

    def under(self, name: str, /) -> V_co:
        """The part that belongs to `name`."""
        ...


class Registration:
    """Takes what one plugin contributes. It is closed when the plugin's `register` returns."""

    def __init__(self, plugin: str, container: Container) -> None:
        #: The name of the plugin.
        self.plugin = plugin
        #: For look-ups: now of what is there early, and after registration of everything.
        self.services = Services(container, plugin)
        self._container = container
        self._closed = False

    def provide(
        self, service: ServiceType[T], *, name: str = "", early: bool = False
    ) -> Provision[T]:
        """Offer a service of this type, and of this name if there are several of the type.

            registration.provide(Mailer).value(SMTPMailer())
            registration.provide(Mailer, name="bulk").factory(make_bulk_mailer)

        With `early` plugins that require this one may look it up while they register.
        Raises DuplicateService, and LifecycleError when `register` has returned.
        """
        if self._closed:
            raise LifecycleError(
                f"the plugin {self.plugin} has registered; provide services in its register()"
            )
        return self._container.provision(service, self.plugin, name=name, early=early)

    def own(self, shared: ServiceType[Shared[V]], *, name: str = "") -> V:
        """The plugin's part of a service that all share, such as `Jobs`.

            @registration.own(Jobs).handler("send")
            def send(job: Send) -> None: ...

        Raises as `Services.get` does, and InvalidService for one that is not shared.
        """
        return self._part(self.services.get(shared, name=name))

    def find_own(self, shared: ServiceType[Shared[V]], *, name: str = "") -> V | None:
        """As `own`, but None unless the application or a required plugin provides it early.

        For what a plugin contributes where it is wanted:

            if commands := registration.find_own(Commands):
                commands.command()(resend)
        """
        if not self._container.is_early(shared, self.plugin, name=name):
            return None
        return self.own(shared, name=name)

    def _part(self, found: Shared[V]) -> V:
        if not isinstance(found, Shared):
            raise InvalidService(
                f"{type(found).__name__} has no parts, that is no method under(name)"
            )
        return found.under(self.plugin)

    def close(self) -> None:
        """Take nothing more. Raises InvalidService for a service that was only half provided."""
        self._closed = True
        self._container.check_announced()
