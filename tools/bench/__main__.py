"""Rates of the drivers and the worker beside the raw limit, measured in one run.

    nox -s bench -- memory sqlite            # --quick for a tenth of the work

Prints ratios and asserts nothing: machines differ and are noisy.
"""

from __future__ import annotations

import argparse
import platform

from rich.console import Console
from rich.table import Table

from backends import BACKENDS
from measures import Figure, measure
from peers import PEERS


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument("backends", nargs="*", choices=list(BACKENDS), default=list(BACKENDS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    arguments = parser.parse_args()
    console = Console()
    console.print(f"Python {platform.python_version()}, medians")
    for name in arguments.backends:
        figures = Table("what", "", "", "of raw", title=name, title_justify="left")
        for figure in measure(BACKENDS[name], scale=0.1 if arguments.quick else 1.0):
            figures.add_row(*_row(figure))
        console.print(figures)
        for line in PEERS.get(name, ()):
            console.print(f"  peers, measured elsewhere, {line}")


def _row(figure: Figure) -> tuple[str, str, str, str]:
    value = f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.2f}"
    of_raw = "" if figure.of_raw is None else f"{figure.of_raw:.2f}"
    return figure.name, value, figure.unit, of_raw


main()
