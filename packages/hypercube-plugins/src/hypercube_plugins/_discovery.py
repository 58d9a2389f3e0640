"""Finding the plugins that installed distributions offer."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from packaging.utils import NormalizedName, canonicalize_name

from hypercube_plugins._declaration import declared
from hypercube_plugins._errors import DuplicatePlugin, InvalidPlugin
from hypercube_plugins._plugin import AsyncPlugin, Plugin

#: Distributions register `name = "module:attribute"` here: a plugin, its class, or a function
#: that returns one.
ENTRY_POINT_GROUP = "hypercube.plugins"


@dataclass(frozen=True, slots=True)
class Unloaded:
    """A plugin that is installed and could not be loaded."""

    name: str
    #: Where it is to be found: `shop_mail:Mail of shop-mail 1.2`.
    origin: str
    error: Exception


@dataclass(slots=True)
class Discovery:
    """What was found, by the names of entry points."""

    #: Each with its origin.
    plugins: list[tuple[Any, str]] = field(default_factory=list)
    unloaded: list[Unloaded] = field(default_factory=list)
    #: Names that `allow` or `deny` kept out, which were not even imported.
    excluded: list[str] = field(default_factory=list)


def discovered(
    allow: Collection[str] | None, deny: Collection[str], present: Collection[NormalizedName]
) -> Discovery:
    """Load the plugins of the group, in the order of their names, but for those present.

    Raises InvalidPlugin for lists that are none, DuplicatePlugin where two distributions offer
    different plugins under one name.
    """
    allowed = None if allow is None else _keys("allow", allow)
    denied = _keys("deny", deny)
    found = Discovery()
    for key, points in sorted(_offers().items()):
        name = points[0].name
        if key in present:
            continue
        if key in denied or (allowed is not None and key not in allowed):
            found.excluded.append(name)
            continue
        if len(points) > 1:
            raise DuplicatePlugin(
                f"several distributions offer a plugin {name!r}: "
                f"{', '.join(map(_origin, points))}; uninstall all but one, or deny the name"
            )
        try:
            found.plugins.append((_loaded(points[0]), _origin(points[0])))
        except Exception as error:  # noqa: BLE001  # it runs foreign code; setup() reports it
            found.unloaded.append(Unloaded(name, _origin(points[0]), error))
    return found


def _offers() -> dict[NormalizedName, list[EntryPoint]]:
    """The entry points by name. The same one found twice on the path counts once."""
    offers: dict[NormalizedName, dict[str, EntryPoint]] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        offers.setdefault(canonicalize_name(point.name), {}).setdefault(point.value, point)
    return {key: list(points.values()) for key, points in offers.items()}


def _loaded(point: EntryPoint) -> Plugin | AsyncPlugin:
    value = point.load()
    plugin = value if isinstance(value, Plugin | AsyncPlugin) or not callable(value) else value()
    name = declared(plugin).name
    if canonicalize_name(name) != canonicalize_name(point.name):
        raise InvalidPlugin(f"its entry point is named {point.name!r}, and the plugin {name!r}")
    loaded: Plugin | AsyncPlugin = plugin
    return loaded


def _origin(point: EntryPoint) -> str:
    if point.dist is None:
        return point.value
    return f"{point.value} of {point.dist.name} {point.dist.version}"


def _keys(option: str, names: Collection[str]) -> set[NormalizedName]:
    if isinstance(names, str) or inspect.isclass(names):
        raise InvalidPlugin(f"{option} is a list of names, such as [{str(names)!r}]")
    return {canonicalize_name(name) for name in names}
