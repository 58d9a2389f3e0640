"""What a plugin declares, checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from packaging import requirements
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from hypercube_plugins._errors import InvalidPlugin, ReservedName
from hypercube_plugins._plugin import AsyncPlugin, Plugin

#: As names of distributions. (The check of older releases of packaging lets a line end pass.)
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.ASCII | re.IGNORECASE)

#: What no plugin may be called: errors and commands mean something else by these.
RESERVED_NAMES = frozenset({"application", "hypercube"})


@dataclass(frozen=True, slots=True)
class Requirement:
    """Another plugin that one needs, in some versions of it."""

    #: As it is written, such as `mail>=1.2,<2`.
    text: str
    #: What the name is compared by.
    key: NormalizedName
    versions: SpecifierSet

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Declaration:
    """A plugin as others see it."""

    #: As the plugin writes it.
    name: str
    version: Version
    requires: tuple[Requirement, ...] = ()

    @property
    def key(self) -> NormalizedName:
        """What the name is compared by."""
        return canonicalize_name(self.name)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def declared(plugin: Plugin | AsyncPlugin) -> Declaration:
    """What a plugin declares. Raises InvalidPlugin."""
    if not isinstance(plugin, Plugin | AsyncPlugin):
        remedy = "; add an object of it" if inspect.isclass(plugin) else ""
        what = plugin.__name__ if inspect.isclass(plugin) else type(plugin).__name__
        raise InvalidPlugin(
            f"a plugin is an object of a subclass of Plugin or AsyncPlugin, not {what}{remedy}"
        )
    who = type(plugin).__qualname__
    name = _declared_text(plugin, who, "name", "mail")
    if not _NAME.fullmatch(name):
        raise InvalidPlugin(
            f"{who} has the name {name!r}; a name consists of letters, digits, and -, _ or . "
            "between them"
        )
    key = canonicalize_name(name)
    if key in RESERVED_NAMES:
        raise ReservedName(f"{who} has the name {name!r}, which no plugin may have; take another")
    text = _declared_text(plugin, who, "version", "1.2.0")
    try:
        version = Version(text)
    except InvalidVersion:
        raise InvalidPlugin(
            f"the plugin {name} has the version {text!r}, which is none of PEP 440, such as 1.2.0"
        ) from None
    requires = parsed(f"the plugin {name}", plugin.requires)
    plain = ("register",) if isinstance(plugin, AsyncPlugin) else ("register", "boot", "shutdown")
    for method in plain:
        if inspect.iscoroutinefunction(getattr(plugin, method)):
            remedy = (
                "it only declares, so let boot do what has to wait"
                if method == "register"
                else "derive it from AsyncPlugin"
            )
            raise InvalidPlugin(f"{method} of the plugin {name} is a coroutine function; {remedy}")
    return Declaration(name, version, requires)


def parsed(who: str, requires: Sequence[str]) -> tuple[Requirement, ...]:
    """The requirements that somebody declares. Raises InvalidPlugin."""
    if isinstance(requires, str) or not isinstance(requires, Sequence):
        raise InvalidPlugin(
            f"{who} requires {requires!r}; write a list or tuple, such as ('mail>=1.2,<2',)"
        )
    return tuple(_parsed_one(who, text) for text in requires)


def _parsed_one(who: str, text: object) -> Requirement:
    example = "a requirement is a name and versions, such as 'mail>=1.2,<2'"
    if not isinstance(text, str):
        raise InvalidPlugin(f"{who} requires {text!r}; {example}")
    try:
        requirement = requirements.Requirement(text)
    except requirements.InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise InvalidPlugin(f"{who} requires {text!r}; {example} ({reason})") from None
    if requirement.extras or requirement.marker or requirement.url:
        raise InvalidPlugin(f"{who} requires {text!r}; {example}, without extras, markers or URLs")
    return Requirement(text.strip(), canonicalize_name(requirement.name), requirement.specifier)


def _declared_text(plugin: object, who: str, attribute: str, example: str) -> str:
    value = getattr(plugin, attribute, None)
    if value is None:
        raise InvalidPlugin(f"{who} declares no {attribute}; write {attribute} = {example!r}")
    if not isinstance(value, str):
        raise InvalidPlugin(
            f"the {attribute} of {who} is a str such as {example!r}, not {type(value).__name__}"
        )
    return value
