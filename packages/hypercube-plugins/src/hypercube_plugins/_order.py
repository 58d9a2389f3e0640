"""Whether plugins fit together, and in which order they start."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName, canonicalize_name

from hypercube_plugins._declaration import Declaration, Requirement
from hypercube_plugins._errors import DependencyCycle, Unmet, UnmetRequirements

#: Who needs what `Application(requires=...)` lists.
THE_APPLICATION = "the application"


@dataclass(frozen=True, slots=True)
class Absent:
    """A plugin that is known, but not here."""

    name: str
    #: Why, to be read after "X needs Y,".
    reason: str
    #: Whether the application needs it, even if no plugin does.
    needed: bool


def resolved(
    declarations: Sequence[Declaration],
    required: Sequence[Requirement] = (),
    absent: Sequence[Absent] = (),
) -> list[Declaration]:
    """The plugins, each after all that it requires.

    Of those whose requirements are placed, the one that was added first comes next: an order
    that is right already stays as it is. `required` is what the application itself needs. Names
    are taken to be different. Takes time in proportion to plugins and requirements, but for a
    logarithm.

    Raises UnmetRequirements with all that is missing or incompatible, and DependencyCycle.
    """
    found = {each.key: index for index, each in enumerate(declarations)}
    missing = {canonicalize_name(each.name): each for each in absent}
    unmet = list(_unmet(declarations, required, found, missing))
    if unmet:
        raise UnmetRequirements(unmet)
    needs = [{found[requirement.key] for requirement in each.requires} for each in declarations]
    order = _sorted(needs)
    if len(order) < len(declarations):
        path = _cycle(needs, order)
        raise DependencyCycle([declarations[index].name for index in path])
    return [declarations[index] for index in order]


def _unmet(
    declarations: Sequence[Declaration],
    required: Sequence[Requirement],
    found: Mapping[NormalizedName, int],
    absent: Mapping[NormalizedName, Absent],
) -> Iterator[Unmet]:
    wanted = [(THE_APPLICATION, requirement) for requirement in required]
    wanted += [(str(each), requirement) for each in declarations for requirement in each.requires]
    named = {requirement.key for _, requirement in wanted}
    for key, each in absent.items():
        if each.needed and key not in named and key not in found:
            yield Unmet(THE_APPLICATION, each.name, None, each.reason)
    for needed_by, requirement in wanted:
        index = found.get(requirement.key)
        if index is None:
            known = absent.get(requirement.key)
            reason = "which is not here" if known is None else known.reason
            yield Unmet(needed_by, str(requirement), None, reason)
            continue
        other = declarations[index]
        # What is installed is what somebody chose, be it a pre-release.
        if not requirement.versions.contains(other.version, prereleases=True):
            yield Unmet(needed_by, str(requirement), str(other.version), f"but {other} is here")


def _sorted(needs: Sequence[set[int]]) -> list[int]:
    """Positions, each after all it needs; without those that a cycle holds up."""
    needed_by: list[list[int]] = [[] for _ in needs]
    for index, others in enumerate(needs):
        for other in others:
            needed_by[other].append(index)
    open_needs = [len(others) for others in needs]
    ready = [index for index, count in enumerate(open_needs) if not count]  # sorted, so a heap
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for dependent in needed_by[index]:
            open_needs[dependent] -= 1
            if not open_needs[dependent]:
                heapq.heappush(ready, dependent)
    return order


def _cycle(needs: Sequence[set[int]], order: Sequence[int]) -> list[int]:
    """The first cycle on the way down from the first position that is not in `order`.

    Each position left over needs another one left over, so the way ends where it was before.
    """
    placed = set(order)
    index = next(index for index in range(len(needs)) if index not in placed)
    way: dict[int, int] = {}
    while index not in way:
        way[index] = len(way)
        index = min(needs[index] - placed)
    cycle = list(way)[way[index] :]
    first = cycle.index(min(cycle))
    cycle = cycle[first:] + cycle[:first]
    return [*cycle, cycle[0]]
