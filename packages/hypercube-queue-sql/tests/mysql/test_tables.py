"""The tables: who makes them, who makes them at once, and what older or half-made ones become."""

from __future__ import annotations

import secrets
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text
from tools.backends.instance import Server
from tools.script import started

from hypercube_queue import BackendError, BatchError, Message, open_queue
from hypercube_queue_sql import SQLQueue, metadata

NOTHING = timedelta(0)
_LIMIT = 60

#: Opens a queue on each table it is told, all processes at the same moment.
_OPEN = """
import sys
from hypercube_queue import Message, open_queue
print("ready", flush=True)
for line in sys.stdin:
    with open_queue(sys.argv[1] + "&table=" + line.strip()) as queue:
        queue.push(Message("work", sys.argv[2].encode()))
    print("done", flush=True)
"""


@pytest.fixture
def plain_url(place: Server) -> str:
    """Without a table's name."""
    return place.url(place.name, create_tables="true")


def _differences(engine: Engine, table: str) -> list[object]:
    """What Alembic would have to do."""

    def ours(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or (name or "").startswith(table)

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": ours})
        return list(compare_metadata(context, metadata(table=table)))


def _run(engine: Engine, script: str) -> None:
    with engine.begin() as connection:
        for statement in script.split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def test_a_queue_that_is_told_to_creates_no_tables(plain_url: str, engine: Engine) -> None:
    """Tools that look after a queue must not make one, whatever its URL says."""
    table = f"t{secrets.token_hex(8)}"
    with open_queue(f"{plain_url}&table={table}") as queue:
        assert isinstance(queue, SQLQueue)
        queue.create_nothing()
        with pytest.raises(BackendError, match="does not exist"):
            queue.queues()
        with pytest.raises(BatchError):
            queue.push(Message("work"))
    assert not inspect(engine).has_table(table)


def test_creating_tables_twice_changes_nothing(queue: SQLQueue, engine: Engine, table: str) -> None:
    """Not the tables, nor what is in them; and they are what the metadata says, on InnoDB."""
    queue.push(Message("work", b"0"))
    queue.create_tables()
    queue.create_tables()

    assert _differences(engine, table) == []
    assert inspect(engine).get_table_options(table)["mysql_engine"] == "InnoDB"
    assert [each.payload for each in queue.pop("work")] == [b"0"]


def test_numbers_of_rows_are_never_used_twice(queue: SQLQueue, engine: Engine, table: str) -> None:
    """What a log line says about a row stays true; in a batch they follow the order of it."""
    queue.push(Message("work"))
    queue.ack(*queue.pop("work"))
    queue.push(*(Message("work", b"%d" % number, id=str(9 - number)) for number in range(10)))
    with engine.connect() as connection:
        rows = connection.execute(text(f"SELECT payload FROM {table} ORDER BY seq")).all()
        [first] = connection.scalars(text(f"SELECT min(seq) FROM {table}"))

    assert [payload for (payload,) in rows] == [b"%d" % number for number in range(10)]
    assert first > 1


def test_names_are_compared_byte_for_byte(queue: SQLQueue) -> None:
    """Spaces at the end, letter case and accents count, which texts would ignore here."""
    names = ["x", "x ", "X", "x\u0301", "é", "e\u0301", "e"]
    queue.push(*(Message(name, name.encode(), id=each) for name in names for each in names))
    for name in names:
        assert queue.stats(name).ready == len(names)
        assert {each.payload for each in queue.pop(name, 100)} == {name.encode()}
    assert queue.queues() == sorted(names)


def test_processes_that_start_at_once_make_the_tables_once(
    engine: Engine, table: str, plain_url: str
) -> None:
    """Four of them, again and again: none fails, whoever is first, and no message is lost."""
    rounds = [f"{table}_{number}" for number in range(2)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(started(_OPEN, plain_url, str(number))) for number in range(4)
        ]
        assert [each.line() for each in processes] == ["ready"] * 4
        for name in rounds:
            for each in processes:
                each.tell(name)
            assert [each.line() for each in processes] == ["done"] * 4
        for each in processes:
            each.rest(_LIMIT)
    for name in rounds:
        assert _differences(engine, name) == []
        with engine.begin() as connection:
            found = connection.scalars(text(f"SELECT payload FROM {name}"))
            assert sorted(found) == [b"%d" % number for number in range(4)]
            versions = connection.scalars(text(f"SELECT version FROM {name}_layout")).all()
            assert versions == [2]
            connection.execute(text(f"DROP TABLE {name}, {name}_layout"))


def test_tables_that_were_made_halfway_are_completed(
    queue: SQLQueue, engine: Engine, table: str, url: str
) -> None:
    """Each statement that makes one is committed at once, and a process can die after any."""
    queue.push(Message("work", b"0"))
    _run(engine, f"DROP TABLE {table}_layout")
    _assert_whole(engine, table, url)
    _run(engine, f"DROP INDEX ix_{table}_ready ON {table}; DROP TABLE {table}_layout")
    _assert_whole(engine, table, url)
    _run(engine, f"DELETE FROM {table}_layout")
    _assert_whole(engine, table, url)


def _assert_whole(engine: Engine, table: str, url: str) -> None:
    with open_queue(url) as queue:
        [delivery] = queue.pop("work")
        queue.release(delivery)  # type: ignore[attr-defined]  # it can
    with engine.connect() as connection:
        assert connection.scalars(text(f"SELECT version FROM {table}_layout")).all() == [2]
    assert _differences(engine, table) == []


_LAYOUT_1 = """
CREATE TABLE {0} (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    state SMALLINT NOT NULL,
    visible_at BIGINT NOT NULL,
    place BIGINT,
    token BIGINT,
    attempt BIGINT NOT NULL,
    visibility_us BIGINT,
    queue_name VARBINARY(255) NOT NULL,
    id VARBINARY(255) NOT NULL,
    job_name VARBINARY(255) NOT NULL,
    namespace VARBINARY(255) NOT NULL,
    reason LONGBLOB,
    extra LONGBLOB NOT NULL,
    payload LONGBLOB NOT NULL,
    CONSTRAINT uq_{0}_id UNIQUE (queue_name, id)
) ENGINE = InnoDB;
CREATE TABLE {0}_layout (version INTEGER NOT NULL, PRIMARY KEY (version));
CREATE INDEX ix_{0}_visible ON {0} (queue_name, state, visible_at);
INSERT INTO {0}_layout VALUES (1);
INSERT INTO {0} (queue_name, id, state, visible_at, attempt, job_name, namespace, extra, payload)
VALUES ('work', '0', 0, 0, 3, '', '', '', '0'), ('work', '1', 1, 1, 3, '', '', '', '1'),
    ('work', '2', 0, 2, 3, '', '', '', '2')
"""
#: How far a migration that was interrupted may have come.
_STEPS = {
    "nowhere": "",
    "new index": "CREATE INDEX ix_{0}_ready ON {0} (queue_name, state, visible_at, seq)",
    "old index dropped": (
        "CREATE INDEX ix_{0}_ready ON {0} (queue_name, state, visible_at, seq);"
        "DROP INDEX ix_{0}_visible ON {0}"
    ),
}


@pytest.mark.parametrize("step", _STEPS.values(), ids=list(_STEPS))
def test_tables_of_the_first_layout_are_migrated(
    engine: Engine, table: str, url: str, plain_url: str, step: str
) -> None:
    """By processes that start at once, from wherever another one stopped, with all in them."""
    _run(engine, _LAYOUT_1.format(table))
    _run(engine, step.format(table))
    with (
        open_queue(url.replace("create_tables=true", "create_tables=false")) as queue,
        pytest.raises(BackendError, match=r"has layout 1.*needs layout 2.*create_tables"),
    ):
        queue.pop("work", wait=NOTHING)
    with started(_OPEN, plain_url, "a") as one, started(_OPEN, plain_url, "b") as two:
        assert [one.line(), two.line()] == ["ready"] * 2
        for each in (one, two):
            each.tell(table)
        for each in (one, two):
            each.rest(_LIMIT)
    with open_queue(url) as queue:
        popped = queue.pop("work", 10)
        assert [each.payload for each in popped[:2]] == [b"0", b"2"]
        assert {each.attempt for each in popped[:2]} == {4}
        assert sorted(each.payload for each in popped[2:]) == [b"a", b"b"]
        queue.ack(*popped)
        assert queue.redrive("work", 10) == 1

    assert _differences(engine, table) == []


@pytest.mark.parametrize("layout", [0, 3])
def test_tables_of_another_layout_are_refused(
    queue: SQLQueue, engine: Engine, table: str, url: str, layout: int
) -> None:
    """Every call says which layout it found and what to do; nothing is touched."""
    queue.push(Message("work"))
    _run(engine, f"UPDATE {table}_layout SET version = {layout}")
    with open_queue(url) as other:
        assert isinstance(other, SQLQueue)
        for call in (lambda: other.pop("work", wait=NOTHING), other.create_tables):
            with pytest.raises(BackendError, match=f"has layout {layout}.*needs layout 2"):
                call()


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("5.7.44-log", r"is MySQL 5\.7\.44-log, and .* needs 8\.0\.1 or a newer"),
        ("8.0.0-dmr", r"is MySQL 8\.0\.0-dmr, and"),
        ("10.5.29-MariaDB-log", r"is MariaDB 10\.5\.29-MariaDB-log, and .* needs 10\.6\.0 or"),
        ("unknown", r"is MySQL unknown, and"),
    ],
)
def test_a_server_that_is_too_old_is_refused_at_the_first_call(
    url: str, version: str, told: str
) -> None:
    """Each call says so, and none returns as if there were nothing to do."""
    with open_queue(url) as queue:
        assert isinstance(queue, SQLQueue)
        queue._dialect._sql["server"] = f"SELECT '{version}', 16777216, database()"
        for call in (lambda: queue.pop("work", wait=NOTHING), queue.create_tables, queue.queues):
            with pytest.raises(BackendError, match=told):
                call()
        with pytest.raises(BatchError) as caught:
            queue.push(Message("work"))
        assert version in str(caught.value)


@pytest.mark.parametrize("version", ["8.0.1-dmr", "8.4.6", "10.6.0-MariaDB", "11.8.9-MariaDB-log"])
def test_a_server_that_is_new_enough_is_taken(url: str, version: str) -> None:
    """However its version is written."""
    with open_queue(url) as queue:
        assert isinstance(queue, SQLQueue)
        queue._dialect._sql["server"] = f"SELECT '{version}', 16777216, database()"
        assert queue.pop("work", wait=NOTHING) == []


def test_either_scheme_leads_to_either_server(queue: SQLQueue, place: Server, table: str) -> None:
    """What the server is, it says itself."""
    queue.push(Message("work", b"0"))
    for scheme in ("mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"):
        with open_queue(place.url(scheme, table=table)) as other:
            assert [each.payload for each in other.pop("work")] == [b"0"]
            queue.push(Message("work", b"0"))


def test_tables_that_were_dropped_are_made_again(
    queue: SQLQueue, engine: Engine, table: str
) -> None:
    """The call that meets the gap fails and says what is missing; the next one makes it."""
    queue.push(Message("work"))
    _run(engine, f"DROP TABLE {table}, {table}_layout")
    with pytest.raises(BackendError, match=f"table {table} or .* does not exist"):
        queue.pop("work", wait=NOTHING)
    queue.push(Message("work", b"0"))
    assert [each.payload for each in queue.pop("work")] == [b"0"]


def test_missing_tables_are_not_made_unasked(engine: Engine, table: str) -> None:
    """BackendError that says how to get them, and they are found as soon as they are there."""
    queue = SQLQueue(engine, table=table)
    with pytest.raises(BackendError, match=r"does not exist: call create_tables\(\) once"):
        queue.pop("work", wait=NOTHING)
    assert not inspect(engine).has_table(table)
    SQLQueue(engine, table=table).create_tables()
    assert queue.pop("work", wait=NOTHING) == []
    queue.close()


def test_a_reserved_word_can_name_the_table(place: Server, engine: Engine) -> None:
    """As it can in the application's own statements: it is quoted."""
    database = f"d{secrets.token_hex(8)}"
    _run(engine, f"CREATE DATABASE {database}")
    with open_queue(
        place.url(place.name, table="Order", schema=database, create_tables="true")
    ) as queue:
        queue.push(Message("work", b"0"))
        queue.ack(*queue.pop("work"))
        assert queue.pop("work", wait=NOTHING) == []
    _run(engine, f"DROP DATABASE {database}")


def test_a_schema_is_another_database(engine: Engine, table: str, url: str) -> None:
    """With the same name as others, and all statements lead there."""
    database = f"d{secrets.token_hex(8)}"
    with open_queue(f"{url}&schema={database}") as there:
        with pytest.raises(BackendError, match=f"Unknown database '{database}'"):
            there.pop("work", wait=NOTHING)
        _run(engine, f"CREATE DATABASE {database}")
        with open_queue(url) as here:
            there.push(Message("work", b"0"), Message("work", b"1", id="1"))
            with pytest.raises(BatchError):
                there.push(Message("work", id="1"))
            assert here.pop("work", wait=NOTHING) == []
        assert isinstance(there, SQLQueue)
        one, two = there.pop("work", 2)
        there.dead_letter(one)
        there.ack(two)
        assert there.redrive("work", 1) == 1
        there.dead_letter(*there.pop("work"))
        assert there.redrive_ids("work", one.id) == 1
        there.dead_letter(*there.pop("work"))
        assert there.forget("work", one.id) == 1
        assert there.queues() == []
        with engine.begin() as connection:
            there.push_within(connection, Message("work", b"2"))
        assert [each.payload for each in there.pop("work")] == [b"2"]
    assert set(inspect(engine).get_table_names(schema=database)) == {table, f"{table}_layout"}
    _run(engine, f"DROP DATABASE {database}")


_ENV = """
from alembic import context
from sqlalchemy import create_engine

import hypercube_queue_sql

table = context.config.get_main_option("table")
engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=hypercube_queue_sql.metadata(table=table),
        include_name=lambda name, kind, _: kind != "table" or name.startswith(table),
        version_table=f"{table}_alembic",
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""
_MAKO = """
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}

from alembic import op
import sqlalchemy as sa
${imports or ""}

def upgrade():
    ${upgrades}

def downgrade():
    ${downgrades}
"""


@pytest.fixture
def alembic(tmp_path: Path, place: Server, engine: Engine, table: str) -> Iterator[Config]:
    """The project of an application that migrates with Alembic."""
    scripts = tmp_path / "migrations"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text(_ENV)
    (scripts / "script.py.mako").write_text(textwrap.dedent(_MAKO))
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", place.url("mysql+pymysql").replace("%", "%%"))
    config.set_main_option("table", table)
    yield config
    _run(engine, f"DROP TABLE IF EXISTS {table}_alembic")


def test_alembic_makes_the_tables(alembic: Config, engine: Engine, table: str, url: str) -> None:
    """Autogenerate writes a migration, its upgrade makes what create_tables makes, no less."""
    command.revision(alembic, "queue", autogenerate=True)
    command.upgrade(alembic, "head")
    command.check(alembic)
    with open_queue(url.replace("create_tables=true", "create_tables=false")) as queue:
        queue.push(Message("work", b"0"))
        [delivery] = queue.pop("work")
        queue.ack(delivery)
    with engine.connect() as connection:
        layout = connection.scalars(text(f"SELECT version FROM {table}_layout")).all()

    assert layout == [2]
    assert inspect(engine).get_table_options(table)["mysql_engine"] == "InnoDB"
    command.check(alembic)
    command.downgrade(alembic, "base")
    assert not inspect(engine).has_table(table)
