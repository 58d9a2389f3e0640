"""The tables: creation, layout, and migrations by Alembic."""

from __future__ import annotations

import sqlite3
import textwrap
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, StaticPool, Table, create_engine, event

from hypercube_queue import (
    BackendError,
    BatchError,
    InvalidArgument,
    Message,
    QueueStats,
    open_queue,
)
from hypercube_queue_sql import DEFAULT_TABLE, SQLQueue, metadata

NOTHING = timedelta(0)


def _schema(file: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE name LIKE '%hypercube%' ORDER BY name"
        ).fetchall()


def test_creating_tables_twice_changes_nothing(queue: SQLQueue, file: Path) -> None:
    """Not the tables, nor what is in them."""
    queue.push(Message("work", b"0"))
    before = _schema(file)
    queue.create_tables()
    queue.create_tables()

    assert _schema(file) == before
    assert [each.payload for each in queue.pop("work")] == [b"0"]


@pytest.mark.parametrize("there", ["no file", "no tables"])
def test_looking_makes_nothing(queue: SQLQueue, file: Path, there: str) -> None:
    """A mistyped name must not leave a database behind, nor tables in somebody else's."""
    if there == "no tables":
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE somebodys (number INTEGER)")
    before = file.exists()

    assert queue.queues() == []
    assert queue.stats("work") == QueueStats("work", 0, 0, 0, 0)
    assert queue.dead_letters("work", 10) == []
    assert (file.exists(), before and _schema(file)) == (before, [] if before else False)

    queue.push(Message("work"))
    assert queue.queues() == ["work"]


def test_looking_at_tables_that_nobody_asked_to_create_is_an_error(file: Path) -> None:
    """As with all other calls."""
    with open_queue(f"sqlite:///{file}?create_tables=false") as queue:
        with pytest.raises(BackendError, match="there is no file"):
            queue.stats("work")
        file.touch()
        with pytest.raises(BackendError, match="does not exist"):
            queue.stats("work")


@pytest.mark.parametrize("there", ["no file", "no tables"])
def test_a_queue_that_is_told_to_creates_nothing(queue: SQLQueue, file: Path, there: str) -> None:
    """Not by a push either; tools that look after a queue must not make one."""
    if there == "no tables":
        file.touch()
    queue.create_nothing()
    for call in (
        queue.queues,
        lambda: queue.stats("work"),
        lambda: queue.pop("work", wait=timedelta(0)),
        lambda: queue.push(Message("work")),
        lambda: queue.redrive("work", 1),
        lambda: queue.forget("work", "id"),
    ):
        with pytest.raises((BackendError, BatchError)) as caught:
            call()
        text = "there is no file" if there == "no file" else "does not exist"
        assert text in str(caught.value)
    assert file.exists() == (there == "no tables")
    queue.create_tables()
    queue.push(Message("work"))


def test_looking_makes_nothing_in_an_attached_database(file: Path) -> None:
    """Where the queue's schema is."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    event.listen(
        engine,
        "connect",
        lambda connection, _record: connection.execute("ATTACH ? AS jobs", (str(file),)),
    )
    queue = SQLQueue(engine, schema="jobs", create_tables=True)

    assert (queue.queues(), queue.stats("work").ready) == ([], 0)
    queue.push(Message("work"))
    assert queue.stats("work").ready == 1
    queue.close()
    engine.dispose()


def test_numbers_of_rows_are_never_used_twice(queue: SQLQueue, file: Path) -> None:
    """What a log line says about a row stays true."""
    queue.push(Message("work"))
    queue.ack(*queue.pop("work"))
    queue.push(Message("work"))
    with closing(sqlite3.connect(file)) as connection:
        numbers = connection.execute(f"SELECT seq FROM {DEFAULT_TABLE}").fetchall()

    assert numbers == [(2,)]


def test_tables_that_were_dropped_are_made_again(queue: SQLQueue, file: Path) -> None:
    """The call that meets the gap fails, the next one finds its tables."""
    queue.push(Message("work"))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"DROP TABLE {DEFAULT_TABLE}")
        connection.execute(f"DROP TABLE {DEFAULT_TABLE}_layout")
    with pytest.raises(BackendError, match="no such table"):
        queue.pop("work", wait=NOTHING)

    assert queue.pop("work", wait=NOTHING) == []


def test_two_table_names_are_two_queues(file: Path) -> None:
    """The same queue name in another table is another queue."""
    engine = create_engine(f"sqlite:///{file}")
    one = SQLQueue(engine, table="first", create_tables=True)
    two = SQLQueue(engine, table="second", create_tables=True)
    one.push(Message("work", b"0"))

    assert two.pop("work", wait=NOTHING) == []
    assert [each.payload for each in one.pop("work")] == [b"0"]
    engine.dispose()


def test_a_schema_is_an_attached_database(tmp_path: Path, file: Path) -> None:
    """Tables and their indexes are made and used there."""
    engine = create_engine(f"sqlite:///{file}")
    attached = tmp_path / "attached.db"

    @event.listens_for(engine, "connect")
    def attach(connection, _record) -> None:
        connection.execute(f"ATTACH '{attached}' AS jobs")

    queue = SQLQueue(engine, schema="jobs", create_tables=True)
    queue.push(Message("work", b"0"))

    assert [each.payload for each in queue.pop("work")] == [b"0"]
    assert _schema(file) == []
    assert len(_schema(attached)) == 4
    engine.dispose()


@pytest.mark.parametrize("layout", [0, 3])
def test_tables_of_another_layout_are_refused(file: Path, url: str, layout: int) -> None:
    """Every call says which layout it found and what to do; nothing is touched."""
    with open_queue(url) as queue:
        queue.push(Message("work"))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"UPDATE {DEFAULT_TABLE}_layout SET version = {layout}")
    with open_queue(url) as queue:
        assert isinstance(queue, SQLQueue)
        for call in (lambda: queue.pop("work", wait=NOTHING), queue.create_tables):
            with pytest.raises(BackendError, match=f"has layout {layout}.*needs layout 2"):
                call()


_LAYOUT_1 = f"""
CREATE TABLE {DEFAULT_TABLE} (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    state SMALLINT NOT NULL,
    visible_at BIGINT NOT NULL,
    place BIGINT,
    token BIGINT,
    attempt BIGINT NOT NULL,
    visibility_us BIGINT,
    queue_name BLOB NOT NULL,
    id BLOB NOT NULL,
    job_name BLOB NOT NULL,
    namespace BLOB NOT NULL,
    reason BLOB,
    extra BLOB NOT NULL,
    payload BLOB NOT NULL,
    CONSTRAINT uq_{DEFAULT_TABLE}_id UNIQUE (queue_name, id)
);
CREATE TABLE {DEFAULT_TABLE}_layout (version INTEGER NOT NULL, PRIMARY KEY (version));
CREATE INDEX ix_{DEFAULT_TABLE}_visible ON {DEFAULT_TABLE} (queue_name, state, visible_at);
INSERT INTO {DEFAULT_TABLE}_layout VALUES (1);
INSERT INTO {DEFAULT_TABLE} (queue_name, id, state, visible_at, attempt, job_name, namespace,
    extra, payload) VALUES (CAST('work' AS BLOB), x'61', 0, 0, 0, x'', x'', x'', x'30');
"""


def test_tables_of_the_first_layout_are_migrated(file: Path, url: str) -> None:
    """By whoever may create tables, with all that is in them; they are as if newly made."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(_LAYOUT_1)
    with (
        open_queue(f"{url}?create_tables=false") as queue,
        pytest.raises(BackendError, match=r"has layout 1.*needs layout 2.*create_tables"),
    ):
        queue.pop("work", wait=NOTHING)
    with open_queue(url) as queue:
        [delivery] = queue.pop("work", wait=NOTHING)
        assert delivery.payload == b"0"
        queue.ack(delivery)
    engine = create_engine(url)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata())
    engine.dispose()

    assert differences == []


@pytest.mark.parametrize(
    "name", ["", "a b", "a;b", "1a", 'a"b', "sqlite_a", "é", "x" * 41, None, 7]
)
def test_a_name_that_is_no_identifier_is_refused(name: object) -> None:
    """For the table as for the schema, with the value."""
    with pytest.raises(InvalidArgument, match="table is"):
        metadata(table=name)
    if name is not None:
        with pytest.raises(InvalidArgument, match="schema is"):
            metadata(schema=name)


def test_the_tables_can_join_an_application_s_metadata() -> None:
    """`into` adds them, under the names that the queue is given."""
    application = MetaData()
    Table("orders", application, Column("id", Integer, primary_key=True))

    assert metadata(table="jobs", into=application) is application
    assert set(application.tables) == {"orders", "jobs", "jobs_layout"}


def test_what_create_tables_made_is_what_the_metadata_says(queue: SQLQueue, url: str) -> None:
    """Alembic finds nothing to do."""
    queue.create_tables()
    engine = create_engine(url)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata())
    engine.dispose()

    assert differences == []


_ENV = """
from alembic import context
from sqlalchemy import create_engine

import hypercube_queue_sql

engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=hypercube_queue_sql.metadata())
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
def alembic(tmp_path: Path, url: str) -> Config:
    """The project of an application that migrates with Alembic."""
    scripts = tmp_path / "migrations"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text(_ENV)
    (scripts / "script.py.mako").write_text(textwrap.dedent(_MAKO))
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url)
    return config


def test_alembic_makes_the_tables(alembic: Config, file: Path, url: str) -> None:
    """Autogenerate writes a migration, its upgrade makes what create_tables makes, no less."""
    command.revision(alembic, "queue", autogenerate=True)
    command.upgrade(alembic, "head")
    command.check(alembic)
    with open_queue(f"{url}?create_tables=false") as queue:
        queue.push(Message("work", b"0"))
        [delivery] = queue.pop("work")
        queue.ack(delivery)
        queue.push(Message("work", b"1"))
    with closing(sqlite3.connect(file)) as connection:
        layout = connection.execute(f"SELECT version FROM {DEFAULT_TABLE}_layout").fetchall()
        numbers = connection.execute(f"SELECT seq FROM {DEFAULT_TABLE}").fetchall()

    assert layout == [(2,)]
    assert numbers == [(2,)]
    command.check(alembic)
    command.downgrade(alembic, "base")
    assert [name for name, _ in _schema(file)] == []


_OWN = """
revision = "own"
down_revision = None

from alembic import op

import hypercube_queue_sql

def upgrade():
    hypercube_queue_sql.metadata().create_all(op.get_bind())

def downgrade():
    hypercube_queue_sql.metadata().drop_all(op.get_bind())
"""


@pytest.mark.parametrize("exist", [False, True])
def test_a_migration_of_ones_own_adopts_tables_that_exist(
    alembic: Config, tmp_path: Path, file: Path, url: str, exist: bool
) -> None:
    """As the README has it: it makes what is missing, keeps what is there, and can drop both."""
    (tmp_path / "migrations" / "versions" / "own.py").write_text(_OWN)
    if exist:
        with open_queue(url) as queue:
            queue.push(Message("work", b"0", id="kept"))
    before = _schema(file) if exist else None
    command.upgrade(alembic, "head")
    with open_queue(f"{url}?create_tables=false") as queue:
        assert [each.id for each in queue.pop("work", wait=NOTHING)] == ["kept"] * exist
        queue.push(Message("work", b"1"))
    command.check(alembic)

    with closing(sqlite3.connect(file)) as connection:
        recorded = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert recorded == [("own",)]
    if exist:
        assert _schema(file) == before
    command.downgrade(alembic, "base")
    assert _schema(file) == []
