"""What a client library of a database server has to offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy.engine.interfaces import DBAPICursor

from hypercube_queue_sql._errors import Fault


class Client(Protocol):
    """How one client library is spoken to; connections are its own, not SQLAlchemy's."""

    @property
    def error(self) -> type[Exception]:
        """What it raises."""
        ...

    @property
    def commits_each(self) -> bool:
        """Whether a connection that was taken commits each statement by itself.

        If not, every call is a transaction.
        """
        ...

    def cut(self, connection: Any) -> None:
        """End the connection from another thread: whoever waits on it gets an error at once."""
        ...

    def is_dead(self, connection: Any) -> bool:
        """Whether the server has ended this idle connection. Contacts nobody."""
        ...

    def take(self, connection: Any) -> Callable[[], None] | None:
        """Make an idle connection fit for a call; return how to undo that.

        None if there is nothing to undo.
        """
        ...

    def stop_preparing(self) -> None:
        """Use no statements that are prepared on the server from now on."""
        ...

    def cursor(self, connection: Any) -> DBAPICursor:
        """A cursor that gives tuples, whatever is set on the connection."""
        ...

    def begin(self, connection: Any) -> DBAPICursor:
        """Begin a transaction at READ COMMITTED, at the latest with the first statement."""
        ...

    def lost_its_socket(self, error: AttributeError) -> bool:
        """Whether the library tripped over a connection of its own that had ended."""
        ...

    def fault(self, error: BaseException) -> Fault:
        """What an error of the library means."""
        ...
