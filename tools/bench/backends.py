"""What can be measured, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tools.bench import stores
from tools.bench.stores import Store


@dataclass(frozen=True)
class Backend:
    """One configuration of a driver."""

    fresh: Callable[[], AbstractContextManager[Store]]
    #: The server it needs, by its name in tools.backends.
    server: str = ""
    #: The longer one of the two backlogs of ready messages whose pops are compared.
    deep: int = 100_000
    #: How many dead letters lie beside the third one.
    dead: int = 100_000
    #: Whether another process can open the same queue.
    shared: bool = True
    #: How many messages a push or a pop has, each of them beside the raw limit.
    batches: Sequence[int] = (1, 100)


def _rabbitmq(server: str, queue_type: str = "quorum") -> Backend:
    return Backend(
        lambda: stores.rabbitmq(server, queue_type), server=server, batches=(1, 100, 1_000)
    )


BACKENDS: dict[str, Backend] = {
    "memory": Backend(stores.memory, shared=False),
    "sqlite": Backend(lambda: stores.sqlite("FULL")),
    "sqlite-normal": Backend(lambda: stores.sqlite("NORMAL")),
    "postgresql": Backend(stores.postgresql, server="postgres"),
    "mysql": Backend(lambda: stores.mysql("mysql"), server="mysql"),
    "mariadb": Backend(lambda: stores.mysql("mariadb"), server="mariadb"),
    "redis": Backend(lambda: stores.redis("redis"), server="redis", deep=1_000_000),
    "sqs": Backend(stores.sqs_on_ministack, server="ministack", deep=2_000, dead=2_000),
    "sqs-20ms": Backend(lambda: stores.sqs_with_delay(0.02), deep=2_000, dead=2_000),
    "valkey": Backend(lambda: stores.redis("valkey"), server="valkey", deep=1_000_000),
    "rabbitmq": _rabbitmq("rabbitmq"),
    "rabbitmq-classic": _rabbitmq("rabbitmq", "classic"),
    "rabbitmq-4.0": _rabbitmq("rabbitmq-4.0"),
}
