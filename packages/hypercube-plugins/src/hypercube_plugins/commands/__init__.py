"""Commands that plugins contribute. Needs typer: `hypercube-plugins[commands]`."""

from __future__ import annotations

from hypercube_plugins.commands._commands import CommandGroup, Commands

__all__ = ["CommandGroup", "Commands"]
