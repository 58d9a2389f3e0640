"""The command `hypercube`, but for `work`."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from hypercube_jobs import Jobs, PermanentError, Worker, __version__
from hypercube_jobs._command import _app, app, main
from hypercube_queue import Guarantees, Message, Queue, open_queue


@dataclass
class Pay:
    """The job of these tests."""

    order: int


def hypercube(*arguments: object) -> Result:
    """Run the command as a shell would: with modules that nobody has imported."""
    for name in [name for name in sys.modules if name.startswith("shop_")]:
        del sys.modules[name]
    return CliRunner().invoke(app, [str(each) for each in arguments])


def output_of(*arguments: object) -> str:
    """What a command that succeeds writes."""
    result = hypercube(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return str(result.stdout)


def error_of(code: int, *arguments: object) -> str:
    """The one line that a command which fails with `code` writes."""
    result = hypercube(*arguments)
    assert result.exit_code == code, result.output
    assert result.stderr.startswith("hypercube: ")
    assert result.stderr.count("\n") == 1
    return str(result.stderr.removeprefix("hypercube: ").strip())


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine that runs the tests would like to see in colour."""
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL of the test's own, in the environment."""
    url = f"memory://{uuid.uuid4()}"
    monkeypatch.setenv("HYPERCUBE_URL", url)
    return url


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with open_queue(url) as opened:
        yield opened


@pytest.fixture
def jobs(queue: Queue) -> Jobs:
    jobs = Jobs(queue)

    @jobs.handler("pay", retries=0)
    def pay(job: Pay) -> None:
        text = "no money\x1b[31m\nand no credit" if job.order % 2 else "no order"
        raise PermanentError(text)

    return jobs


def fail(jobs: Jobs, *orders: int, queue: str = "default") -> None:
    """Let these orders die one after another, under the ids o1, o2 and so on."""
    for order in orders:
        jobs.dispatch(Pay(order), id=f"o{order}", queue=queue)
        Worker(jobs, queues=[queue], stop_when_empty=True).run()


# failed


def test_failed_lists_the_newest_first(jobs: Jobs) -> None:
    """One line for each job: what it was, when it died and why, all on one line."""
    fail(jobs, 1, 2)
    lines = output_of("failed").splitlines()
    assert lines[0].split() == ["id", "kind", "queue", "attempt", "died", "at", "(UTC)", "reason"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["o2", "pay", "default", "1"],
        ["o1", "pay", "default", "1"],
    ]
    assert lines[1].endswith("  PermanentError: no order")
    assert lines[2].endswith("  PermanentError: no money\N{REPLACEMENT CHARACTER}[31m")


def test_a_terminal_gets_the_reason_on_lines_of_its_own(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id can be copied, and a long reason does not squeeze the columns."""
    fail(jobs, 2)
    monkeypatch.setenv("FORCE_COLOR", "1")
    heading, facts, reason = output_of("failed").splitlines()
    assert "reason" not in heading
    assert facts.startswith("o2  pay   default        1  ")
    assert "PermanentError: no order" in reason


def test_failed_merges_queues_by_time(jobs: Jobs) -> None:
    """The newest death comes first whatever its queue, and --queue limits the list."""
    fail(jobs, 1, queue="a")
    fail(jobs, 2, queue="b")
    fail(jobs, 3, queue="a")
    every = [job["id"] for job in json.loads(output_of("failed", "--json"))]
    only = [job["id"] for job in json.loads(output_of("failed", "-q", "a", "--json"))]
    assert (every, only) == (["o3", "o2", "o1"], ["o3", "o1"])


def test_failed_says_that_there_are_more(jobs: Jobs) -> None:
    """A list that ends early does not look complete."""
    fail(jobs, 1, 2, 3)
    assert output_of("failed", "--limit", 2).splitlines()[-1] == (
        "there are more than these 2; --limit shows them"
    )
    assert len(output_of("failed", "--limit", 3).splitlines()) == 4


def test_failed_shows_one_job_with_its_traceback(jobs: Jobs) -> None:
    """The whole text of the error, and where it was raised."""
    fail(jobs, 1)
    text = output_of("failed", "o1")
    assert "id:            o1\nkind:          pay\n" in text
    assert "no money\N{REPLACEMENT CHARACTER}[31m\n               and no credit" in text
    assert "raise PermanentError(text)" in text


def test_failed_as_json_has_the_whole_record(jobs: Jobs) -> None:
    """Programs get everything but the payload, with times in ISO 8601."""
    fail(jobs, 2)
    [job] = json.loads(output_of("failed", "o2", "--json"))
    keys = "id kind namespace queue attempt dispatched_at died_at reason failure"
    assert list(job) == keys.split()
    assert (job["id"], job["queue"], job["attempt"]) == ("o2", "default", 1)
    assert (job["failure"]["text"], job["failure"]["attempt"]) == ("no order", 1)
    assert job["died_at"].endswith("+00:00")


def test_failed_tells_the_jobs_of_namespaces_apart(queue: Queue) -> None:
    """Two plugins may have the same kind."""
    queue.push(Message("default", b"{}", job_name="pay", namespace="shop", id="o1"))
    queue.dead_letter(*queue.pop("default"))
    assert output_of("failed").splitlines()[1].split()[:2] == ["o1", "shop:pay"]
    assert "kind:          shop:pay\n" in output_of("failed", "o1")
    [job] = json.loads(output_of("failed", "--json"))
    assert (job["kind"], job["namespace"]) == ("pay", "shop")


def test_failed_shows_messages_that_are_no_jobs(queue: Queue) -> None:
    """What another producer sent and somebody dead-lettered is listed too."""
    queue.push(Message("default", b"\xff", id="foreign", extra=b"\xff"))
    queue.dead_letter(*queue.pop("default"))
    assert "foreign" in output_of("failed")
    assert "no reason was recorded" in output_of("failed", "foreign")


def test_a_kind_of_somebody_else_forges_no_row(queue: Queue, url: str) -> None:
    """Neither by ends of lines that are none nor by what turns the direction of a text."""
    kinds = ["a\u2028o9  pay  default", "b\u202eyap", "c\u200bpay", "d\u2029"]
    for number, kind in enumerate(kinds):
        queue.push(Message("default", id=f"o{number}\u2028", job_name=kind))
    queue.dead_letter(*queue.pop("default", len(kinds)))

    lines = output_of("failed").split("\n")
    assert len(lines) == len(kinds) + 2
    assert all(line.isprintable() for line in lines)
    assert sorted(line.split()[0] for line in lines[1:-1]) == [
        f"o{number}\\u2028" for number in range(len(kinds))
    ]
    one = output_of("failed", "o0\u2028")
    assert "kind:          a\\u2028o9  pay  default\n" in one
    assert all(line.isprintable() for line in one.split("\n"))


def test_nothing_failed_is_said(queue: Queue) -> None:
    """An empty list is no empty output, but an empty array for programs."""
    assert output_of("failed") == "no job has failed\n"
    assert json.loads(output_of("failed", "--json")) == []


def test_a_payload_is_shown_on_request(jobs: Jobs, queue: Queue) -> None:
    """As the text that dispatch takes, or in base64 where it is none; never by itself."""
    fail(jobs, 1)
    queue.push(Message("default", b"\xff", id="foreign"))
    queue.dead_letter(*queue.pop("default"))
    assert 'payload:       {"order":1}\n' in output_of("failed", "o1", "--payload")
    assert "payload:       (in base64) /w==\n" in output_of("failed", "foreign", "--payload")
    assert "payload" not in output_of("failed", "o1")
    every = json.loads(output_of("failed", "--json", "--payload"))
    assert [(job["payload"], job["payload_base64"]) for job in every] == [
        (None, "/w=="),
        ('{"order":1}', None),
    ]
    assert error_of(2, "failed", "--payload") == "--payload goes with an ID, or with --json"


# retry and forget


@pytest.mark.parametrize(("command", "verb"), [("retry", "retried"), ("forget", "forgot")])
def test_ids_are_looked_for_in_all_queues(jobs: Jobs, command: str, verb: str) -> None:
    """Nobody has to know which queue an id belongs to, and the others stay dead."""
    fail(jobs, 1, 2, queue="a")
    fail(jobs, 3, queue="b")
    assert output_of(command, "o1", "o3") == f"{verb} 2 jobs\n"
    assert [job["id"] for job in json.loads(output_of("failed", "--json"))] == ["o2"]


@pytest.mark.parametrize(("command", "verb"), [("retry", "retried"), ("forget", "forgot")])
def test_all_means_all_of_the_queues_named(jobs: Jobs, command: str, verb: str) -> None:
    """--all takes the dead of every queue, or of those that --queue names."""
    fail(jobs, 1, queue="a")
    fail(jobs, 2, 3, queue="b")
    assert output_of(command, "--all", "--queue", "a") == f"{verb} 1 job\n"
    assert output_of(command, "--all") == f"{verb} 2 jobs\n"
    assert output_of(command, "--all") == f"{verb} 0 jobs\n"


def test_more_than_a_page_is_forgotten(queue: Queue) -> None:
    """--all does not stop at the first page of the store."""
    queue.push(*(Message("default", id=f"{number}") for number in range(1_100)))
    queue.dead_letter(*queue.pop("default", 1_100))
    assert json.loads(output_of("forget", "--all", "--json")) == {"forgot": 1_100, "missing": []}
    assert output_of("failed") == "no job has failed\n"


def test_a_retried_job_is_ready_again(jobs: Jobs, queue: Queue) -> None:
    """What retry brings back runs as if it were new."""
    fail(jobs, 1)
    output_of("retry", "o1")
    assert [message.attempt for message in queue.pop("default")] == [1]


@pytest.mark.parametrize("command", ["retry", "forget"])
def test_an_unknown_id_is_an_error_and_the_others_are_done(jobs: Jobs, command: str) -> None:
    """The exit code tells scripts, and the known ids are not held back."""
    fail(jobs, 1)
    assert error_of(1, command, "o1", "o9") == "no failed job has the id 'o9'"
    assert output_of("failed") == "no job has failed\n"


def test_failed_of_an_unknown_id_is_an_error(queue: Queue) -> None:
    """Nothing to show is not success."""
    assert error_of(1, "failed", "o9") == "no failed job has the id 'o9'"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("retry",), "which failed jobs? Give their ids, or --all"),
        (("forget",), "which failed jobs? Give their ids, or --all"),
        (("retry", "o1", "--all"), "ids and --all are two ways to say which failed jobs; give one"),
    ],
)
def test_ids_or_all_must_be_chosen(queue: Queue, arguments: tuple[str, ...], text: str) -> None:
    """No ids by mistake does not mean all of them."""
    assert text in error_of(2, *arguments)


# stats


def test_stats_counts_each_queue(queue: Queue) -> None:
    """Every queue that holds a message, by name."""
    queue.push(Message("b"), Message("b"), Message("a", delay=timedelta(hours=1)))
    queue.push(Message("c"), Message("c"))
    [dead, _held] = queue.pop("c", 2)
    queue.dead_letter(dead)
    assert [line.split() for line in output_of("stats").splitlines()] == [
        ["queue", "ready", "delayed", "in", "flight", "dead"],
        ["a", "0", "1", "0", "0"],
        ["b", "2", "0", "0", "0"],
        ["c", "0", "0", "1", "1"],
    ]
    assert json.loads(output_of("stats", "--json", "--queue", "c")) == [
        {"name": "c", "ready": 0, "delayed": 0, "in_flight": 1, "dead": 1}
    ]


def test_empty_stats_are_said(queue: Queue) -> None:
    """No queue is an answer too."""
    assert output_of("stats") == "no queue holds a job\n"
    assert json.loads(output_of("stats", "--json")) == []


@pytest.fixture
def two_looks(monkeypatch: pytest.MonkeyPatch, queue: Queue) -> list[float]:
    """Between the looks of --watch a job is pushed; the second one is followed by Ctrl-C."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt
        queue.push(Message("a"))

    monkeypatch.setattr("hypercube_jobs._command._stats.time.sleep", sleep)
    return pauses


def test_stats_can_be_watched(two_looks: list[float]) -> None:
    """In a pipe each look adds lines, and Ctrl-C is no failure."""
    lines = output_of("stats", "--watch", "--interval", "0.5").splitlines()
    assert (
        lines[0].split()
        == lines[1].split()
        == ["queue", "ready", "delayed", "in", "flight", "dead"]
    )
    assert lines[2].split() == ["a", "1", "0", "0", "0"]
    assert two_looks == [0.5, 0.5]


def test_watched_stats_as_json_are_a_line_for_each_look(two_looks: list[float]) -> None:
    """With the moment, for whoever draws it."""
    looks = [json.loads(line) for line in output_of("stats", "-w", "--json").splitlines()]
    assert [each["queues"] for each in looks] == [
        [],
        [{"name": "a", "ready": 1, "delayed": 0, "in_flight": 0, "dead": 0}],
    ]
    assert all(each["at"].endswith("+00:00") for each in looks)


def test_a_terminal_shows_watched_stats_in_place(
    two_looks: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is drawn over the one before."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    output = output_of("stats", "--watch")
    assert "no queue holds a job" in output
    assert "Ctrl-C ends" in output
    assert "\x1b[1A" in output


def test_an_interval_is_above_zero(queue: Queue) -> None:
    """Nobody wants to ask a server as often as can be."""
    assert "--interval is 0; it is a number" in error_of(2, "stats", "--watch", "--interval", 0)


# queues and guarantees


def test_queues_are_listed(queue: Queue) -> None:
    """One name on a line, for scripts."""
    queue.push(Message("b"), Message("a\u202e"))
    assert output_of("queues") == "a\\u202e\nb\n"
    assert json.loads(output_of("queues", "--json")) == ["a\u202e", "b"]


def test_guarantees_are_shown_without_a_backend() -> None:
    """What the driver promises is known before there is a server."""
    url = "sqlite:////nowhere/at/all.db"
    lines = dict(
        line.split(maxsplit=1) for line in output_of("guarantees", "--url", url).splitlines()
    )
    assert (lines["durable"], lines["ordering"], lines["max_delay"]) == (
        "yes",
        "fifo",
        "3650 days, 0:00:00",
    )
    assert (lines["retention"], lines["TransactionalPusher"]) == ("-", "yes")
    found = json.loads(output_of("guarantees", "--url", "memory://", "--json"))
    assert found["guarantees"]["durable"] is False
    assert found["guarantees"]["delay_lateness"] == 1.0
    assert found["capabilities"]["TransactionalPusher"] is False


# schema


def test_tables_are_created_on_demand(tmp_path: Path) -> None:
    """Once, and again without harm."""
    url = f"sqlite:///{tmp_path}/jobs.db?create_tables=false"
    assert "there is no file" in error_of(1, "stats", "--url", url)
    for _ in range(2):
        assert output_of("schema", "create", "--url", url) == "the tables are there\n"
    assert output_of("stats", "--url", url) == "no queue holds a job\n"


def test_the_statements_for_a_migration_are_written(tmp_path: Path) -> None:
    """They make the tables that the driver then takes for its own."""
    url = f"sqlite:///{tmp_path}/jobs.db?create_tables=false"
    script = output_of("schema", "sql", "--url", url)
    assert not (tmp_path / "jobs.db").exists()
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.executescript(script)
    assert output_of("stats", "--url", url) == "no queue holds a job\n"
    statements = json.loads(output_of("schema", "sql", "--url", url, "--json"))
    assert [f"{statement};\n\n" for statement in statements] == [
        f"{part};\n\n" for part in script.split(";\n\n")[:-1]
    ]


@pytest.mark.parametrize("command", ["create", "sql"])
def test_without_tables_there_is_no_schema(url: str, command: str) -> None:
    """And what to do in place of it is said."""
    assert "this queue's driver has no tables to create" in error_of(1, "schema", command)


@pytest.mark.parametrize(
    "arguments",
    [
        ("stats",),
        ("stats", "--queue", "billing"),
        ("queues",),
        ("failed",),
        ("failed", "x"),
        ("retry", "x"),
        ("retry", "--all"),
        ("retry", "--all", "--queue", "billing"),
        ("forget", "x"),
        ("forget", "--all", "--queue", "billing"),
    ],
)
@pytest.mark.parametrize("option", ["", "?create_tables=true"])
def test_looking_at_a_mistyped_file_makes_none(
    tmp_path: Path, arguments: tuple[str, ...], option: str
) -> None:
    """Not by any command that only looks, nor by one that finds nothing to change."""
    url = f"sqlite:///{tmp_path}/typo.db{option}"
    assert f"there is no file {tmp_path}/typo.db; is its name right" in error_of(
        1, *arguments, "--url", url
    )
    assert list(tmp_path.iterdir()) == []


def test_looking_at_a_file_of_something_else_makes_no_tables(tmp_path: Path) -> None:
    """A name that leads to another database is mistyped, too."""
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE users (id)")
    for command in ("stats", "queues", "failed"):
        text = error_of(1, command, "--url", f"sqlite:///{file}")
        assert "table hypercube_messages or hypercube_messages_layout does not exist" in text
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("users",)]


@pytest.mark.parametrize("kind", ["memory", "inline"])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("work", "-p0"), "no other process can dispatch the jobs that are waited for here"),
        (("dispatch", "pay", "{}"), "no other process can work on what is dispatched here"),
    ],
)
def test_a_queue_in_memory_is_refused_where_nobody_would_see_its_jobs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    arguments: tuple[str, ...],
    text: str,
) -> None:
    """It is no queue between processes, and the first thing that many try."""
    name = f"shop_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        "from hypercube_jobs import Jobs\njobs = Jobs.from_env()\n"
    )
    monkeypatch.setenv("HYPERCUBE_URL", f"{kind}://")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command, *rest = arguments
    assert text in error_of(2, command, f"{name}:jobs", *rest)


# dispatch


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """A queue that processes share, in the environment."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    monkeypatch.setenv("HYPERCUBE_URL", url)
    with open_queue(url) as opened:
        yield opened


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Queue) -> str:
    """An application, by its reference."""
    name = f"shop_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        "from dataclasses import dataclass\n"
        "from hypercube_jobs import Jobs\n"
        "@dataclass\n"
        "class Pay: order: int\n"
        "jobs = Jobs.from_env()\n"
        "jobs.declare('pay', Pay, queue='billing')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:jobs"


def test_a_job_is_dispatched(shop: str, shared: Queue) -> None:
    """It goes where its kind says, and its id is written."""
    id = output_of("dispatch", shop, "pay", '{"order": 7}').strip()
    [message] = shared.pop("billing")
    assert (message.id, message.job_name, message.payload) == (id, "pay", b'{"order":7}')


def test_a_dispatch_takes_the_options_of_a_dispatch(shop: str, shared: Queue) -> None:
    """All that can be said on a command line."""
    options = ("-q", "slow", "--retries", 9, "--timeout", 2.5, "--delay", 3600, "--id", "mine")
    assert output_of("dispatch", shop, "pay", '{"order": 7}', *options) == "mine\n"
    assert shared.stats("slow").delayed == 1
    options = ("-q", "slow", "--retries", 9, "--timeout", 2.5, "--id", "now", "--json")
    assert json.loads(output_of("dispatch", shop, "pay", '{"order": 7}', *options)) == {
        "id": "now",
        "queue": "slow",
        "kind": "pay",
        "created": True,
    }
    record = json.loads(shared.pop("slow")[0].extra)
    assert (record["retries"], record["timeout"]) == (9, 2_500_000)


def test_an_id_that_is_taken_is_no_failure(shop: str, shared: Queue) -> None:
    """Scripts may repeat themselves; it is said on standard error."""
    for created in (True, False):
        result = hypercube("dispatch", shop, "pay", '{"order": 7}', "--id", "once")
        assert (result.exit_code, result.stdout) == (0, "once\n")
        assert ("stays as it is" in result.stderr) is not created


def test_a_payload_may_come_from_standard_input(shop: str, shared: Queue) -> None:
    """So that no secret is among the arguments of a process."""
    result = CliRunner().invoke(app, ["dispatch", shop, "pay", "-"], input='{"order": 8}')
    assert result.exit_code == 0
    assert shared.pop("billing")[0].payload == b'{"order":8}'


@pytest.mark.parametrize(
    ("code", "arguments", "text"),
    [
        (2, ("pay", "{order: 7}"), "the payload is no JSON: Expecting property name"),
        (2, ("pay", "[7]"), "the payload is no JSON object with the fields of the job"),
        (2, ("pay", '{"order": 7}', "--retries", -1), "--retries is -1; it is from 0"),
        (2, ("pay", '{"order": 7}', "--delay", "nan"), "--delay is nan; it is a number of seconds"),
        (2, ("pay", '{"order": 7}', "--delay", -1), "--delay is -1; it is a number of seconds"),
        (2, ("pay", '{"order": 7}', "--timeout", 0), "--timeout is 0; it is a number of seconds a"),
        (2, ("pay", '{"order": 7}', "--id", ""), "--id is empty"),
        (2, ("pay", '{"order": 7}', "--queue", "a\nb"), "--queue 'a\\nb' has the character U+000A"),
        (1, ("pay", '{"order": "seven"}'), "order: Input should be a valid integer"),
        (1, ("pya", "{}"), "no kind 'pya' is declared; declared are: pay"),
    ],
)
def test_what_cannot_be_dispatched_is_told(
    shop: str, shared: Queue, code: int, arguments: tuple[str, ...], text: str
) -> None:
    """In one line, and nothing is stored."""
    assert text in error_of(code, "dispatch", shop, *arguments)
    assert shared.queues() == []


# Which queue


def test_a_url_may_be_given_or_set(queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--url wins over the environment."""
    queue.push(Message("billing"))
    assert "billing" in output_of("stats")
    monkeypatch.setenv("HYPERCUBE_URL", "memory://")
    assert output_of("stats") == "no queue holds a job\n"
    assert "billing" in output_of("stats", "--url", url)


def test_the_queue_of_an_application_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """--app takes the queue that the application's jobs are on, found from the folder."""
    (tmp_path / "shop_stats.py").write_text(
        "from hypercube_jobs import Jobs\n"
        "from hypercube_queue import Message, open_queue\n"
        "class shop: jobs = Jobs(open_queue('memory://'))\n"
        "shop.jobs.queue.push(Message('billing'))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("HYPERCUBE_URL", raising=False)
    assert "billing" in output_of("stats", "--app", "shop_stats:shop.jobs")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("stats", "{app}"), "billing"),
        (("queues", "{app}"), "billing"),
        (("failed", "{app}"), "no order"),
        (("failed", "{app}", "o2", "o4"), "o4"),
        (("guarantees", "{app}"), "durable"),
        (("schema", "sql", "{app}"), "CREATE TABLE"),
        (("schema", "create", "{app}"), "the tables are there"),
        (("retry", "{app}", "o2"), "retried 1 job"),
        (("retry", "{app}", "--all"), "retried 2 jobs"),
        (("forget", "{app}", "o4", "o2"), "forgot 2 jobs"),
        (("forget", "--app", "{app}", "o4"), "forgot 1 job"),
    ],
)
def test_every_command_takes_an_application_as_its_argument(
    shop: str,
    shared: Queue,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    text: str,
) -> None:
    """As `work` does; what follows are ids."""
    jobs = Jobs(shared)

    @jobs.handler("pay", retries=0)
    def pay(job: Pay) -> None:
        raise PermanentError("no order")

    fail(jobs, 2, 4, queue="billing")
    output = output_of(*(each.format(app=shop) for each in arguments))
    assert text in output
    assert ("o2" in output) == (arguments[0] == "failed")


def test_an_id_may_look_like_an_application(queue: Queue, jobs: Jobs, url: str) -> None:
    """With --url it is one, and so it is where no such module is found."""
    for order in ("invoice:a", "invoice:b"):
        jobs.dispatch(Pay(2), id=order)
    Worker(jobs, stop_when_empty=True).run()
    assert output_of("retry", "invoice:a") == "retried 1 job\n"
    result = hypercube("retry", "--url", url, "json:loads", "invoice:b")
    assert (result.exit_code, result.stdout) == (1, "retried 1 job\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "which queue? Give --url, such as sqlite:///jobs.db, set HYPERCUBE_URL, or give"),
        (("--url", "jobs.db"), "a queue URL starts with a scheme"),
        (("--url", "nosuch://host"), "no installed driver offers the scheme 'nosuch'"),
        (("--url", "memory://?x=1"), "the memory URL has the unknown option 'x'"),
        (
            ("--url", "memory://", "--app", "a:b"),
            "--url and an application each name a queue; give one of them",
        ),
        (("--url", "memory://", "--queue", "a\nb"), "queue_name"),
        (("a:b", "--app", "a:b"), "the argument and --app each name an application"),
        (("sqlite://user:hunter2@host/",), "a URL is no application: that is MODULE:ATTRIBUTE"),
    ],
)
def test_a_queue_that_cannot_be_had_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    """Exit code 2, and one line that says what to change."""
    monkeypatch.delenv("HYPERCUBE_URL", raising=False)
    assert text in error_of(2, "stats", *arguments)


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither errors nor help show the URL that they found."""
    secret = "postgresql://user:hunter2@host:port/db"
    monkeypatch.setenv("HYPERCUBE_URL", secret)
    for arguments in [("stats",), ("stats", "--help"), ("stats", "--url", secret), ("retry",)]:
        assert "hunter2" not in hypercube(*arguments).output


# Drivers that can do less


class Bare:
    """A queue without any capability."""

    guarantees = Guarantees(durable=False)

    def __init__(self) -> None:
        self.redriven: list[str] = []

    def nothing(self, *_arguments: object, **_options: object) -> None:
        """All that is never called here."""

    push = pop = ack = retry = dead_letter = close = __exit__ = nothing

    def __enter__(self) -> Any:
        return self


class Brings(Bare):
    """It can redrive, and no more."""

    def redrive(self, queue_name: str, count: int) -> int:
        left = 3 - len(self.redriven)
        self.redriven += [queue_name] * min(count, left)
        return min(count, left)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("stats",), "cannot count messages; use the broker's own tools"),
        (("stats", "--watch"), "cannot count messages; use the broker's own tools"),
        (("queues",), "cannot list its queues; use the broker's own tools"),
        (("schema", "create"), "this queue's driver has no tables to create"),
        (("failed",), "`hypercube retry --all --queue NAME` gives all of them back"),
        (("retry", "a"), "`hypercube retry --all --queue NAME` gives all of them back"),
        (("forget", "--all"), "cannot tell its dead letters apart"),
        (("retry", "--all"), "cannot list its queues; name one with --queue"),
        (("retry", "--all", "-q", "a"), "cannot redrive; use the broker's own tools"),
    ],
)
def test_a_missing_capability_is_said_with_what_to_use(
    url: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    """Exit code 1, and what to do in place of it."""
    monkeypatch.setattr("hypercube_jobs._command._source.open_queue", lambda _url: Bare())
    assert text in error_of(1, *arguments)


def test_retry_all_needs_no_dead_letter_store(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redriving a named queue as a whole is all that some brokers offer."""
    brings = Brings()
    monkeypatch.setattr("hypercube_jobs._command._source.open_queue", lambda _url: brings)
    assert output_of("retry", "--all", "-q", "a") == "retried 3 jobs\n"


# The command line itself


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there(shell: str) -> None:
    """For the shells that people use, with all commands."""
    environment = os.environ | {
        "_HYPERCUBE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "hypercube s",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "hypercube s",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    hypercube = Path(sys.executable).with_name("hypercube")
    done = subprocess.run([hypercube], env=environment, capture_output=True, text=True, check=False)
    output = done.stdout
    assert "stats" in output
    assert "schema" in output
    assert "failed" not in output


def test_the_version_is_shown() -> None:
    """The version is the distribution's."""
    assert output_of("--version") == f"hypercube-jobs {__version__}\n"


def test_an_unknown_option_is_a_usage_error() -> None:
    """Misspelt options are no surprise later."""
    result = hypercube("stats", "--quue", "a")
    assert (result.exit_code, "No such option" in result.stderr) == (2, True)


@pytest.fixture
def restored() -> Iterator[None]:
    commands, groups = list(app.registered_commands), list(app.registered_groups)
    yield
    app.registered_commands[:], app.registered_groups[:] = commands, groups


def hello() -> None:
    """Say hello."""
    typer.echo("hello")


#: No command at all.
number = 7


def leave() -> None:
    """What a module does that calls sys.exit() at import."""
    raise SystemExit(3)


greetings = typer.Typer(help="Greetings.")
greetings.command("hello")(hello)
greetings.command("goodbye")(hello)


class Loadable(EntryPoint):
    """Finds what is in this module, which has no name to be imported by."""

    def load(self) -> object:
        return leave() if self.attr == "leave" else globals()[self.attr]


def test_other_distributions_add_commands(
    restored: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function is a command, a Typer application a group, and one line says what is neither."""
    points = [
        Loadable("greet", "tests:hello", _app.ENTRY_POINT_GROUP),
        Loadable("greetings", "tests:greetings", _app.ENTRY_POINT_GROUP),
        Loadable("broken", "tests:missing", _app.ENTRY_POINT_GROUP),
        Loadable("leaving", "tests:leave", _app.ENTRY_POINT_GROUP),
        Loadable("number", "tests:number", _app.ENTRY_POINT_GROUP),
        Loadable("stats", "tests:hello", _app.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(_app, "entry_points", lambda group: points)
    monkeypatch.setattr("sys.argv", ["hypercube", "greet"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    captured = capsys.readouterr()
    assert captured.out == "hello\n"
    assert captured.err.splitlines() == [
        "hypercube: the command broken (tests:missing) cannot be loaded: KeyError('missing')",
        "hypercube: the command leaving (tests:leave) cannot be loaded: SystemExit(3)",
        "hypercube: the command number (tests:number) is no function and no typer.Typer, but int",
        "hypercube: the command stats (tests:hello) has a name that is taken",
    ]
    assert output_of("greetings", "goodbye") == "hello\n"
