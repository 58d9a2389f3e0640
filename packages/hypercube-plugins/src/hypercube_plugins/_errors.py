"""What goes wrong with plugins.

PluginError
├── InvalidPlugin           (also a ValueError)
│   ├── DuplicatePlugin
│   └── ReservedName
├── UnmetRequirements       all that is missing or incompatible
├── DependencyCycle         with its path
├── LifecycleError          a call that does not fit what was done before
├── PluginFailed            a plugin raised in register, boot or shutdown
├── ShutdownFailed          (also an ExceptionGroup) of PluginFailed
└── ServiceError
    ├── InvalidService      (also a TypeError)
    ├── DuplicateService    (also a ValueError)
    ├── ServiceNotFound     (also a LookupError)
    ├── ServiceNotReady
    └── ServiceCycle
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: Which of its methods a plugin failed in.
Stage: TypeAlias = Literal["register", "boot", "shutdown"]


class PluginError(Exception):
    """The root of all errors that this package raises on purpose."""


class InvalidPlugin(PluginError, ValueError):
    """What a plugin or an application declares makes no sense. Nothing was added."""


class DuplicatePlugin(InvalidPlugin):
    """A plugin of this name is there already; names that differ in case or - and _ are one."""


class ReservedName(InvalidPlugin):
    """The name means something else in messages and commands, so no plugin may have it."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """One requirement that is not met."""

    #: Who needs it: `shop 2.0`, or `the application`.
    needed_by: str
    #: What it needs, such as `mail>=1.2`.
    needs: str
    #: The version that is there, or None if there is none.
    found: str | None
    #: What is wrong, to be read after `needs`: `but mail 1.1 is here`.
    reason: str

    def __str__(self) -> str:
        return f"{self.needed_by} needs {self.needs}, {self.reason}"


class UnmetRequirements(PluginError):
    """Plugins are missing or have the wrong versions. Nothing was registered.

    Where some could not be imported, the `__cause__` is an ExceptionGroup of the reasons.
    """

    #: All of them, in the order in which plugins were added and requirements are written.
    unmet: tuple[Unmet, ...]

    def __init__(self, unmet: Sequence[Unmet]) -> None:
        self.unmet = tuple(unmet)
        super().__init__(self.unmet)

    @property
    def missing(self) -> tuple[Unmet, ...]:
        """Those of which no version is there."""
        return tuple(each for each in self.unmet if each.found is None)

    @property
    def incompatible(self) -> tuple[Unmet, ...]:
        """Those of which a version is there that does not fit."""
        return tuple(each for each in self.unmet if each.found is not None)

    def __str__(self) -> str:
        if len(self.unmet) == 1:
            return str(self.unmet[0])
        return "\n".join(
            [f"{len(self.unmet)} requirements are not met:", *(f"  {each}" for each in self.unmet)]
        )


class DependencyCycle(PluginError):
    """Plugins need each other, so none of them can be first. Nothing was registered."""

    #: Their names, each needed by the one before it; the last one is the first one again.
    path: tuple[str, ...]

    def __init__(self, path: Sequence[str]) -> None:
        self.path = tuple(path)
        super().__init__(self.path)

    def __str__(self) -> str:
        return f"these plugins need each other: {' -> '.join(self.path)}"


class LifecycleError(PluginError):
    """The call does not fit what was done before, such as boot before setup."""


class PluginFailed(PluginError):
    """A plugin raised; what it raised is the `__cause__`."""

    plugin: str
    stage: Stage

    def __init__(self, plugin: str, stage: Stage, cause: BaseException) -> None:
        self.plugin = plugin
        self.stage = stage
        super().__init__(plugin, stage, cause)

    def __str__(self) -> str:
        cause = self.args[2]
        text = f": {cause}" if str(cause) else ""
        return f"the plugin {self.plugin} failed in {self.stage}: {type(cause).__name__}{text}"


class ShutdownFailed(PluginError, ExceptionGroup[PluginFailed]):
    """Some plugins raised in shutdown; all others were stopped.

    `except PluginError` and `except* PluginFailed` both catch it.
    """

    def derive(self, excs: Sequence[BaseException]) -> BaseExceptionGroup:  # type: ignore[override]
        """A ShutdownFailed of some of its errors."""
        kept = [error for error in excs if isinstance(error, PluginFailed)]
        if len(kept) != len(excs):
            return BaseExceptionGroup(self.message, excs)
        return ShutdownFailed(self.message, kept)

    def __str__(self) -> str:
        return f"{self.message}: {'; '.join(map(str, self.exceptions))}"


class ServiceError(PluginError):
    """The root of all errors about services."""


class InvalidService(ServiceError, TypeError):
    """What was provided, or asked for, is not of the kind it should be."""


class DuplicateService(ServiceError, ValueError):
    """A service of this type and name is there already, and stays as it is."""


class ServiceNotFound(ServiceError, LookupError):
    """Nobody provides it; the text says who provides something like it."""


class ServiceNotReady(ServiceError):
    """It was asked for before registration was done, and is not declared to be there then."""


class ServiceCycle(ServiceError):
    """Making a service needs the service itself."""


# Tracebacks and logs name them by where they are imported from.
for _error in tuple(globals().values()):
    if (
        isinstance(_error, type)
        and issubclass(_error, BaseException)
        and _error.__module__ == __name__
    ):
        _error.__module__ = __name__.rpartition(".")[0]
