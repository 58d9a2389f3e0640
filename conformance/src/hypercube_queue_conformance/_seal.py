"""Whether the suite in memory is still the one that was imported."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import ModuleType

_PACKAGE = __name__.rpartition(".")[0]

#: What each part of the suite was when it was sealed.
_sealed: dict[str, object] = {}


def seal() -> None:
    """Remember the suite as it is now: its functions, its classes, and its numbers."""
    _sealed.update(_parts())


def broken() -> list[str]:
    """The names of what was exchanged since."""
    present = dict(_parts())
    return [name for name, part in _sealed.items() if present.get(name) != part]


def _parts() -> Iterator[tuple[str, object]]:
    for module_name, module in sorted(sys.modules.items()):
        if module_name.startswith(f"{_PACKAGE}.") and isinstance(module, ModuleType):
            yield from _members(module_name, vars(module))


def _members(owner: str, members: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in list(members.items()):
        if inspect.isfunction(value):
            # A function keeps its identity when its code is exchanged.
            yield f"{owner}.{name}", (id(value), id(value.__code__), value.__defaults__)
        elif inspect.isclass(value):
            yield f"{owner}.{name}", id(value)
            if value.__module__ == owner:
                yield from _members(f"{owner}.{name}", vars(value))
        elif isinstance(value, int | float | timedelta):
            yield f"{owner}.{name}", value
        elif isinstance(value, property):
            yield f"{owner}.{name}", id(value)
