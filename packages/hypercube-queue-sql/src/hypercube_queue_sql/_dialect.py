"""What a database has to offer to be a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue import Guarantees
from hypercube_queue.driver import Deadline, PushItem
from hypercube_queue_sql._delivery import Settled
from hypercube_queue_sql._rows import Row
from hypercube_queue_sql._wakeups import Wakeups

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Claim:
    """A request for visible messages: at most `limit`, and no more once they reach `max_bytes`."""

    queue_name: str
    limit: int
    max_bytes: int
    #: The lease of messages that name none of their own, in microseconds.
    visibility_us: int
    #: The owner of what is claimed.
    token: int


class Dialect(Protocol):
    """One database, spoken to in its own words; `SQLQueue` is the same for all.

    Methods that take a cursor run inside `read`, `write` or `within`. Moments are the
    database's own, taken when it holds the locks it needs. All but the last group raise the
    errors of the contract, never those of a client.
    """

    @property
    def guarantees(self) -> Guarantees: ...

    @property
    def wakeups(self) -> Wakeups: ...

    @property
    def poll_seconds(self) -> float:
        """How long a waiting pop may sleep without looking; it sleeps for less at first."""
        ...

    @property
    def hears(self) -> bool:
        """Whether `wakeups` is told of all that is stored at present, by other processes, too."""
        ...

    # Wake-ups

    def listen(self) -> None:
        """See to it that `wakeups` hears of other processes, before a pop sleeps."""
        ...

    def stored(self, queue_name: str, count: int) -> None:
        """Wake those who wait for so many messages, here and elsewhere."""
        ...

    def stored_within(self, cursor: DBAPICursor, queue_name: str, count: int) -> None:
        """The same in a transaction of the caller's, to take effect when it commits."""
        ...

    # Transactions

    def create_tables(self) -> None:
        """Create what is missing; safe when several processes do."""

    def create_nothing(self) -> None:
        """Create nothing from now on, but by `create_tables`."""
        ...

    def creation_statements(self) -> list[str]:
        """What creates all of it."""
        ...

    def read(self, work: Callable[[DBAPICursor], R]) -> R:
        """Run `work`, which only reads. It may run again, so it changes nothing outside."""
        ...

    def write(
        self,
        work: Callable[[DBAPICursor], R],
        *,
        items: Sequence[PushItem] | Sequence[Settled] = (),
        end: Deadline | None = None,
    ) -> R:
        """Run `work`, which changes these items, and commit, by `end`.

        It may run again, as in `read`. Whatever is raised, nothing was changed, unless it is a
        BackendError that says so.
        """
        ...

    def within(self, connection: object, work: Callable[[DBAPICursor], R]) -> R:
        """Run `work` once in the transaction that `connection` is in, and leave it open.

        Raises InvalidArgument for a connection of another kind or database, or with no
        transaction to join.
        """
        ...

    def shares_database(self, connection: object) -> bool:
        """Whether `within` would find the queue's database in this connection; begins nothing."""
        ...

    def check_connection(self, connection: object) -> None:
        """Raise InvalidArgument if `within` would not take the connection. Contacts nobody."""
        ...

    # Lifecycle

    def close(self) -> None:
        """Close the connections, if the engine is the queue's own."""
        ...

    @property
    def in_child(self) -> Callable[[], None] | None:
        """What a Gate calls in a forked child."""
        ...

    # Pop

    def take(self, claim: Claim, end: Deadline) -> tuple[list[Row], float | None]:
        """Lease what is visible, in order, and commit, by `end`.

        A row's `visible_at` is the old one. With no rows comes the number of seconds until
        something becomes visible by itself, None if nothing will; not more than zero says
        that something is and others are about to take it.
        """
        ...

    # Statements

    def max_message_bytes(self, end: Deadline) -> int | None:
        """As in `Guarantees`, where only the server knows; it is asked once, by `end`."""
        ...

    def insert(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        """Store the items; return those whose ids are retained."""
        ...

    def insert_within(self, cursor: DBAPICursor, items: Sequence[PushItem]) -> list[PushItem]:
        """The same in a transaction of the caller's, which may go on for long."""
        ...

    def set_aside(self, cursor: DBAPICursor, faults: Sequence[tuple[int, str]], token: int) -> None:
        """Make dead what `token` has leased and cannot be read: pairs of `seq` and reason."""
        ...

    # Settlements: each returns the items that do not own their messages.

    def ack(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]: ...

    def retry(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]: ...

    def dead_letter(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]: ...

    def extend_visibility(
        self, cursor: DBAPICursor, items: Sequence[Settled], extension_us: int
    ) -> list[Settled]: ...

    def release(self, cursor: DBAPICursor, items: Sequence[Settled]) -> list[Settled]: ...

    # The rest of the capabilities

    def redrive(self, cursor: DBAPICursor, queue_name: str, count: int) -> int: ...

    def redrive_ids(self, cursor: DBAPICursor, queue_name: str, ids: Sequence[str]) -> int: ...

    def forget(self, cursor: DBAPICursor, queue_name: str, ids: Sequence[str]) -> int: ...

    def dead_letters(
        self, cursor: DBAPICursor, queue_name: str, limit: int, before: tuple[int, int] | None
    ) -> list[Row]:
        """The newest deaths before the pair of `visible_at` and `seq`."""
        ...

    def queues(self, cursor: DBAPICursor) -> list[bytes]: ...

    def stats(self, cursor: DBAPICursor, queue_name: str) -> tuple[int, int, int, int]:
        """Ready, delayed, in flight and dead."""
        ...
