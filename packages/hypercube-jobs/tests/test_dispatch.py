"""Storing jobs."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import pytest
import typing_extensions
from pydantic import BaseModel, Field
from sqlalchemy import create_engine

from hypercube_jobs import (
    Constant,
    DispatchResult,
    Exponential,
    InvalidPayload,
    Jobs,
    NotSupported,
    Observer,
)
from hypercube_queue import BackendError, Guarantees, InvalidArgument, Message
from hypercube_queue_memory import MemoryQueue
from hypercube_queue_sql import SQLQueue

NOW = datetime(2026, 7, 1, 12, 30, tzinfo=UTC)
AT_ONCE = timedelta(0)


@dataclass
class Invoice:
    """A dataclass."""

    order_id: int
    note: str = ""


class Ping(typing_extensions.TypedDict):
    """A TypedDict."""

    host: str


class Colour(Enum):
    """A type that JSON lacks."""

    RED = "red"


class Everything(BaseModel):
    """A model of types that JSON lacks."""

    at: datetime
    price: Decimal
    id: UUID
    colour: Colour
    tags: set[str]
    data: bytes
    length: timedelta
    number: float
    named: int = Field(alias="as")


@pytest.fixture
def jobs() -> Jobs:
    made = Jobs(MemoryQueue(), clock=lambda: NOW)
    made.declare("invoice", Invoice, queue="billing", retries=5, timeout=timedelta(seconds=90))
    made.declare("ping", Ping)
    made.declare("everything", Everything)
    return made


def stored(jobs: Jobs, queue: str = "default") -> Message:
    (message,) = jobs.queue.pop(queue, wait=AT_ONCE)
    return message


def test_a_job_is_stored_as_json_with_its_kind_and_policy(jobs: Jobs) -> None:
    """The record has the whole layout that a dispatch knows about."""
    result = jobs.dispatch(Invoice(7))

    message = stored(jobs, "billing")
    assert result == DispatchResult(message.id, "billing", "invoice", created=True)
    assert (message.job_name, message.namespace) == ("invoice", "")
    assert json.loads(message.payload) == {"order_id": 7, "note": ""}
    assert json.loads(message.extra) == {
        "v": 1,
        "retries": 5,
        "timeout": 90_000_000,
        "dispatched_at": 1_782_909_000_000_000,
    }


def test_options_of_a_dispatch_win_and_travel(jobs: Jobs) -> None:
    """The backoff only if it was given."""
    jobs.dispatch(
        Invoice(7),
        queue="urgent",
        id="mine",
        retries=0,
        backoff=Exponential(timedelta(seconds=2), jitter=0.5),
        timeout=timedelta(hours=1),
    )

    message = stored(jobs, "urgent")
    record = json.loads(message.extra)
    assert message.id == "mine"
    assert record["retries"] == 0
    assert record["timeout"] == 3_600_000_000
    assert record["backoff"] == {"exponential": 2_000_000, "cap": 3_600_000_000, "jitter": 0.5}


def test_a_delay_makes_it_invisible(jobs: Jobs) -> None:
    """It counts on the backend's clock."""
    jobs.dispatch(Invoice(7), delay=timedelta(hours=1))

    assert jobs.queue.stats("billing").delayed == 1


def test_a_second_dispatch_under_one_id_creates_nothing(jobs: Jobs) -> None:
    """It is an answer and not an exception, as long as the queue holds the first."""
    first = jobs.dispatch(Invoice(1), id="order-1")
    second = jobs.dispatch(Invoice(2), id="order-1")
    other_queue = jobs.dispatch(Invoice(3), id="order-1", queue="other")

    assert (first.created, second.created, other_queue.created) == (True, False, True)
    message = stored(jobs, "billing")
    assert json.loads(message.payload)["order_id"] == 1
    jobs.queue.ack(message)
    assert jobs.dispatch(Invoice(4), id="order-1").created


def test_typed_dicts_and_mappings_are_dispatched_by_kind(jobs: Jobs) -> None:
    """A mapping may stand for any type; it is checked like the type itself."""
    jobs.dispatch_kind("ping", {"host": "a"})
    jobs.dispatch_kind("invoice", {"order_id": 3})
    jobs.dispatch_kind("invoice", Invoice(4))

    assert json.loads(stored(jobs).payload) == {"host": "a"}
    assert json.loads(stored(jobs, "billing").payload) == {"order_id": 3}
    assert json.loads(stored(jobs, "billing").payload)["order_id"] == 4


def test_types_that_json_lacks_come_back_as_they_were(jobs: Jobs) -> None:
    """Strict means strict about types, not about how JSON writes them."""
    job = Everything(
        at=NOW,
        price=Decimal("1.10"),
        id=UUID(int=5),
        colour=Colour.RED,
        tags={"a"},
        data=b"abc",
        length=timedelta(seconds=1.5),
        number=1.0,
        **{"as": 3},
    )
    jobs.dispatch(job)

    assert jobs.kind("everything").codec.decode(stored(jobs).payload) == job


@pytest.mark.parametrize(
    ("kind", "job", "text"),
    [
        ("invoice", Invoice("secret"), "order_id: Input should be a valid integer"),
        ("invoice", Invoice(1.0), "order_id: Input should be a valid integer"),
        ("invoice", {"order_id": "secret"}, "order_id: Input should be a valid integer"),
        ("invoice", {}, "order_id: Field required"),
        ("invoice", 7, "expected Invoice or a mapping, got int"),
        ("invoice", Invoice(1, "\ud800"), "surrogate"),
        ("ping", {}, "host: Field required"),
        ("ping", {"host": object()}, "Unable to serialize unknown type"),
        ("ping", Invoice(1), "expected Ping or a mapping, got Invoice"),
    ],
)
def test_a_job_of_the_wrong_shape_is_refused(jobs: Jobs, kind: str, job: object, text: str) -> None:
    """The error says where, and shows no value; nothing is stored."""
    with pytest.raises(InvalidPayload, match=re.escape(text)) as raised:
        jobs.dispatch_kind(kind, job)

    assert "secret" not in str(raised.value)
    assert jobs.queue.queues() == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": ""}, "queue_name is empty"),
        ({"delay": timedelta(seconds=-1)}, "it cannot be negative"),
        ({"delay": timedelta(days=5000)}, "this backend takes at most"),
        ({"delay": 5}, "delay is a timedelta, not int"),
        ({"id": "a\tb"}, "U+0009"),
        ({"id": 7}, "id is a str, not int"),
        ({"retries": -1}, "retries is -1"),
        ({"timeout": timedelta(seconds=-1)}, "it must be longer than zero"),
        ({"backoff": lambda n: n * AT_ONCE}, "it travels with the job, and a function cannot"),
    ],
)
def test_each_bad_option_of_a_dispatch_is_named(
    jobs: Jobs, options: dict[str, object], text: str
) -> None:
    """With its value and the remedy; nothing is stored."""
    with pytest.raises(InvalidArgument, match=re.escape(text)):
        jobs.dispatch(Invoice(1), **options)

    assert jobs.queue.queues() == []


def test_an_unknown_option_of_a_dispatch_is_refused(jobs: Jobs) -> None:
    """A misspelt option is no option."""
    with pytest.raises(TypeError, match="retires"):
        jobs.dispatch(Invoice(1), retires=3)


def test_errors_of_the_push_come_as_they_are(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job was dispatched, so nobody gets a batch of errors."""
    closed = MemoryQueue()
    closed.close()
    broken = Jobs(closed)
    broken.declare("invoice", Invoice)
    with pytest.raises(Exception, match="is closed") as raised:
        broken.dispatch(Invoice(1))
    assert type(raised.value).__name__ == "QueueClosed"

    class Down(MemoryQueue):
        def push(self, *messages: Message) -> None:
            raise BackendError("the server is away", outcome_unknown=True)

    down = Jobs(Down())
    down.declare("invoice", Invoice)
    with pytest.raises(BackendError, match="the server is away"):
        down.dispatch(Invoice(1))


def test_a_coroutine_dispatches_without_blocking_the_loop(jobs: Jobs) -> None:
    """Bad jobs are refused as ever."""

    async def main() -> DispatchResult:
        with pytest.raises(InvalidPayload):
            await jobs.dispatch_async(Invoice("x"))
        return await jobs.dispatch_async(Invoice(1), id="one")

    assert asyncio.run(main()) == DispatchResult("one", "billing", "invoice", created=True)


def test_without_shared_transactions_dispatch_within_is_refused(jobs: Jobs) -> None:
    """The job would exist whether the caller commits or not."""
    with pytest.raises(NotSupported, match="dispatch after the commit"):
        jobs.dispatch_within(object(), Invoice(1))

    assert jobs.queue.queues() == []


def test_a_job_of_a_transaction_exists_if_it_commits(tmp_path: Path) -> None:
    """And not otherwise; an id that is there leaves the transaction usable."""
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
    queue = SQLQueue(engine, create_tables=True)
    jobs = Jobs(queue)
    jobs.declare("invoice", Invoice)
    jobs.dispatch(Invoice(1), id="one")

    with engine.connect() as connection:
        jobs.dispatch_within(connection, Invoice(2), id="two")
        connection.rollback()
    with engine.begin() as connection:
        results = [
            jobs.dispatch_within(connection, Invoice(1), id="one"),
            jobs.dispatch_within(connection, Invoice(3), id="three", delay=timedelta(hours=1)),
        ]
        with pytest.raises(InvalidPayload):
            jobs.dispatch_within(connection, Invoice("x"))

    assert [result.created for result in results] == [False, True]
    stats = queue.stats("default")
    assert (stats.ready, stats.delayed) == (1, 1)
    queue.close()
    engine.dispose()


def test_messages_are_made_to_be_pushed_in_one_batch(jobs: Jobs) -> None:
    """They are what a dispatch would push."""
    jobs.queue.push(*(jobs.message(Invoice(n)) for n in range(3)))
    jobs.queue.push(jobs.message({"host": "a"}, kind="ping", queue="billing"))

    kinds = [message.job_name for message in jobs.queue.pop("billing", 10)]
    assert kinds == ["invoice", "invoice", "invoice", "ping"]


def test_observers_hear_of_dispatches_that_created_something(jobs: Jobs) -> None:
    """With attempt 0, and no payload."""
    heard = []

    class Listener(Observer):
        def dispatched(self, event: object) -> None:
            heard.append(event)

    jobs.add_observer(Listener())
    jobs.dispatch(Invoice(1), id="one", retries=2)
    jobs.dispatch(Invoice(1), id="one")

    (event,) = heard
    assert (event.id, event.kind, event.queue) == ("one", "invoice", "billing")
    assert (event.attempt, event.max_retries, event.final) == (0, 2, False)


def test_an_observer_that_raises_changes_nothing(
    jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged by its class."""

    class Broken(Observer):
        def dispatched(self, event: object) -> None:
            raise RuntimeError("no")

    jobs.add_observer(Broken())

    assert jobs.dispatch(Invoice(1)).created
    assert "the observer Broken raised" in caplog.text


def test_leases_that_cannot_be_extended_outlive_the_attempt() -> None:
    """Where nobody can prolong them, the message says at once how long it takes."""

    class Fixed(MemoryQueue):
        extend_visibility = None

    jobs = Jobs(Fixed())
    jobs.declare("invoice", Invoice, timeout=timedelta(minutes=10))
    jobs.dispatch(Invoice(1))

    assert stored(jobs).visibility_timeout == timedelta(minutes=11)


def test_the_backoff_of_a_kind_does_not_travel(jobs: Jobs) -> None:
    """The worker knows it, and may know better by then."""
    jobs.declare("other", Everything, backoff=Constant(timedelta(seconds=1)))

    assert "backoff" not in json.loads(jobs.message(Invoice(1)).extra)


class _RepeatingIds(MemoryQueue):
    """A queue that refuses no id."""

    @property
    def guarantees(self) -> Guarantees:
        return replace(super().guarantees, unique_ids="none")


def test_an_own_id_that_is_not_unique_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On each queue, and not where ids are assigned or refused when they are taken."""
    for unique, expected in ((True, 0), (False, 1), (False, 1)):
        caplog.clear()
        queue = MemoryQueue() if unique else _RepeatingIds()
        jobs = Jobs(queue)
        jobs.declare("invoice", Invoice)
        jobs.dispatch(Invoice(1))
        assert caplog.messages == []
        jobs.dispatch(Invoice(1), id="invoice-1")
        jobs.dispatch(Invoice(2), id="invoice-2", queue="other")
        assert len(caplog.messages) == expected
        assert all("'invoice-1'" in each and "unique_ids" in each for each in caplog.messages)
