"""What failovers of a RabbitMQ cluster cost, measured on three real nodes.

    python -m tools.rabbitmq_failovers            # prints the table
    python -m tools.rabbitmq_failovers --write    # writes it between the markers of its document
    python -m tools.rabbitmq_failovers killed     # only what has this word in its name

One thread pushes without a pause, through one queue object, while something is done to the node
that it is connected to, and another one pops and acknowledges before and afterwards. It fails if
the objects do not work again by themselves, or if a message is lost.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tools.backends import exclusive, servers
from tools.backends.rabbitmq_nodes import cut_off, join
from tools.backends.traffic import PATIENCE, Traffic, with_table

_KIND = "rabbitmq-cluster"
_DOCUMENT = Path(__file__).resolve().parent.parent / "docs/backends.md"
_TABLE = "rabbitmq-failovers"

#: Seconds that a call may take.
_OPERATION_TIMEOUT = 5


def _kill(place: Any, traffic: Traffic) -> None:
    first = place.nodes[0]
    first.kill()
    traffic.wait_for_pushes()
    first.start()


def _stop(place: Any, traffic: Traffic) -> None:
    first = place.nodes[0]
    first.stop()
    traffic.wait_for_pushes()
    first.start()


def _restart_in_turn(place: Any, traffic: Traffic) -> None:
    for node in place.nodes:
        node.restart()
        traffic.wait_for_pushes()


def _cut_off(place: Any, traffic: Traffic) -> None:
    first, *others = place.nodes
    cut_off(first, others)
    try:
        traffic.wait_for_pushes()
    finally:
        join(first, others)


@dataclass(frozen=True)
class Case:
    """Something that happens to the nodes."""

    what: str
    do: Callable[[Any, Traffic], None]


_CASES = (
    Case("the client's node killed, and started again", _kill),
    Case("the client's node stopped in good order, and started again", _stop),
    Case("the client's node cut off from the two others, and joined again", _cut_off),
    Case("all three restarted in turn", _restart_in_turn),
)


def run(case: Case) -> str:
    """The row of a case; raises SystemExit where something was lost."""
    # All connections begin with the first node.
    with exclusive(_KIND) as place, patch("random.randrange", return_value=0):
        hosts = ",".join(f"{node.host}:{node.port}" for node in place.nodes)
        url = place.url("amqp", prefix="failovers.", operation_timeout=_OPERATION_TIMEOUT)
        traffic = Traffic(url.replace(f"{place.host}:{place.port}", hosts))
        with ThreadPoolExecutor(2) as threads:
            working = [threads.submit(traffic.push), threads.submit(traffic.pop)]
            try:
                traffic.popping.set()
                traffic.wait_for_pushes()
                traffic.popping.clear()
                begun = time.monotonic()
                case.do(place, traffic)
                traffic.wait_for_pushes()
            finally:
                traffic.done.set()
                traffic.popping.set()
            for each in working:
                each.result(PATIENCE)
    if strange := traffic.received.keys() - traffic.pushed.keys() - traffic.doubtful:
        raise SystemExit(f"{case.what}: {len(strange)} messages were received that nobody pushed")
    if traffic.lost:
        raise SystemExit(f"{case.what}: {traffic.lost} messages are lost")
    cells = (
        case.what,
        f"{traffic.standstill(begun):.1f} s",
        f"{traffic.lost} of {len(traffic.pushed):,}",
        str(len(traffic.back)),
        str(len(traffic.doubtful)),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="The table of failovers of RabbitMQ.")
    parser.add_argument("words", nargs="*", help="only cases with one of these in their names")
    parser.add_argument("--write", action="store_true", help="write it into docs/backends.md")
    arguments = parser.parse_args()
    cases = [
        case
        for case in _CASES
        if not arguments.words or any(word.lower() in case.what for word in arguments.words)
    ]
    rows = [
        "| what was done | no push succeeded for | lost | came back | unknown outcomes |",
        "| --- | --- | --- | --- | --- |",
    ]
    with servers(_KIND):
        for case in cases:
            row = run(case)
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
    table = "\n".join(rows)
    print(table)
    if arguments.write:
        text = with_table(_DOCUMENT.read_text(), table, _TABLE)
        _DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
