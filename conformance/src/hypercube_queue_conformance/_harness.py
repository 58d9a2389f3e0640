"""What the author of a driver implements so that the suite can drive it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, NoReturn, Self

from hypercube_queue import CAPABILITIES, Guarantees, Queue, TransactionalPusher

#: A backend that is slower is not prompt by any measure.
_MOST_PACE = 20
#: Ten times as many as the few that they are compared with.
_LEAST_BACKLOG = 1000


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Stands in the place of a hook that a harness cannot offer, and says why.

        restart = Unavailable("a process-local store has no backend to restart")

    The tests that need the hook are left out, and the report lists them with the reason.
    """

    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError("say why the hook is unavailable; the report prints it")

    def __call__(self, *args: object) -> NoReturn:
        raise TypeError(f"this hook is unavailable: {self.reason}")


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A queue over a client that stays the caller's, and a check that the client works."""

    queue: Queue
    client_works: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Silenceable:
    """A queue whose backend works until `silence` is called, and never answers again then.

    Connections stay open, and what is sent is accepted: so does a host that was cut off, or a
    server that hangs.
    """

    queue: Queue
    silence: Callable[[], None]
    #: The limit of the queue for one call; a few seconds.
    operation_timeout: timedelta


class Harness(ABC):
    """One namespace of a backend that nobody else uses: the suite makes a new one per test.

    A subclass declares what the driver promises, opens queues, and offers each hook of
    `HOOKS`, as a method or as `Unavailable`. It is made without arguments.
    """

    #: What the driver object promises. The suite compares it with the driver's own.
    guarantees: ClassVar[Guarantees]
    #: The capabilities of the driver: members of `hypercube_queue.CAPABILITIES`.
    capabilities: ClassVar[frozenset[type]]
    #: How much slower than a local store the backend is: short leases and the patience of the
    #: suite are multiplied by it. From 1 to 20.
    pace: ClassVar[float] = 1.0
    #: How long the suite waits for what must come before it says that it did not.
    patience: ClassVar[timedelta] = timedelta(seconds=10)
    #: How many messages stand behind a pop that must stay fast (POP-9); at least 1,000.
    backlog: ClassVar[int] = 10_000
    #: `advance` moves a clock that stands still otherwise.
    injected_clock: ClassVar[bool] = False

    #: Stop the backend and start it again with its data, as an operator would (LIFE-2).
    restart: Callable[[], None] | Unavailable
    #: Something picklable that another process calls to open a queue on this namespace, such
    #: as `functools.partial(open_queue, url)`. What it opens has a client of its own.
    opener: Callable[[], Callable[[], Queue]] | Unavailable
    #: A URL for `open_queue` that leads to this namespace (LIFE-3).
    url: Callable[[], str] | Unavailable
    #: A queue over a client of the caller's (LIFE-1, LIFE-4).
    borrow: Callable[[], Borrowed] | Unavailable
    #: A queue whose backend does not answer, with an `operation_timeout` of a few seconds
    #: (ERR-4, ERR-5).
    open_unreachable: Callable[[], Queue] | Unavailable
    #: A queue whose backend can be silenced, in a namespace of its own (ERR-5).
    open_silenceable: Callable[[], Silenceable] | Unavailable
    #: A queue that only a person can make work: with a wrong password, say, or in a database
    #: that does not exist (ERR-7).
    open_misconfigured: Callable[[], Queue] | Unavailable
    #: Store something in this queue, ready, that no release of the driver can read; return the
    #: bytes that a DeadLetter shows as `raw` (POP-8).
    insert_unreadable: Callable[[str], bytes] | Unavailable
    #: A context manager that gives a connection in a transaction, commits at its end and
    #: rolls back when an exception leaves it. Two of them may be open in two threads where
    #: there is an `opener`.
    transaction: Callable[[], AbstractContextManager[object]] | Unavailable = Unavailable(
        "the driver declares no TransactionalPusher"
    )
    #: The same in another database of the same kind, which has all that a push would need if it
    #: were the queue's (TXN-1).
    foreign_transaction: Callable[[], AbstractContextManager[object]] | Unavailable = transaction

    @classmethod
    def restartable(cls) -> Self:
        """A namespace for a test that calls `restart`.

        By default like any other. Where tests run beside each other, put it on a backend of
        its own, that the others do not miss; `close` is its end.
        """
        return cls()

    @abstractmethod
    def open(self, **options: timedelta) -> Queue:
        """A new driver object on this namespace, as another process would open one.

        `options` are `poll_timeout` and `visibility_timeout`, where they differ from the
        driver's defaults. The suite closes it.
        """

    def close(self) -> None:  # noqa: B027 - most namespaces have something to remove, not all
        """Remove the namespace. All queues are closed by now."""

    def advance(self, duration: timedelta) -> None:
        """Let time pass for the backend."""
        time.sleep(duration.total_seconds())

    @classmethod
    def missing(cls, hook: str) -> str | None:
        """Why the harness has no such hook, or None if it has it."""
        offered = getattr(cls, hook)
        return offered.reason if isinstance(offered, Unavailable) else None

    @classmethod
    def mistakes(cls) -> list[str]:
        """What is wrong with the declaration itself, before anything runs."""
        found = []
        if not isinstance(getattr(cls, "guarantees", None), Guarantees):
            found.append("guarantees is not declared: set it to a Guarantees object")
        declared = getattr(cls, "capabilities", None)
        if not isinstance(declared, frozenset):
            found.append("capabilities is not declared: set it to a frozenset, empty if none")
            declared = frozenset()
        if foreign := [each for each in declared if each not in CAPABILITIES]:
            found.append(f"capabilities names {foreign!r}; see hypercube_queue.CAPABILITIES")
        found += [
            f"{hook} is neither a method nor Unavailable('why')"
            for hook in HOOKS
            if not hasattr(cls, hook)
        ]
        if TransactionalPusher in declared:
            found += [
                f"a TransactionalPusher is declared, so {hook} must be a method"
                for hook in ("transaction", "foreign_transaction")
                if cls.missing(hook)
            ]
        guarantees = getattr(cls, "guarantees", None)
        if isinstance(guarantees, Guarantees) and hasattr(cls, "opener"):
            if guarantees.shared and cls.missing("opener"):
                found.append("guarantees.shared is declared, so opener must be a method")
            elif not guarantees.shared and not cls.missing("opener"):
                found.append("guarantees.shared is denied, and yet there is an opener")
        if not 1 <= cls.pace <= _MOST_PACE:
            found.append(f"pace is {cls.pace}; it is at least 1 and at most {_MOST_PACE}")
        if cls.backlog < _LEAST_BACKLOG:
            found.append(f"backlog is {cls.backlog}; fewer than {_LEAST_BACKLOG} show nothing")
        return found


#: What a harness offers or declares to be Unavailable.
HOOKS = (
    "restart",
    "opener",
    "url",
    "borrow",
    "open_unreachable",
    "open_silenceable",
    "open_misconfigured",
    "insert_unreadable",
    "transaction",
    "foreign_transaction",
)
