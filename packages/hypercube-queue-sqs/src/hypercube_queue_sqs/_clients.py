"""The boto3 clients of a queue object."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from botocore.config import Config  # type: ignore[import-untyped]  # it ships no types

from hypercube_queue import InvalidArgument
from hypercube_queue_sqs.__about__ import __version__
from hypercube_queue_sqs._ids import IDStore

#: The longest poll that SQS takes.
LONGEST_POLL = timedelta(seconds=20)
#: As many polls wait at once before connections are thrown away after use.
_MOST_POLLS = 256

Client: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Opened:
    """What was opened for one process."""

    sqs: Client
    #: The same service, for requests that wait for long.
    polls: Client
    ids: IDStore | None
    #: Closes all that is this object's own.
    close: Callable[[], None]


class Clients:
    """Opens them when they are first used, since that may ask the network for credentials."""

    def __init__(self, make: Callable[[], Opened]) -> None:
        self._make = make
        self._opening = threading.Lock()
        self._opened: Opened | None = None
        self._users = 0

    def get(self) -> Opened:
        """Raises what boto3 raises, and InvalidArgument."""
        if self._opened is None:
            with self._opening:
                if self._opened is None:
                    self._opened = self._made()
        return self._opened

    def _made(self) -> Opened:
        try:
            return self._make()
        except ValueError as error:
            raise InvalidArgument(f"boto3 takes no such settings: {error}") from error

    def anew(self) -> Clients:
        """The same for another process, which must not use these."""
        return Clients(self._make)

    def used_by(self, count: int) -> None:
        """So many have to be done with them before they are closed."""
        self._users = count

    def done(self) -> None:
        """One of the users is done with them."""
        with self._opening:
            self._users -= 1
            opened = None if self._users else self._opened
        if opened is not None:
            opened.close()


def config(connections: int, operation_timeout: timedelta) -> Config:
    """Of a client for requests that are answered at once."""
    return _config(connections, operation_timeout)


def polling_config(operation_timeout: timedelta) -> Config:
    """Of a client for polls."""
    return _config(_MOST_POLLS, operation_timeout, wait=LONGEST_POLL)


def id_config(connections: int, operation_timeout: timedelta) -> Config:
    """Of a DynamoDB client; what an IDStore asks can be asked again."""
    return _config(connections, operation_timeout, attempts=3)


def _config(
    connections: int,
    operation_timeout: timedelta,
    *,
    wait: timedelta = timedelta(0),
    attempts: int = 1,
) -> Config:
    return Config(
        # Sooner than the caller gives up, so that it is told that nothing was sent.
        connect_timeout=operation_timeout.total_seconds() / 2,
        read_timeout=(wait + operation_timeout).total_seconds(),
        # What boto3 repeats by itself it may do twice, and nobody would know.
        retries={"total_max_attempts": attempts, "mode": "standard"},
        max_pool_connections=connections,
        tcp_keepalive=True,
        user_agent_extra=f"hypercube-queue-sqs/{__version__}",
    )
