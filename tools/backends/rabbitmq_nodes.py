"""What is done to single nodes of a RabbitMQ cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tools.backends.instance import Server
from tools.backends.rabbitmq import COOKIE, node_name

#: Seconds for one command; a machine that is busy needs some of them for the interpreter alone.
_PATIENCE = 60


def cut_off(node: Server, others: Sequence[Server]) -> None:
    """Part a node from the others of its cluster; clients reach all of them as before.

    To the node and to the others it looks like a partition of the network: their connections end,
    and no new ones are accepted.
    """
    _set_cookie(node, others, "another")
    _evaluate(node, *(f"erlang:disconnect_node('{node_name(each.port)}')" for each in others))


def join(node: Server, others: Sequence[Server]) -> None:
    """Let a node that was cut off reach the others again."""
    _set_cookie(node, others, COOKIE)
    _evaluate(node, *(f"net_adm:ping('{node_name(each.port)}')" for each in others))


def _set_cookie(node: Server, others: Sequence[Server], cookie: str) -> None:
    _evaluate(
        node, *(f"erlang:set_cookie('{node_name(each.port)}', '{cookie}')" for each in others)
    )


def _evaluate(node: Server, *expressions: str) -> None:
    code = ", ".join(expressions)
    subprocess.run(
        ["docker", "exec", node.handle["container"], "rabbitmqctl", "eval", f"{code}."],
        check=True,
        capture_output=True,
        timeout=_PATIENCE,
    )
