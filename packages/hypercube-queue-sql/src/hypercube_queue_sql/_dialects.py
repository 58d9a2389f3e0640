"""Which modules a database needs; a client library is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from sqlalchemy import Engine

from hypercube_queue import InvalidArgument
from hypercube_queue_sql._dialect import Dialect


class _Modules(NamedTuple):
    dialect: str
    class_name: str
    #: Of servers: how their client library is spoken to.
    client: str = ""
    #: What installs the client library.
    extra: str = ""


_MYSQL = _Modules("_mysql", "MySQLDialect", "_mysql_client", "mysql")
#: By SQLAlchemy's name of the dialect, which is the scheme of its URLs as well.
_DATABASES = {
    "sqlite": _Modules("_sqlite", "SQLiteDialect"),
    "postgresql": _Modules("_postgresql", "PostgreSQLDialect", "_postgresql_client", "postgresql"),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}


def dialect_for(engine: Engine) -> Callable[..., Dialect]:
    """The class for this engine's database; raises InvalidArgument if there is none."""
    name = engine.dialect.name
    if name not in _DATABASES:
        raise InvalidArgument(
            f"the engine is for {name}; this release knows {', '.join(_DATABASES)}"
        )
    modules = _DATABASES[name]
    dialect: Callable[..., Dialect] = getattr(_imported(name, modules.dialect), modules.class_name)
    return dialect


def client_for(name: str) -> ModuleType:
    """The module that speaks to the client library of a server.

    It has `PARAMETERS`, the names that the library takes in a URL, `check_parameters(parameters)`,
    which refuses what must not be among their values, `connect_options(options)`,
    what options of the queue's URL come to, and `connect_arguments(seconds)`, what a connection is
    made with where that is not in the URL.
    """
    return _imported(name, _DATABASES[name].client)


def _imported(name: str, module: str) -> ModuleType:
    try:
        return import_module(f"hypercube_queue_sql.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("hypercube_queue_sql"):
            raise
        raise InvalidArgument(
            f"{name} needs the client library {error.name}, which is not installed: "
            f"pip install 'hypercube-queue-sql[{_DATABASES[name].extra}]'"
        ) from error
