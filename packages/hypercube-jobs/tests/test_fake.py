"""What applications test their dispatches with."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from typing_extensions import TypedDict

from hypercube_jobs import Constant, InlineQueue, Jobs, UnknownKind, Worker, current_attempt
from hypercube_jobs.testing import FakeQueue, fake, inline
from hypercube_queue import BatchError, InvalidArgument, Message, QueueClosed
from hypercube_queue_memory import MemoryQueue

pytest_plugins = ["hypercube_jobs.testing.fixtures"]

MINUTE = timedelta(minutes=1)


@dataclass
class Invoice:
    """A job."""

    order_id: int


@dataclass
class Here:
    """A job that looks where it runs."""


@dataclass
class HereAsync:
    """The same, asynchronously."""


class Ping(TypedDict):
    """Another job."""

    host: str


@pytest.fixture
def jobs() -> Jobs:
    """The application's."""
    made = Jobs(MemoryQueue())
    made.declare("invoice", Invoice, queue="billing", aliases=["bill"])
    made.declare("ping", Ping)
    return made


def test_dispatched_jobs_are_remembered(jobs: Jobs) -> None:
    """By type, decoded and in order, and as messages."""
    with fake(jobs) as queue:
        jobs.dispatch(Invoice(1))
        jobs.dispatch_kind("ping", {"host": "a"})
        jobs.dispatch(Invoice(2), delay=MINUTE)

        assert queue.dispatched(Invoice) == [Invoice(1), Invoice(2)]
        assert queue.dispatched(Ping) == [{"host": "a"}]
        kinds = [(message.job_name, message.delay) for message in queue.messages()]
        assert kinds == [("invoice", timedelta(0)), ("ping", timedelta(0)), ("invoice", MINUTE)]
        assert [message.job_name for message in queue.messages("default")] == ["ping"]
        assert (queue.pending(), queue.pending("billing"), jobs.pending("billing")) == (3, 2, 2)
        queue.clear()
        assert queue.dispatched(Invoice) == []
        assert queue.pending() == 3


def test_only_what_was_stored_is_remembered(jobs: Jobs) -> None:
    """A second dispatch under one id created nothing."""
    with fake(jobs) as queue:
        jobs.dispatch(Invoice(1), id="one")
        jobs.dispatch(Invoice(2), id="one")
        with pytest.raises(BatchError):
            queue.push(jobs.message(Invoice(3)), Message(""))

        assert queue.dispatched(Invoice) == [Invoice(1), Invoice(3)]


def test_a_remembered_message_is_nobodys_to_change(jobs: Jobs) -> None:
    """Each look gives new ones."""
    with fake(jobs) as queue:
        message = jobs.message(Invoice(1))
        queue.push(message)
        message.payload = b"changed"
        queue.messages()[0].payload = b"changed"

        assert queue.dispatched(Invoice) == [Invoice(1)]


def test_types_of_several_kinds_and_namespaces_are_told_apart(jobs: Jobs) -> None:
    """By kind, if one asks for it; a former name is the kind's as well."""
    jobs.declare("refund", Invoice)
    jobs.under("plugin").declare("invoice", Invoice)
    jobs.under("network").declare("invoice", Ping)
    with fake(jobs) as queue:
        jobs.dispatch_kind("invoice", Invoice(1))
        jobs.dispatch_kind("refund", Invoice(2))
        jobs.under("plugin").dispatch(Invoice(3))
        jobs.under("network").dispatch_kind("invoice", {"host": "a"})
        queue.push(Message("default", b'{"order_id": 4}', "bill"))

        assert queue.dispatched(Invoice) == [Invoice(1), Invoice(2), Invoice(3), Invoice(4)]
        assert queue.dispatched(Invoice, kind="refund") == [Invoice(2)]
        with pytest.raises(UnknownKind, match="no kind is declared for int"):
            queue.dispatched(int)
        with pytest.raises(UnknownKind, match="no kind named 'x' is declared for Invoice"):
            queue.dispatched(Invoice, kind="x")


def test_the_jobs_have_their_own_queue_again_afterwards(jobs: Jobs) -> None:
    """With their clock, whatever the test raised; the fake one is closed."""
    own, clock = jobs.queue, jobs.clock

    def test() -> None:
        with fake(jobs) as queue:
            queues.append(queue)
            assert jobs.queue is queue
            assert jobs.clock() == queue.now()
            raise ZeroDivisionError

    queues: list[FakeQueue] = []
    with pytest.raises(ZeroDivisionError):
        test()
    jobs.dispatch(Invoice(1))

    assert (jobs.queue, jobs.clock) == (own, clock)
    assert own.stats("billing").ready == 1
    with pytest.raises(QueueClosed):
        queues[0].pop("billing")


def test_it_holds_for_all_threads(jobs: Jobs) -> None:
    """A web server under test answers in a thread of its own."""
    with fake(jobs) as queue:
        thread = threading.Thread(target=jobs.dispatch, args=(Invoice(1),))
        thread.start()
        thread.join()

        assert queue.dispatched(Invoice) == [Invoice(1)]


def test_a_fake_queue_can_be_the_only_one() -> None:
    """`Jobs` takes it like any other."""
    jobs = Jobs(FakeQueue())
    jobs.declare("invoice", Invoice)
    jobs.dispatch(Invoice(1))

    assert jobs.queue.dispatched(Invoice) == [Invoice(1)]
    with pytest.raises(InvalidArgument, match="is for another Jobs object"):
        Jobs(jobs.queue)
    with pytest.raises(InvalidArgument, match="is for no jobs yet"):
        FakeQueue().dispatched(Invoice)


def test_its_jobs_can_be_worked(jobs: Jobs) -> None:
    """All that is ready, and what that dispatches, in all queues or in some; or by a Worker."""
    ran = []

    @jobs.handler("invoice")
    def invoice(job: Invoice) -> None:
        ran.append(job.order_id)
        if job.order_id == 1:
            jobs.dispatch(Invoice(10), queue="other")

    with fake(jobs) as queue:
        jobs.dispatch(Invoice(1))
        queue.work()
        assert ran == [1, 10]
        jobs.dispatch(Invoice(2))
        jobs.dispatch(Invoice(3), queue="other")
        queue.work("billing")
        assert ran == [1, 10, 2]
        Worker(jobs, queues=["other"], stop_when_empty=True).run()
        assert ran == [1, 10, 2, 3]
        assert queue.dispatched(Invoice) == [Invoice(1), Invoice(10), Invoice(2), Invoice(3)]
        assert queue.pending() == 0


def test_time_travels_when_the_test_says_so(jobs: Jobs) -> None:
    """Delays and backoffs pass, to the moment, and stamps follow."""
    numbers = []

    @jobs.handler("invoice")
    def invoice(job: Invoice) -> None:
        numbers.append(current_attempt().number)
        raise ValueError("no")

    with fake(jobs) as queue:
        began = queue.now()
        jobs.dispatch(
            Invoice(1), delay=timedelta(days=1), retries=1, backoff=Constant(timedelta(hours=1))
        )
        queue.travel(timedelta(days=1) - timedelta(microseconds=1))
        queue.work()
        assert numbers == []
        queue.travel(timedelta(microseconds=1))
        queue.work()
        assert numbers == [1]
        queue.travel(timedelta(hours=1))
        queue.work()
        assert numbers == [1, 2]
        (failed,) = jobs.failed("billing")
        assert failed.dispatched_at == began
        assert failed.failure.at == began + timedelta(days=1, hours=1)
        with pytest.raises(InvalidArgument, match="time does not go back"):
            queue.travel(-MINUTE)


def test_time_begins_at_the_present() -> None:
    """Stamps look as they do in production."""
    before = datetime.now(UTC)
    queue = FakeQueue()

    assert before <= queue.now() <= datetime.now(UTC)


def test_jobs_can_run_inline_for_a_test(jobs: Jobs) -> None:
    """And are stored again afterwards."""
    ran = []
    jobs.handler("invoice")(ran.append)
    with inline(jobs) as queue:
        jobs.dispatch(Invoice(1))
        assert isinstance(queue, InlineQueue)
        assert jobs.queue is queue
    jobs.dispatch(Invoice(2))

    assert ran == [Invoice(1)]


def test_a_fixture_gives_the_fake_queue(jobs: Jobs, fake_jobs: FakeQueue) -> None:
    """It needs no more than the fixture `jobs`."""
    jobs.dispatch(Invoice(1))

    assert fake_jobs.dispatched(Invoice) == [Invoice(1)]


def test_a_fixture_runs_jobs_inline(jobs: Jobs, inline_jobs: InlineQueue) -> None:
    """The same for inline mode."""
    ran = []
    jobs.handler("invoice")(ran.append)
    jobs.dispatch(Invoice(1))

    assert ran == [Invoice(1)]


def test_nothing_is_registered_with_pytest() -> None:
    """Whoever installs the package for production is not disturbed."""
    from importlib.metadata import entry_points

    names = {point.value.partition(".")[0] for point in entry_points(group="pytest11")}
    assert "hypercube_jobs" not in names


def test_handlers_run_in_the_calling_thread(jobs: Jobs) -> None:
    """So they see what is bound to it; asynchronous ones share one event loop."""
    where: list[object] = []
    here = threading.current_thread()

    @jobs.handler("here")
    def handle(job: Here) -> None:
        where.append(threading.current_thread())

    @jobs.handler("here_async")
    async def handle_async(job: HereAsync) -> None:
        assert threading.current_thread() is here
        where.append(asyncio.get_running_loop())

    with fake(jobs) as queue:
        for job in (Here(), HereAsync(), HereAsync()):
            jobs.dispatch(job)
        queue.work()

    assert where[0] is here
    assert len(where) == 3
    assert where[1] is where[2]


def test_within_an_event_loop_handlers_run_in_other_threads(jobs: Jobs) -> None:
    """It leaves its own thread no place for them."""
    where: list[object] = []

    @jobs.handler("here")
    def handle(job: Here) -> None:
        where.append(threading.current_thread())

    async def test() -> None:
        with fake(jobs) as queue:
            jobs.dispatch(Here())
            queue.work()

    asyncio.run(test())
    assert len(where) == 1
    assert where[0] is not threading.current_thread()


def test_a_handler_that_outlives_its_lease_runs_again(jobs: Jobs) -> None:
    """As with a worker, whose result is dropped then."""
    runs: list[int] = []

    with fake(jobs) as queue:

        @jobs.handler("here")
        def handle(job: Here) -> None:
            runs.append(1)
            if len(runs) == 1:
                queue.travel(timedelta(hours=1))

        jobs.dispatch(Here())
        queue.work()
        assert jobs.failed() == []
        assert queue.pending() == 0

    assert len(runs) == 2
