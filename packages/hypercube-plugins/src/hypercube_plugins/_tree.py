"""Plugins and their requirements, for people: as a tree and as a Mermaid diagram."""

from __future__ import annotations

from collections.abc import Sequence

from hypercube_plugins._declaration import Declaration


def tree(order: Sequence[Declaration]) -> str:
    """The plugins in their order, each with its requirements.

    mail 1.2.0
    shop 2.0
    ├── mail>=1.2 (1.2.0)
    └── templates (3.1)
    """
    versions = {each.key: each.version for each in order}
    lines = []
    for each in order:
        lines.append(str(each))
        for number, requirement in enumerate(each.requires, start=1):
            branch = "└──" if number == len(each.requires) else "├──"
            lines.append(f"{branch} {requirement} ({versions[requirement.key]})")
    return "\n".join(lines)


def mermaid(order: Sequence[Declaration]) -> str:
    """A flowchart with an arrow from each plugin to each that it requires."""
    nodes = {each.key: f"p{number}" for number, each in enumerate(order)}
    lines = ["flowchart TD"]
    lines += [f'    {nodes[each.key]}["{each}"]' for each in order]
    for each in order:
        for requirement in each.requires:
            label = f'|"{requirement.versions}"|' if requirement.versions else ""
            lines.append(f"    {nodes[each.key]} -->{label} {nodes[requirement.key]}")
    return "\n".join(lines)
