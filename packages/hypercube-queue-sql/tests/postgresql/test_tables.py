"""The tables: who may make them, who makes them at once, and what older ones become."""

from __future__ import annotations

import re
import secrets
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text
from sqlalchemy.engine import make_url
from tools.backends import server
from tools.script import started

from hypercube_queue import BackendError, BatchError, Message, open_queue
from hypercube_queue_sql import SQLQueue, metadata

pytestmark = pytest.mark.server("postgres")

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
def plain_url() -> str:
    """Without a table's name."""
    return server("postgres").url("postgresql", create_tables="true")


def _differences(engine: Engine, table: str) -> list[object]:
    """What Alembic would have to do."""

    def ours(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or (name or "").startswith(table)

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": ours})
        return list(compare_metadata(context, metadata(table=table)))


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
    """Not the tables, nor what is in them; and they are what the metadata says."""
    queue.push(Message("work", b"0"))
    queue.create_tables()
    queue.create_tables()

    assert _differences(engine, table) == []
    assert [each.payload for each in queue.pop("work")] == [b"0"]


@pytest.fixture
def slow_database(engine: Engine) -> Iterator[str]:
    """A database in which it takes a while to make a table, so that nobody is too late to meet."""
    name = f"d{secrets.token_hex(8)}"
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    with psycopg.connect(server("postgres").url("postgresql", database=name)) as there:
        there.execute(
            "CREATE FUNCTION tarry() RETURNS event_trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(0.1) FROM pg_event_trigger_ddl_commands(); END $$"
        )
        there.execute(
            "CREATE EVENT TRIGGER tarry ON ddl_command_end WHEN TAG IN ('CREATE TABLE') "
            "EXECUTE FUNCTION tarry()"
        )
    yield name
    with alone.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def test_processes_that_start_at_once_make_the_tables_once(slow_database: str) -> None:
    """Eight of them, again and again: none fails, whoever is first, and no message is lost."""
    url = server("postgres").url("postgresql", database=slow_database, create_tables="true")
    rounds = ["first", "second", "third"]
    with ExitStack() as stack:
        processes = [stack.enter_context(started(_OPEN, url, str(number))) for number in range(8)]
        assert [each.line() for each in processes] == ["ready"] * 8
        for name in rounds:
            for each in processes:
                each.tell(name)
            assert [each.line() for each in processes] == ["done"] * 8
        for each in processes:
            each.rest(_LIMIT)
    with psycopg.connect(server("postgres").url("postgresql", database=slow_database)) as there:
        for name in rounds:
            found = there.execute(f"SELECT payload FROM {name} ORDER BY payload").fetchall()
            assert found == [(b"%d" % number,) for number in range(8)]
            assert there.execute(f"SELECT version FROM {name}_layout").fetchall() == [(2,)]


_LAYOUT_1 = """
CREATE TABLE {0} (
    seq BIGSERIAL NOT NULL PRIMARY KEY,
    state SMALLINT NOT NULL,
    visible_at BIGINT NOT NULL,
    place BIGINT,
    token BIGINT,
    attempt BIGINT NOT NULL,
    visibility_us BIGINT,
    queue_name BYTEA NOT NULL,
    id BYTEA NOT NULL,
    job_name BYTEA NOT NULL,
    namespace BYTEA NOT NULL,
    reason BYTEA,
    extra BYTEA NOT NULL,
    payload BYTEA NOT NULL,
    CONSTRAINT uq_{0}_id UNIQUE (queue_name, id)
);
CREATE TABLE {0}_layout (version INTEGER NOT NULL, PRIMARY KEY (version));
CREATE INDEX ix_{0}_visible ON {0} (queue_name, state, visible_at);
INSERT INTO {0}_layout VALUES (1);
INSERT INTO {0} (queue_name, id, state, visible_at, attempt, job_name, namespace, extra, payload)
SELECT 'work', n::text::bytea, n % 2, n, 3, '', '', '', n::text::bytea
FROM generate_series(0, 999) AS n;
"""


def test_tables_of_the_first_layout_are_migrated(
    engine: Engine, table: str, url: str, plain_url: str
) -> None:
    """By processes that start at once, with all that is in them; they are as if newly made."""
    with engine.begin() as connection:
        connection.execute(text(_LAYOUT_1.format(table)))
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
        popped = queue.pop("work", 1000)
        assert [each.payload for each in popped[:500]] == [b"%d" % n for n in range(0, 1000, 2)]
        assert {each.attempt for each in popped[:500]} == {4}
        assert sorted(each.payload for each in popped[500:]) == [b"a", b"b"]
        queue.ack(*popped)
        assert queue.redrive("work", 1000) == 500

    assert _differences(engine, table) == []


@pytest.mark.parametrize("layout", [0, 3])
def test_tables_of_another_layout_are_refused(
    queue: SQLQueue, engine: Engine, table: str, url: str, layout: int
) -> None:
    """Every call says which layout it found and what to do; nothing is touched."""
    queue.push(Message("work"))
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {table}_layout SET version = {layout}"))
    with open_queue(url) as other:
        assert isinstance(other, SQLQueue)
        for call in (lambda: other.pop("work", wait=NOTHING), other.create_tables):
            with pytest.raises(BackendError, match=f"has layout {layout}.*needs layout 2"):
                call()


def test_a_server_that_is_too_old_is_refused_at_the_first_call(url: str) -> None:
    """Each call says so, and none returns as if there were nothing to do."""
    with open_queue(url) as queue:
        assert isinstance(queue, SQLQueue)
        queue._dialect._sql["version"] = "SELECT 110022, 'public', pg_backend_pid()"
        for call in (lambda: queue.pop("work", wait=NOTHING), queue.create_tables, queue.queues):
            with pytest.raises(BackendError, match=r"is PostgreSQL 11, and .* needs 12 or a newer"):
                call()
        with pytest.raises(BatchError) as caught:
            queue.push(Message("work"))
        assert "is PostgreSQL 11" in str(caught.value)


def test_tables_that_were_dropped_are_made_again(
    queue: SQLQueue, engine: Engine, table: str
) -> None:
    """The call that meets the gap fails and says what is missing; the next one makes it."""
    queue.push(Message("work"))
    for name in (table, f"{table}_layout"):
        with engine.begin() as connection:
            connection.execute(text(f"DROP TABLE {table}, {table}_layout"))
        with pytest.raises(BackendError, match=f"table {table} or .* does not exist"):
            queue.pop("work", wait=NOTHING)
        queue.push(Message("work", name.encode()))
        assert [each.payload for each in queue.pop("work")] == [name.encode()]


def test_missing_tables_are_not_made_unasked(engine: Engine, table: str) -> None:
    """BackendError that says how to get them, and they are found as soon as they are there."""
    queue = SQLQueue(engine, table=table)
    with pytest.raises(BackendError, match=r"does not exist: call create_tables\(\) once"):
        queue.pop("work", wait=NOTHING)
    assert not inspect(engine).has_table(table)
    SQLQueue(engine, table=table).create_tables()
    assert queue.pop("work", wait=NOTHING) == []
    queue.close()


@pytest.fixture
def schema(engine: Engine) -> Iterator[str]:
    """A schema of the test's own, with a role that may look into it: both have one name."""
    name = f"s{secrets.token_hex(8)}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
        connection.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'"))
        connection.execute(text(f"GRANT USAGE ON SCHEMA {name} TO {name}"))
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
        connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP ROLE {name}"))


def _as_role(role: str, **options: str) -> str:
    made = make_url(server("postgres").url("postgresql"))
    made = made.set(username=role, password="secret").update_query_dict(options)
    return made.render_as_string(hide_password=False)


def test_a_schema_has_tables_of_its_own(engine: Engine, table: str, url: str, schema: str) -> None:
    """With the same name as others, and wake-ups and indexes to itself."""
    with open_queue(url) as here, open_queue(f"{url}&schema={schema}") as there:
        assert isinstance(there, SQLQueue)
        there.push(Message("work", b"0"))
        assert here.pop("work", wait=NOTHING) == []
        [delivery] = there.pop("work")
        there.dead_letter(delivery)
        assert there.redrive("work", 1) == 1
        assert there.queues() == ["work"]
    found = inspect(engine)

    assert set(found.get_table_names(schema=schema)) == {table, f"{table}_layout"}
    assert [each["name"] for each in found.get_indexes(table, schema=schema)] == [
        f"ix_{table}_ready",
        f"uq_{table}_id",
    ]


def test_a_schema_that_is_missing_is_named(url: str) -> None:
    """It is not made: whoever makes tables may not make schemas."""
    with (
        open_queue(f"{url}&schema=nowhere") as queue,
        pytest.raises(BackendError, match='schema "nowhere" does not exist'),
    ):
        queue.pop("work", wait=NOTHING)


def test_a_role_that_may_not_create_tables_is_told_what_to_grant(
    engine: Engine, schema: str
) -> None:
    """On what, and that it is a right that lacks; with it the same object works."""
    with open_queue(_as_role(schema, schema=schema, create_tables="true")) as queue:
        with pytest.raises(BackendError, match=f"permission denied for schema {schema}.*grant"):
            queue.pop("work", wait=NOTHING)
        with engine.begin() as connection:
            connection.execute(text(f"GRANT CREATE ON SCHEMA {schema} TO {schema}"))
        queue.push(Message("work", b"0"))
        assert [each.payload for each in queue.pop("work")] == [b"0"]


def test_a_worker_s_role_needs_no_more_than_its_rows(engine: Engine, schema: str) -> None:
    """The tables belong to another role: four rights and a sequence do, and nothing less."""
    owner = SQLQueue(engine, table="jobs", schema=schema)
    owner.create_tables()
    owner.push(Message("work", b"owner"))
    with open_queue(_as_role(schema, schema=schema, table="jobs", create_tables="true")) as queue:
        assert isinstance(queue, SQLQueue)
        for grant in (
            "SELECT ON {0}.jobs_layout",
            "SELECT, INSERT, UPDATE, DELETE ON {0}.jobs",
            "USAGE ON SEQUENCE {0}.jobs_seq_seq",
        ):
            with pytest.raises(BatchError) as caught:
                queue.push(Message("work", b"role"))
            assert re.search(r"permission denied for \w+ jobs\w*.*grant", str(caught.value))
            with engine.begin() as connection:
                connection.execute(text(f"GRANT {grant} TO {{0}}".format(schema)))
        queue.push(Message("work", b"role"))
        one, two = queue.pop("work", 2)
        assert [one.payload, two.payload] == [b"owner", b"role"]
        queue.dead_letter(one)
        queue.ack(two)
        assert queue.forget("work", one.id) == 1


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
def alembic(tmp_path: Path, engine: Engine, table: str) -> Iterator[Config]:
    """The project of an application that migrates with Alembic."""
    scripts = tmp_path / "migrations"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text(_ENV)
    (scripts / "script.py.mako").write_text(textwrap.dedent(_MAKO))
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("path_separator", "os")
    address = server("postgres").url("postgresql+psycopg")
    config.set_main_option("sqlalchemy.url", address.replace("%", "%%"))
    config.set_main_option("table", table)
    yield config
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {table}_alembic"))


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
    command.check(alembic)
    command.downgrade(alembic, "base")
    assert not inspect(engine).has_table(table)
