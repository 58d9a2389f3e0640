"""Which database a connection leads to, and whether it is the queue's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from hypercube_queue import InvalidArgument
from hypercube_queue_sql._joined import Joined

#: Where the record of a pooled connection keeps it.
_KEY = "hypercube_queue_sql.database"


class DatabaseIdentity(NamedTuple):
    """Which database it is, in the words of its server."""

    #: What no other server says of itself.
    server: tuple[str, ...]
    name: str
    #: Where the server is, for people.
    address: str

    def __str__(self) -> str:
        return f"{self.name or 'no database'} at {self.address}"


class DatabaseCheck:
    """Compares the databases of callers' connections with the queue's.

    Each connection is asked once. Where two differ, both are asked again: a server may have been
    restarted or replaced, and a session may have changed its database.
    """

    def __init__(
        self,
        *,
        own: Callable[[], DatabaseIdentity],
        of: Callable[[Joined], DatabaseIdentity],
        any_name: bool,
    ) -> None:
        """`any_name` says that databases of one server count as the same."""
        self._read_own = own
        self._read = of
        self._any_name = any_name
        self._own: DatabaseIdentity | None = None
        #: Of connections that are in no pool.
        self._plain: WeakKeyDictionary[Any, DatabaseIdentity] = WeakKeyDictionary()

    def difference(self, beneath: Joined) -> tuple[DatabaseIdentity, DatabaseIdentity] | None:
        """The connection's database and the queue's; None if they are the same."""
        own, found = self._own, self._known(beneath)
        new = own is None and found is None
        own = own or self._ask_own()
        found = found or self._ask(beneath)
        if not (new or self._are_same(found, own)):
            own, found = self._ask_own(), self._ask(beneath)
        return None if self._are_same(found, own) else (found, own)

    def _ask_own(self) -> DatabaseIdentity:
        self._own = self._read_own()
        return self._own

    def _ask(self, beneath: Joined) -> DatabaseIdentity:
        found = self._read(beneath)
        if beneath.info is None:
            self._plain[beneath.connection] = found
        else:
            beneath.info[_KEY] = found
        return found

    def _known(self, beneath: Joined) -> DatabaseIdentity | None:
        if beneath.info is None:
            return self._plain.get(beneath.connection)
        found: DatabaseIdentity | None = beneath.info.get(_KEY)
        return found

    def _are_same(self, one: DatabaseIdentity, other: DatabaseIdentity) -> bool:
        return one.server == other.server and (self._any_name or one.name == other.name)


def wrong_database(found: object, own: object) -> InvalidArgument:
    """What to raise for a connection into another database than the queue's."""
    return InvalidArgument(
        f"connection leads to the database {found}, and this queue is in {own}, so one "
        "transaction cannot hold both: pass a connection to the queue's database, or push after "
        "the commit"
    )
