"""What synchronous and asynchronous applications have in common: all but the waiting."""

from __future__ import annotations

import enum
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Generic, TypeVar

from packaging.utils import NormalizedName, canonicalize_name

from hypercube_plugins._declaration import Declaration, declared, parsed
from hypercube_plugins._discovery import Unloaded, discovered
from hypercube_plugins._errors import (
    DuplicatePlugin,
    InvalidPlugin,
    LifecycleError,
    PluginFailed,
    ShutdownFailed,
    Stage,
    UnmetRequirements,
)
from hypercube_plugins._order import THE_APPLICATION, Absent, resolved
from hypercube_plugins._plugin import AsyncPlugin, Plugin
from hypercube_plugins._registration import Registration
from hypercube_plugins._services import Container, Provision, Services, ServiceType

T = TypeVar("T")
P = TypeVar("P", bound=Plugin | AsyncPlugin)

_log = logging.getLogger("hypercube_plugins")


class _State(enum.Enum):
    """How far an application is; the value is what an error says of it."""

    NEW = "setup() was not called"
    REGISTERING = "setup() is under way"
    BROKEN = "setup() failed, which cannot be repeated; make a new application"
    REGISTERED = "setup() was called"
    BOOTING = "boot() is under way"
    UP = "boot() was called"
    PARTLY_UP = "an earlier call failed half-way; call shutdown(), which stops what is up"
    STOPPING = "shutdown() is under way"


class Lifecycle(Generic[P]):
    """Plugins that are added, set up, booted and shut down.

    One thread, or one task, at a time calls these methods; services are looked up from any.
    """

    #: Which plugins it can start and stop.
    _accepts: ClassVar[tuple[type, ...]]

    def __init__(self, *plugins: P, requires: Sequence[str] = ()) -> None:
        self._plugins: dict[NormalizedName, P] = {}
        self._declarations: dict[NormalizedName, Declaration] = {}
        self._required = parsed(THE_APPLICATION, requires)
        self._unloaded: list[Unloaded] = []
        self._excluded: list[str] = []
        self._container = Container(self._requires)
        self._container.host = self
        self._order: list[Declaration] = []
        #: In the order in which they booted.
        self._up: list[Declaration] = []
        self._state = _State.NEW
        self.add(*plugins)

    @property
    def services(self) -> Services:
        """Looks services up for the application, once `setup()` was called."""
        return Services(self._container)

    def add(self, *plugins: P) -> None:
        """Add plugins: all of them, or none if one raises.

        Raises InvalidPlugin for one whose declarations make no sense, or that this application
        cannot start; DuplicatePlugin and ReservedName by name; LifecycleError after `setup()`.
        """
        self._check_new("a plugin is added")
        added = dict(self._declarations)
        for plugin in plugins:
            declaration = self._accepted(plugin)
            other = added.get(declaration.key)
            if other is not None:
                same = "" if other.name == declaration.name else f" as {other.name}"
                raise DuplicatePlugin(f"there is a plugin {declaration.name} already{same}")
            added[declaration.key] = declaration
        new = list(added)[len(self._declarations) :]
        self._declarations = added
        self._plugins.update(zip(new, plugins, strict=True))

    def discover(self, *, allow: Collection[str] | None = None, deny: Collection[str] = ()) -> None:
        """Add the plugins that installed distributions offer as `hypercube.plugins`, by name.

        Only those in `allow`, if it is given, and none in `deny`; the others are not imported.
        A plugin that was added by hand stays, and the one on offer under its name is not
        imported either. One that fails to import is reported by `setup()` like a missing
        requirement. What must be there belongs to the application's `requires`.

        Raises DuplicatePlugin where distributions offer different ones under one name, and
        LifecycleError after `setup()`.
        """
        self._check_new("plugins are discovered")
        found = discovered(allow, deny, self._declarations)
        self._excluded += found.excluded
        self._unloaded += found.unloaded
        for plugin, origin in found.plugins:
            try:
                self.add(plugin)
            except InvalidPlugin as error:
                self._unloaded.append(Unloaded(plugin.name, origin, error))

    def provide(self, service: ServiceType[T], *, name: str = "") -> Provision[T]:
        """Offer a service of the application's own, which plugins may look up at any time.

        This is how plugins get what they contribute to: `application.provide(Jobs).value(jobs)`.
        A value that has `hosted_by` is told of this application (`Hosted`).
        Raises InvalidService, DuplicateService, and LifecycleError after `setup()`.
        """
        self._check_new("a service is provided")
        return self._container.provision(service, None, name=name, early=True)

    def order(self) -> list[Declaration]:
        """The plugins in the order in which they start; registers nothing.

        Each comes after all it requires; of those that could be next, the one that was added
        first. Raises UnmetRequirements with all that is missing or incompatible, what could not
        be imported included, and DependencyCycle.
        """
        absent = [
            Absent(name, "which is installed, but kept out by allow or deny", needed=False)
            for name in self._excluded
        ]
        absent += [
            Absent(
                each.name,
                f"which cannot be loaded from {each.origin}: "
                f"{type(each.error).__name__}: {each.error}",
                needed=True,
            )
            for each in self._unloaded
        ]
        try:
            return resolved(list(self._declarations.values()), self._required, absent)
        except UnmetRequirements as error:
            if not self._unloaded:
                raise
            errors = [each.error for each in self._unloaded]
            raise error from ExceptionGroup("some plugins cannot be loaded", errors)

    def setup(self) -> None:
        """Check that the plugins fit together, and let each register, in their order.

        Nothing happens if it succeeded before. Raises as `order` does, before anything is
        registered: mend it, and call again. Raises PluginFailed when a plugin raises; then
        nothing is up, and neither this nor `boot()` can be repeated.
        """
        if self._state in {_State.REGISTERING, _State.BROKEN}:
            raise LifecycleError(self._state.value)
        if self._state is not _State.NEW:
            return
        self._container.check_announced()
        self._order = self.order()
        self._container.absent = [
            name
            for name in dict.fromkeys(self._excluded)
            if canonicalize_name(name) not in self._declarations
        ]
        self._state = _State.REGISTERING
        try:
            for declaration in self._order:
                registration = Registration(declaration.name, self._container)
                with self._step("register", declaration):
                    self._plugins[declaration.key].register(registration)
                    registration.close()
        except BaseException:
            self._state = _State.BROKEN
            raise
        self._container.complete()
        self._state = _State.REGISTERED

    # What the two passes that may wait are made of

    @contextmanager
    def _boot_pass(self) -> Iterator[Iterator[tuple[Declaration, P, Services]]]:
        """All that is to be booted; each is up once the next one is asked for."""
        if self._state not in {_State.REGISTERED, _State.UP}:
            raise LifecycleError(f"boot() comes after setup() and once: {self._state.value}")
        waiting = [] if self._state is _State.UP else self._order
        self._state = _State.BOOTING
        try:
            yield self._going_up(waiting)
        except BaseException:
            self._state = _State.PARTLY_UP
            raise
        self._state = _State.UP

    def _going_up(
        self, waiting: Sequence[Declaration]
    ) -> Iterator[tuple[Declaration, P, Services]]:
        for declaration in waiting:
            yield self._started(declaration)
            self._up.append(declaration)

    @contextmanager
    def _shutdown_pass(
        self, failures: list[PluginFailed]
    ) -> Iterator[Iterator[tuple[Declaration, P, Services]]]:
        """All that is up, the last one first. Raises ShutdownFailed at the end, if need be."""
        if self._state in {_State.REGISTERING, _State.BOOTING, _State.STOPPING}:
            raise LifecycleError(f"shutdown() has to wait: {self._state.value}")
        was = self._state
        self._state = _State.STOPPING
        try:
            yield self._going_down()
        except BaseException as interruption:
            self._state = _State.PARTLY_UP
            for failure in failures:
                interruption.add_note(str(failure))
            raise
        if was in {_State.NEW, _State.BROKEN}:
            self._state = was
            return
        self._state = _State.REGISTERED
        self._container.forget_made()
        if failures:
            raise ShutdownFailed(f"{len(failures)} of the plugins failed to shut down", failures)

    def _going_down(self) -> Iterator[tuple[Declaration, P, Services]]:
        while self._up:
            yield self._started(self._up.pop())

    def _started(self, declaration: Declaration) -> tuple[Declaration, P, Services]:
        services = Services(self._container, declaration.name)
        return declaration, self._plugins[declaration.key], services

    @contextmanager
    def _step(self, stage: Stage, declaration: Declaration) -> Iterator[None]:
        """One call of a plugin. Raises PluginFailed."""
        _log.debug("%s %s", stage, declaration)
        try:
            yield
        except Exception as error:
            raise PluginFailed(declaration.name, stage, error) from error

    @contextmanager
    def _last_step(self, declaration: Declaration, failures: list[PluginFailed]) -> Iterator[None]:
        """The call of a plugin's shutdown, after which the others are stopped all the same."""
        try:
            with self._step("shutdown", declaration):
                yield
        except PluginFailed as failure:
            failures.append(failure)

    # Within

    def _accepted(self, plugin: P) -> Declaration:
        declaration = declared(plugin)
        if not isinstance(plugin, self._accepts):
            raise InvalidPlugin(
                f"the plugin {declaration.name} is asynchronous; add it to an AsyncApplication"
            )
        return declaration

    def _check_new(self, what: str) -> None:
        if self._state is not _State.NEW:
            raise LifecycleError(f"{what} before setup(), and {self._state.value}")

    def _requires(self, plugin: str, other: str) -> bool:
        wanted = canonicalize_name(other)
        waiting = [canonicalize_name(plugin)]
        seen = set(waiting)
        while waiting:
            for requirement in self._declarations[waiting.pop()].requires:
                if requirement.key == wanted:
                    return True
                if requirement.key not in seen:
                    seen.add(requirement.key)
                    waiting.append(requirement.key)
        return False
