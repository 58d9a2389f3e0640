"""Whose connection it is that a caller passes."""

from __future__ import annotations

import importlib
import sys
from typing import Protocol, cast

from hypercube_jobs._errors import NotSupported
from hypercube_jobs._transactions._late import Late

#: The modules here that know the connections of a library, by its import name.
_MODULES = {
    "sqlalchemy": "hypercube_jobs._transactions._sqlalchemy",
    "django.db": "hypercube_jobs._transactions._django",
}


class _Library(Protocol):
    """What such a module has."""

    @staticmethod
    def knows(connection: object) -> bool:
        """Whether it is a connection of this library."""
        ...

    @staticmethod
    def is_async(connection: object) -> bool:
        """Whether it is one whose operations are coroutines."""
        ...

    @staticmethod
    def plain(connection: object) -> object | None:
        """What a driver takes for it; None while no transaction is open to join."""
        ...

    @staticmethod
    def after_commit(connection: object, late: Late) -> bool:
        """Do this after its transaction has committed; False if none is open."""
        ...


def is_async(connection: object) -> bool:
    """Whether `connection` is one whose operations are coroutines."""
    library = _library(connection)
    return library is not None and library.is_async(connection)


def plain_connection(connection: object) -> object | None:
    """What a driver takes for `connection`; None if it can have no transaction open now."""
    library = _library(connection)
    return connection if library is None else library.plain(connection)


def after_commit(connection: object, late: Late) -> bool:
    """Do this once the transaction of `connection` has committed, and never if it does not.

    False, and nothing is done, if no transaction is open. Raises NotSupported for connections
    that tell nobody of their commits.
    """
    library = _library(connection)
    if library is None:
        raise NotSupported(
            "the job cannot be stored in this transaction, since the queue is not in the same "
            f"database, and a {type(connection).__name__} tells nobody when it commits: pass an "
            "SQLAlchemy Session or Connection, or Django's connection; or dispatch after the "
            "commit, or use a queue in the same database (hypercube-queue-sql)"
        )
    return library.after_commit(connection, late)


def _library(connection: object) -> _Library | None:
    for name, module in _MODULES.items():
        # Whoever has a connection of it has imported it.
        if name in sys.modules:
            library = cast("_Library", importlib.import_module(module))
            if library.knows(connection):
                return library
    return None
