"""Rates of the drivers and the worker beside the raw limit, measured in one run.

    nox -s bench -- memory sqlite            # --quick for a tenth of the work
    nox -s bench -- redis valkey
    nox -s bench -- rabbitmq rabbitmq-classic rabbitmq-4.0
    nox -s bench -- postgresql --peers       # other queues on the same server, in turns

Prints ratios and asserts nothing: machines differ and are noisy.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from tools.backends import server, servers
from tools.bench.backends import BACKENDS, Backend
from tools.bench.comparison import Standing, compare
from tools.bench.contestants import PEERS
from tools.bench.measures import Figure, measure
from tools.bench.published import PUBLISHED

#: Columns that the widest table takes.
_WIDTH = 100


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "backends",
        nargs="*",
        choices=list(BACKENDS),
        default=[name for name, backend in BACKENDS.items() if not backend.server],
        help="by default those that need no server",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument(
        "--install-servers", action="store_true", help="as in the tests, where one is missing"
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="compare workers with those of other queues on the same server, which is all then",
    )
    arguments = parser.parse_args()
    console = Console()
    console.width = max(console.width, _WIDTH)
    console.print(f"Python {platform.python_version()}, medians")
    needed = [BACKENDS[name].server for name in arguments.backends if BACKENDS[name].server]
    with servers(*needed, install=arguments.install_servers):
        for name in arguments.backends:
            scale = 0.1 if arguments.quick else 1.0
            title = _title(name, BACKENDS[name])
            if arguments.peers:
                peers = PEERS.get(name, ())
                console.print(_standings(title, compare(BACKENDS[name], peers, scale=scale)))
                continue
            console.print(_figures(title, list(measure(BACKENDS[name], scale=scale))))
            for line in PUBLISHED.get(name, ()):
                console.print(f"  peers, measured elsewhere, {line}")


def _title(name: str, backend: Backend) -> str:
    return f"{name} ({server(backend.server).description})" if backend.server else name


def _figures(title: str, figures: Sequence[Figure]) -> Table:
    table = Table("what", "", "", "of raw", title=title, title_justify="left")
    for figure in figures:
        of_raw = "" if figure.of_raw is None else f"{figure.of_raw:.2f}"
        table.add_row(figure.name, _shown(figure.value), figure.unit, of_raw)
    return table


def _standings(title: str, standings: Sequence[Standing]) -> Table:
    columns = ("jobs/s", "enqueue one", "enqueue bulk", "drain", "we drain", "delivery")
    table = Table(*columns, title=title, title_justify="left")
    for each in standings:
        bulk = "-" if each.bulk is None else _shown(each.bulk)
        rates = (_shown(each.singly), bulk, _shown(each.drain))
        table.add_row(each.title, *rates, f"{each.ratio:.2f} x", each.delivery)
    return table


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    main()
