"""What failovers of a RabbitMQ cluster cost, measured on three real nodes.

    python -m tools.rabbitmq_failovers            # prints the table
    python -m tools.rabbitmq_failovers --write    # writes it between the markers of its document
    python -m tools.rabbitmq_failovers killed     # only what has this word in its name

One thread pushes without a pause, through one queue object, while something is done to the node
that it is connected to, and another one pops and acknowledges before and afterwards. It fails if
the objects do not work again by themselves, or if a message is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tools.backends import exclusive, servers
from tools.backends.rabbitmq_nodes import cut_off, join
from tools.backends.traffic import Arguments, Traffic, report

_KIND = "rabbitmq-cluster"
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
        begun = traffic.endure(lambda: case.do(place, traffic))
    return traffic.row(case.what, begun, len(traffic.doubtful))


def main() -> None:
    arguments = Arguments.parse("The table of failovers of RabbitMQ.")
    cases = [case for case in _CASES if arguments.names(case.what)]
    with servers(_KIND):
        report(map(run, cases), _TABLE, write=arguments.write, more=" unknown outcomes |")


if __name__ == "__main__":
    main()
