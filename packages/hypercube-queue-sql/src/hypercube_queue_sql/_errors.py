"""What can go wrong on a database server, whatever client reports it."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from hypercube_queue import BackendError, CapacityExceeded, MessageTooLarge, QueueError


class Kind(Enum):
    """What an error of a server means for the call that met it."""

    #: The connection is gone, or never came about.
    GONE = auto()
    #: The server takes no changes, though it answers: another one may have taken its place.
    WRONG_SERVER = auto()
    #: No answer came in time.
    LATE = auto()
    #: Transactions were in each other's way, and the server undid this one: run it again.
    AGAIN = auto()
    #: A prepared statement is not there, or another one has its name: a pooler stands between.
    UNPREPARED = auto()
    #: There is no room for what was to be stored.
    FULL = auto()
    #: A message is larger than the server takes.
    TOO_LARGE = auto()
    #: A table is not there.
    NO_TABLE = auto()
    #: What was to be created is there already, or what was to be dropped is gone.
    DONE = auto()
    #: The server lets this user do nothing, or not this; or the database is missing.
    REFUSED = auto()
    #: Anything else; people have to look at it.
    OTHER = auto()


class Fault(NamedTuple):
    """An error of a client library as its table of codes explains it."""

    kind: Kind
    #: What to tell people.
    text: str


class ConnectionLost(BackendError):
    """The connection ended under a running statement, which may have been carried out."""


def contract_error(fault: Fault, place: str, *, sent: bool) -> QueueError:
    """What the contract calls a fault; `sent` says that it may have been carried out all the same.

    `place` names the database for people.
    """
    text = f"{place}: {fault.text}"
    match fault.kind:
        case Kind.FULL:
            return CapacityExceeded(text)
        case Kind.TOO_LARGE:
            return MessageTooLarge(text)
        case Kind.GONE if sent:
            return ConnectionLost(text, outcome_unknown=True)
        case Kind.LATE:
            return BackendError(text, outcome_unknown=sent)
        case Kind.REFUSED:
            return BackendError(text, permanent=True)
        case _:
            return BackendError(text)
