"""How long it takes to resolve and to start many plugins.

    python resolve.py 1000

The times are those of this machine.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

from hypercube_plugins import Application, Plugin

#: How many others each plugin requires.
REQUIREMENTS = 5
#: The best of so many runs is told: the others had a busier machine.
RUNS = 5


class Sample(Plugin):
    """A plugin that requires some others."""

    version = "1.2.3"

    def __init__(self, number: int, needs: list[int]) -> None:
        self.name = f"plugin-{number}"
        self.requires = [f"plugin-{need}>=1.2,<2" for need in needs]


def shuffled(count: int) -> list[Plugin]:
    """Plugins without cycles, in an order of their own; the same at each call."""
    chance = random.Random(count)  # noqa: S311  # nothing is secret here
    numbers = list(range(count))
    chance.shuffle(numbers)
    plugins: list[Plugin] = [
        Sample(number, chance.sample(numbers[:place], min(place, REQUIREMENTS)))
        for place, number in enumerate(numbers)
    ]
    chance.shuffle(plugins)
    return plugins


def chained(count: int) -> list[Plugin]:
    """Plugins that each require the next one."""
    return [Sample(number, [number + 1] if number + 1 < count else []) for number in range(count)]


def best(action: Callable[[], object]) -> float:
    """The shortest time of some runs, in milliseconds."""
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        action()
        times.append((time.perf_counter() - begin) * 1000)
    return min(times)


def measure(name: str, make: Callable[[int], list[Plugin]], count: int) -> None:
    """Print what one set of plugins takes."""
    plugins = make(count)
    application = Application(*plugins)

    def start() -> None:
        with Application(*plugins):
            pass

    added = best(lambda: Application(*plugins))
    ordered = best(application.order)
    sys.stdout.write(
        f"{count:,} plugins, {name}: added in {added:.0f} ms, ordered in {ordered:.0f} ms, "
        f"all of add, setup, boot and shutdown in {best(start):.0f} ms\n"
    )


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    measure(f"{REQUIREMENTS} requirements each", shuffled, number)
    measure("a chain", chained, number)
