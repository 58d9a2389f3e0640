"""How commands tell what went wrong."""

from __future__ import annotations

import sys


def say(what: object) -> None:
    """A line, or a few, to standard error, without what a terminal would act on."""
    lines = (
        "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
        for line in str(what).splitlines()
    )
    sys.stderr.write("hypercube: " + "\n".join(lines) + "\n")
