"""What plugins offer each other, by type."""

from __future__ import annotations

import inspect
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from hypercube_plugins._errors import (
    DuplicateService,
    InvalidService,
    ServiceCycle,
    ServiceNotFound,
    ServiceNotReady,
)

T = TypeVar("T")

#: A class, and what it stands for. `type[T]` would refuse Protocols and abstract classes, which
#: are what one asks for best.
ServiceType: TypeAlias = Callable[..., T]
#: Makes a service, with the help of others.
Factory: TypeAlias = "Callable[[Services], T]"

_Key: TypeAlias = tuple[Any, str]
_NOT_MADE = object()


@dataclass(slots=True)
class _Entry:
    """One service."""

    #: The plugin that provides it; None for the application.
    provider: str | None
    value: object
    factory: Callable[[Services], object] | None
    #: Whether it may be looked up before registration is done.
    early: bool


@runtime_checkable
class Hosted(Protocol):
    """A service that can be told which application has to be up for it.

    `Jobs` of hypercube-jobs is one: `hypercube work` boots the application in each of its
    processes. Neither package knows the other.
    """

    def hosted_by(self, host: Any, /) -> None:
        """Keep `host`, an Application or AsyncApplication."""
        ...


class Services:
    """Looks services up, for a plugin or for the application; from any thread."""

    def __init__(self, container: Container, plugin: str | None = None) -> None:
        self._container = container
        self._plugin = plugin

    def get(self, service: ServiceType[T], *, name: str = "") -> T:
        """The service of this type and name, the same object each time.

        A factory runs at the first look-up, once, whatever the number of threads; others wait
        for it as long as it takes. If it raises, the error has a note that names the provider,
        and the next look-up tries again.

        Raises ServiceNotFound; ServiceNotReady before `setup()` has registered all plugins,
        unless the application provides it, or a plugin that is required provides it as early;
        ServiceCycle when its factory comes back to it.
        """
        found: T = self._container.get(_key(service, name), self._plugin)
        return found

    def find(self, service: ServiceType[T], *, name: str = "") -> T | None:
        """As `get`, but None if nobody provides it: for what a plugin can do without."""
        key = _key(service, name)
        if not self._container.may_have(key, self._plugin):
            return None
        found: T = self._container.get(key, self._plugin)
        return found


class Provision(Generic[T]):
    """Says what a service is: one of its two methods is called, once.

    In two steps, so that a type checker compares the service with its type.
    """

    def __init__(self, container: Container, key: _Key, provider: str | None, early: bool) -> None:
        self._container = container
        self._key = key
        self._provider = provider
        self._early = early

    def value(self, value: T) -> None:
        """It is this object. Raises InvalidService if that is not of the type."""
        _check_value(self._key, value, self._provider)
        self._add(value, None)

    def factory(self, factory: Factory[T]) -> Factory[T]:
        """It is what `factory(services)` returns, made at the first look-up. A decorator, too.

        It must not wait for a thread that looks up services: one is made at a time.
        """
        if not callable(factory):
            raise InvalidService(
                f"the factory of {_shown(self._key)} is a function that takes the services, not "
                f"{type(factory).__name__}"
            )
        self._add(_NOT_MADE, factory)
        return factory

    def _add(self, value: object, factory: Callable[[Services], object] | None) -> None:
        entry = _Entry(self._provider, value, factory, self._early)
        self._container.add(self._key, entry)


class Container:
    """All services of one application.

    `requires` tells whether a plugin requires another one, directly or not.
    """

    def __init__(self, requires: Callable[[str, str], bool]) -> None:
        self._requires = requires
        self._entries: dict[_Key, _Entry] = {}
        #: One for all: with one for each service two threads could wait for each other.
        self._lock = threading.RLock()
        self._making: list[_Key] = []
        #: What was announced and not said yet, and by whom.
        self._announced: dict[_Key, str | None] = {}
        self._complete = False
        #: The application.
        self.host: object = None
        #: Plugins that are known but not here, for the text of an error.
        self.absent: Sequence[str] = ()

    def provision(
        self, service: ServiceType[T], provider: str | None, *, name: str, early: bool
    ) -> Provision[T]:
        """Announce a service. Raises InvalidService, DuplicateService."""
        key = _key(service, name)
        with self._lock:
            self._check_new(key, provider)
            self._announced[key] = provider
        return Provision(self, key, provider, early)

    def add(self, key: _Key, entry: _Entry) -> None:
        """Add what was announced. Raises DuplicateService."""
        with self._lock:
            self._check_new(key, entry.provider)
            self._announced.pop(key, None)
            self._entries[key] = entry
        if entry.provider is None and isinstance(entry.value, Hosted):
            entry.value.hosted_by(self.host)

    def check_announced(self) -> None:
        """Raise InvalidService if something was announced and never said."""
        with self._lock:
            for key, provider in self._announced.items():
                raise InvalidService(
                    f"{_who(provider)} does not say what {_shown(key)} is; "
                    "call value() or factory() of what provide() returns"
                )

    def _check_new(self, key: _Key, provider: str | None) -> None:
        other = self._entries.get(key)
        if other is not None:
            raise DuplicateService(
                f"{_shown(key)} of {_who(provider)} is provided already, by "
                f"{_who(other.provider)}; give one of them a name"
            )

    def complete(self) -> None:
        """Registration is done: let everything be looked up."""
        self._complete = True

    def forget_made(self) -> None:
        """Let factories run again at the next look-up."""
        with self._lock:
            for entry in self._entries.values():
                if entry.factory is not None:
                    entry.value = _NOT_MADE

    def is_early(self, service: ServiceType[T], plugin: str, *, name: str) -> bool:
        """Whether a plugin may look it up while it registers."""
        entry = self._entries.get(_key(service, name))
        if entry is None or entry.provider is None:
            return entry is not None
        return entry.early and self._comes_before(entry.provider, plugin)

    def may_have(self, key: _Key, plugin: str | None) -> bool:
        """Whether there is such a service. Raises ServiceNotReady if that is not known yet."""
        entry = self._entries.get(key)
        if not self._complete and (entry is None or entry.provider is not None):
            self._check_early(key, entry, plugin)
        return entry is not None

    def get(self, key: _Key, plugin: str | None) -> Any:
        """The service, made if need be. Raises as `Services.get` does."""
        entry = self._entries.get(key)
        if not self._complete and (entry is None or entry.provider is not None):
            self._check_early(key, entry, plugin)
        if entry is None:
            raise ServiceNotFound(self._not_found(key))
        value = entry.value
        return self._made(key, entry) if value is _NOT_MADE else value

    def _check_early(self, key: _Key, entry: _Entry | None, plugin: str | None) -> None:
        what = f"{_shown(key)} was looked up before registration was done"
        if entry is None or entry.provider is None:
            remedy = "look it up in boot or later, or let the application provide it"
        elif not entry.early:
            remedy = f"look it up in boot or later, or let {_who(entry.provider)} provide it early"
        elif plugin is None:
            remedy = "call setup() first"
        elif not self._comes_before(entry.provider, plugin):
            remedy = f"{_who(plugin)} has to require {entry.provider}, so that it comes after it"
        else:
            return
        raise ServiceNotReady(f"{what}; {remedy}")

    def _comes_before(self, provider: str, plugin: str) -> bool:
        return plugin == provider or self._requires(plugin, provider)

    def _made(self, key: _Key, entry: _Entry) -> object:
        with self._lock:
            if entry.value is not _NOT_MADE:
                return entry.value
            if key in self._making:
                path = [*self._making[self._making.index(key) :], key]
                raise ServiceCycle(
                    f"these services need each other: {' -> '.join(map(_shown, path))}"
                )
            assert entry.factory is not None  # noqa: S101  # for the type checker
            self._making.append(key)
            try:
                value = entry.factory(Services(self, entry.provider))
                _check_value(key, value, entry.provider)
            except Exception as error:
                error.add_note(f"while {_who(entry.provider)} made {_shown(key)}")
                raise
            finally:
                self._making.pop()
            entry.value = value
            return value

    def _not_found(self, key: _Key) -> str:
        text = f"nobody provides {_shown(key)}"
        near = list(self._near(key))
        if near:
            return f"{text}; is it {', or '.join(near)}?"
        if self.absent:
            return f"{text}; not here are: {', '.join(self.absent)}"
        return text

    def _near(self, key: _Key) -> Iterator[str]:
        """What may have been meant, and who provides it."""
        wanted, name = key
        for other, entry in self._entries.items():
            service, _ = other
            if service == wanted:
                relation = "" if name else ", which has a name"
            elif _is_subclass(service, wanted):
                relation = ", a subclass"
            elif _is_subclass(wanted, service):
                relation = ", a superclass"
            elif _short(service) == _short(wanted):
                relation = ", another type of this name"
            else:
                continue
            yield f"{_shown(other)} of {_who(entry.provider)}{relation}"


def _key(service: object, name: str) -> _Key:
    if not inspect.isclass(_class(service)):
        raise InvalidService(
            f"a service is provided and looked up by a class, not by {type(service).__name__}"
        )
    if not isinstance(name, str):
        raise InvalidService(f"the name of a service is a str, not {type(name).__name__}")
    return service, name


def _check_value(key: _Key, value: object, provider: str | None) -> None:
    service, _ = key
    try:
        fits = isinstance(value, _class(service))
    except TypeError:
        return  # a Protocol that cannot be checked at run time
    if not fits:
        raise InvalidService(
            f"{_who(provider)} provides {type(value).__name__} as {_shown(key)}, which it is not"
        )


def _class(service: Any) -> Any:
    """The class itself, or the one that a generic alias such as Repository[Order] is of."""
    origin: Any = typing.get_origin(service)
    return service if origin is None else origin


def _is_subclass(one: Any, other: Any) -> bool:
    try:
        return issubclass(_class(one), _class(other))
    except TypeError:
        return False


def _short(service: Any) -> str:
    name: str = _class(service).__name__
    return name


def _shown(key: _Key) -> str:
    service, name = key
    if inspect.isclass(service) and typing.get_origin(service) is None:
        text = f"{service.__module__}.{service.__qualname__}"
    else:
        text = str(service)
    return f"{text} named {name!r}" if name else text


def _who(provider: str | None) -> str:
    return "the application" if provider is None else f"the plugin {provider}"
