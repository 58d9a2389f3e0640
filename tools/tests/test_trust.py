"""The least rights that docs/trust.md names for a producer on SQL: enough to push, and no more."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import create_engine, text
from tools.backends import server

import workspace
from hypercube_queue import BackendError, BatchError, Message, open_queue
from hypercube_queue_sql import SQLQueue
from snippets import blocks

_PAGE = workspace.ROOT / "docs/trust.md"
_NOW = timedelta(0)


def _refused(call: Callable[[], object]) -> str:
    """Why the backend does not let somebody do something."""
    with pytest.raises((BackendError, BatchError)) as caught:
        call()
    error = caught.value
    return str(error.failed[0].error if isinstance(error, BatchError) else error)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.server(each)) for each in ("postgres", "mysql")]
)
def test_a_producer_of_a_sql_queue_sees_no_payload(name: str) -> None:
    """It pushes, and learns of ids that are taken."""
    place = server(name)
    [block] = [block.body for block in blocks(_PAGE.read_text()) if block.language == "sql"]
    table, role, password = (f"trust_{secrets.token_hex(4)}" for _ in range(3))
    grants = [
        line.partition(";")[0].replace("hypercube_messages", table).replace("producer", role)
        for line in block.splitlines()
        if name == "postgres" or "PostgreSQL only" not in line
    ]
    scheme, role_of = {
        "postgres": ("postgresql", "CREATE ROLE {0} LOGIN PASSWORD '{1}'"),
        "mysql": ("mysql", "CREATE USER {0} IDENTIFIED BY '{1}'"),
    }[name]
    engine = create_engine(
        place.url({"postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}[name])
    )
    owner = SQLQueue(engine, table=table, create_tables=True)
    owner.push(Message("work", b"secret", id="taken"))
    with engine.begin() as connection:
        for statement in [role_of.format(role, password), *grants]:
            connection.execute(text(statement))
    address = f"{role}:{password}@{place.host}:{place.port}/{place.database}"
    with open_queue(f"{scheme}://{address}?table={table}") as queue:
        queue.push(Message("work", b"pushed"))
        assert "taken" in _refused(lambda: queue.push(Message("work", id="taken")))
        assert "grant" in _refused(lambda: queue.pop("work", wait=_NOW))
    own = create_engine(engine.url.set(username=role, password=password))
    for statement in (f"SELECT payload FROM {table}", f"DELETE FROM {table}"):
        with own.connect() as connection, pytest.raises(Exception, match="denied"):
            connection.execute(text(statement))
    own.dispose()
    assert [each.payload for each in owner.pop("work", 5)] == [b"secret", b"pushed"]
    owner.close()
    engine.dispose()
