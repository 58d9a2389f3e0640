"""What a worker pops, and how far ahead."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from hypercube_jobs.worker._execution import Load
from hypercube_jobs.worker._held import Held, Holding
from hypercube_jobs.worker._intake import MAX_AHEAD, MAX_AHEAD_BYTES, Intake
from hypercube_queue import Guarantees, Message
from hypercube_queue_memory import MemoryQueue


@dataclass
class Note:
    """The job of these tests."""

    text: str


class Watched(MemoryQueue):
    """Notes the pops that brought something, and the most that was in flight."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.popped: list[int] = []
        self.released = 0

    def pop(self, *args: Any, **kwargs: Any) -> list[Message]:
        messages = super().pop(*args, **kwargs)
        if messages:
            self.popped.append(len(messages))
        return messages

    def release(self, *messages: Message) -> None:
        self.released += len(messages)
        super().release(*messages)


class NoRelease(MemoryQueue):
    """A driver without the capability Releaser."""

    release = None


def held(size: int = 100, *, lost: bool = False, quarantined: bool = False) -> Held:
    message = Message("default", b"x" * size, "note", attempt=2 if lost or quarantined else 1)
    if quarantined:
        message.extra = b'{"v":1,"deliveries":1,"quarantined":true}'
    return Held(message, None, exact_attempts=True, default_lease=30, now=0)


def load(**fields: Any) -> Load:
    idle = {
        "free": 1,
        "moving": 1,
        "running": 0,
        "overdue": 0,
        "waiting": 0,
        "waiting_bytes": 0,
        "ended": 0,
        "run_seconds": None,
    }
    return Load(**{**idle, **fields})


def experienced(size: int = 100) -> Intake:
    """One that has seen deliveries of this size."""
    intake = Intake()
    intake.sort([held(size)], 1, load(), 0)
    return intake


@pytest.mark.parametrize(
    ("fields", "room"),
    [
        ({}, 1),
        ({"free": 4, "moving": 4}, 4),
        ({"free": 0, "moving": 0}, 0),
        # Nothing is known of run times: only free slots count.
        ({"free": 0, "moving": 4}, 0),
        # A job starts within a twentieth of a second.
        ({"free": 0, "run_seconds": 0.001}, 50),
        ({"free": 1, "run_seconds": 0.001}, 51),
        ({"free": 0, "run_seconds": 0.001, "waiting": 25}, 25),
        # With more than half of that in store, the rest can come with what starts.
        ({"free": 0, "run_seconds": 0.001, "waiting": 26}, 0),
        ({"free": 40, "run_seconds": 0.001, "waiting": 30}, 60),
        ({"free": 0, "moving": 2, "run_seconds": 0.001}, 100),
        ({"free": 0, "run_seconds": 0.04}, 1),
        ({"free": 0, "run_seconds": 0.06}, 0),
        ({"free": 0, "moving": 0, "run_seconds": 0.001}, 0),
        # Half of the 512 at once, so that the other half can be on its way meanwhile.
        ({"free": 0, "run_seconds": 0.0}, MAX_AHEAD // 2),
        ({"free": 0, "run_seconds": 0.000001, "waiting": MAX_AHEAD // 2}, MAX_AHEAD // 2),
        ({"free": 0, "run_seconds": 0.000001, "waiting": 257}, 0),
        ({"free": 0, "run_seconds": 0.000001, "waiting": 512}, 0),
    ],
)
def test_how_many_to_ask_for(fields: dict[str, Any], room: int) -> None:
    """Free slots, and what will start soon; at most 512 wait."""
    its = load(**fields)

    assert max(0, experienced().room(its, its.running + its.waiting)) == room


def test_large_messages_are_popped_ahead_by_their_bytes() -> None:
    """At most 16 MiB wait, as far as sizes so far tell, and exactly when they have come."""
    its = load(free=0, run_seconds=0.000001)
    intake = experienced(size=4 * 1024 * 1024)

    assert intake.room(its, 0) == 4
    some = [held(5 * 1024 * 1024) for _ in range(4)]
    chosen = intake.sort(some, 4, its, 0)
    assert (chosen.run, chosen.release) == (some[:3], some[3:])
    assert sum(each.size for each in chosen.run) <= MAX_AHEAD_BYTES
    # A free slot takes a message of any size.
    chosen = intake.sort(some, 4, load(free=4), 0)
    assert chosen.run == some


def test_nothing_is_popped_while_too_much_is_unsettled() -> None:
    """The backend is in trouble, and memory is not for its sake."""
    its = load(run_seconds=0.000001)

    assert experienced().room(its, 1023) > 0
    assert experienced().room(its, 1024) == 0


def test_a_delivery_whose_predecessor_was_lost_is_quarantined() -> None:
    """ATT-3: it goes back with a note, and what came with it is run; the next comes singly."""
    intake = experienced()
    normal, suspect = held(), held(lost=True)

    chosen = intake.sort([normal, suspect], 2, load(free=2), 0)
    assert (chosen.run, chosen.release, chosen.quarantine) == ([normal], [], [suspect])
    assert chosen.alone is None
    assert intake.room(load(free=8, running=1), 1) == 1
    assert intake.sort([normal], 1, load(free=8, running=1), 1).run == [normal]
    assert intake.room(load(free=8, running=2), 2) == 8


def test_a_quarantined_delivery_waits_until_nothing_is_held() -> None:
    """All that comes with it goes back, and nothing is popped until then; then one by one."""
    intake = experienced()
    normal, quarantined = held(), held(quarantined=True)

    chosen = intake.sort([normal, quarantined], 2, load(free=2), 1)
    assert (chosen.run, chosen.release, chosen.alone) == ([], [normal, quarantined], None)
    assert intake.room(load(free=1), 1) == 0
    # What waiting pops bring meanwhile goes back as well.
    assert intake.sort([held()], 0, load(free=1), 1).run == []
    assert intake.room(load(free=1), 1) == 0
    assert intake.room(load(free=9), 0) == 1
    chosen = intake.sort([quarantined], 1, load(), 0)
    assert (chosen.run, chosen.release, chosen.alone) == ([], [], quarantined)
    assert intake.room(load(free=9), 1) == 0
    assert intake.room(load(free=9), 0) == 1
    assert intake.sort([normal], 1, load(free=9), 0).run == [normal]
    assert intake.room(load(free=8, running=1), 1) == 8


def test_after_a_crash_its_whole_batch_runs_one_by_one() -> None:
    """Whichever did it takes nobody along the second time."""
    some = [held(lost=True) for _ in range(5)]
    chosen = Intake().sort(some, 5, load(free=5), 0)
    assert (chosen.run, chosen.alone, chosen.quarantine) == ([], None, some)

    some = [held(quarantined=True) for _ in range(5)]
    chosen = Intake().sort(some, 5, load(free=5), 0)
    assert (chosen.run, chosen.release, chosen.alone) == ([], some[1:], some[0])


def test_a_new_process_asks_for_one_delivery_first() -> None:
    """Nobody knows yet what the one before it died of."""
    intake = Intake()
    assert intake.room(load(free=8), 0) == 1
    intake.sort([held()], 1, load(free=8), 0)
    assert intake.room(load(free=7, running=1), 1) == 7


def test_what_was_expected_may_have_gone_elsewhere() -> None:
    """An empty pop ends the waiting."""
    intake = experienced()
    intake.sort([held(quarantined=True)], 1, load(free=2), 1)
    assert intake.room(load(free=9, moving=9), 3) == 0
    intake.nothing_came()

    assert intake.room(load(free=9, moving=9), 3) == 1


@pytest.mark.parametrize("releasable", [True, False])
def test_nothing_waits_for_the_end_of_what_is_over_its_time_out(releasable: bool) -> None:
    """It may never come: the job that has to run alone is put off, and the others are run."""
    intake = Intake(releasable=releasable)
    normal, quarantined = held(), held(quarantined=True)
    intake.sort([quarantined], 1, load(free=7, running=1), 1)
    assert intake.room(load(free=7, running=1), 1) == 0

    its = load(free=7, running=1, overdue=1)
    assert intake.room(its, 1) == 1
    chosen = intake.sort([normal, quarantined], 2, its, 1)
    assert (chosen.run, chosen.put_off, chosen.release) == ([normal], [quarantined], [])
    intake.sort([held()], 1, its, 2)
    assert intake.room(its, 2) == 7


def test_without_release_a_quarantined_delivery_is_expected_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is at the end of its queue: for a minute, twice as long if it came too late, and so on."""
    now = 0.0
    monkeypatch.setattr("hypercube_jobs.worker._intake.time.monotonic", lambda: now)
    intake = Intake(releasable=False)
    for seconds in (60, 120, 240):
        intake.sort([held(quarantined=True)], 1, load(free=8), 1)
        intake.sort([held()], 1, load(free=8), 0)
        assert intake.seconds_left() == seconds
        now += seconds - 1
        assert intake.room(load(free=8), 1) == 0
        now += 1
        assert intake.seconds_left() == 0
        assert intake.room(load(free=8), 1) == 8
        assert intake.seconds_left() is None

    # In time at last, so the next one is expected for a minute.
    assert intake.sort([held(quarantined=True)], 1, load(free=8), 0).alone is not None
    assert intake.seconds_left() == 60


def test_the_first_pops_are_careful(box: Any) -> None:
    """Nothing is known of run times, so nothing is popped ahead of the slots."""
    box.on(Watched())
    go = threading.Event()
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: go.wait())
    for _ in range(100):
        box.jobs.dispatch(Note("x"))
    running = box.start(concurrency=3)
    box.until(lambda: box.counts()[2] == 3)
    time.sleep(0.3)

    assert box.counts() == (97, 0, 3, 0)
    go.set()
    running.stop()
    running.end()


def test_short_jobs_come_in_large_batches(box: Any) -> None:
    """A pop for each would cost more than the jobs."""
    box.on(Watched())
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: None)
    box.queue.push(*(box.jobs.message(Note("x")) for _ in range(5_000)))
    box.drain()

    assert sum(box.queue.popped) - box.queue.released == 5_000
    assert len(box.queue.popped) < 250
    assert max(box.queue.popped) <= MAX_AHEAD // 2


@pytest.mark.parametrize("queue", [Watched, NoRelease])
def test_long_jobs_hold_nothing_hostage(box: Any, queue: type[MemoryQueue]) -> None:
    """What was popped behind one goes back at once, and another worker takes it."""
    box.on(queue())
    go = threading.Event()
    done = []

    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        if job.text == "long":
            go.wait()
        else:
            done.append(job.text)

    texts = ["long" if number in {500, 1_100} else str(number) for number in range(2_000)]
    box.queue.push(*(box.jobs.message(Note(text)) for text in texts))
    one = box.start()
    box.until(lambda: len(done) == 500)
    box.until(lambda: box.counts()[:3] == (1_499, 0, 1), "all behind the long job went back")
    two = box.start()
    box.until(lambda: box.counts()[2] == 2)
    three = box.start()
    box.until(lambda: len(done) == 1_998)
    box.until(lambda: box.counts() == (0, 0, 2, 0))
    go.set()
    for running in (one, two, three):
        running.stop()
        running.end()
    assert box.counts() == (0, 0, 0, 0)
    assert sorted(done) == sorted(text for text in texts if text != "long")
    assert {event.attempt for event in box.recorder.of("processed")} == {1}


def test_a_mix_of_run_times_is_shared_by_two_workers(box: Any) -> None:
    """The short ones are done long before the long ones."""
    done: dict[str, float] = {}
    started = time.monotonic()
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        if job.text.startswith("long"):
            time.sleep(0.5)
        done[job.text] = time.monotonic() - started

    texts = [f"long {n}" if n % 100 == 50 else f"short {n}" for n in range(1_000)]
    box.queue.push(*(box.jobs.message(Note(text)) for text in texts))
    workers = [box.start(concurrency=2) for _ in range(2)]
    box.until(lambda: len(done) == 1_000)
    for running in workers:
        running.stop()
        running.end()

    # Ten jobs of half a second over four slots take two; nobody waits for more than one.
    assert len(box.recorder.of("processed")) == 1_000
    assert max(event.attempt for event in box.recorder.of("processed")) == 1


def test_earlier_queues_go_first(box: Any) -> None:
    """A later one only when those before it are empty."""
    seen = []
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: seen.append(job.text))
    for _ in range(30):
        for queue in ("low", "high", "middle"):
            box.jobs.dispatch(Note(queue), queue=queue)
    box.drain(queues=["high", "middle", "low"])

    assert seen == ["high"] * 30 + ["middle"] * 30 + ["low"] * 30


def test_an_urgent_job_overtakes_all_that_waits_in_later_queues(box: Any) -> None:
    """Once its turn comes: what has been popped already goes before it."""
    seen = []
    lock = threading.Lock()
    box.jobs.declare("note", Note)

    @box.jobs.handler("note")
    def handle(job: Note) -> None:
        with lock:
            seen.append(job.text)
            if len(seen) == 3:
                box.jobs.dispatch(Note("urgent"), queue="high")
        time.sleep(0.06)

    for _ in range(10):
        box.jobs.dispatch(Note("x"), queue="low")
    box.drain(queues=["high", "low"])

    assert seen.index("urgent") <= 5


def test_what_comes_too_much_from_several_queues_goes_back(box: Any) -> None:
    """Each waiting pop asks for as much as there are slots."""
    box.on(Watched())
    go = threading.Event()
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: go.wait())
    running = box.start(queues=["a", "b", "c"], concurrency=2, sleep=timedelta(seconds=1))
    time.sleep(0.2)
    box.queue.push(*(box.jobs.message(Note("x"), queue=queue) for queue in "abc" for _ in range(2)))
    box.until(lambda: sum(box.counts(queue)[2] for queue in "abc") == 2)
    time.sleep(0.3)

    assert sum(box.counts(queue)[2] for queue in "abc") == 2
    assert sum(box.counts(queue)[0] for queue in "abc") == 4
    go.set()
    box.until(lambda: len(box.recorder.of("processed")) == 6)
    assert {event.attempt for event in box.recorder.of("processed")} == {1}
    running.stop()


def test_max_jobs_holds_for_several_queues(box: Any) -> None:
    """Also when each of them could have filled it."""
    box.jobs.declare("note", Note)
    box.jobs.handler("note")(lambda job: None)
    running = box.start(queues=["a", "b"], concurrency=8, max_jobs=3)
    time.sleep(0.1)
    for _ in range(5):
        for queue in "ab":
            box.jobs.dispatch(Note("x"), queue=queue)
    running.end()

    assert len(box.recorder.of("processed")) == 3
    assert box.counts("a")[0] + box.counts("b")[0] == 7


def test_an_idle_worker_costs_next_to_nothing(box: Any) -> None:
    """It sleeps in pops that wait, one for each queue."""
    box.jobs.declare("note", Note)
    pops = 0
    pop = box.queue.pop

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal pops
        pops += 1
        return pop(*arguments, **options)

    box.queue.pop = counted
    begun = time.monotonic()
    running = box.start(queues=["a", "b"], sleep=timedelta(seconds=1))
    time.sleep(3)
    running.stop()
    running.end()

    # Whichever wait ends, both queues are swept, and waited for again.
    assert 4 <= pops <= 6 * (time.monotonic() - begun + 1)


def test_large_payloads_that_are_not_settled_stop_the_popping() -> None:
    """They stay in memory; what runs or waits for a slot is bounded elsewhere."""
    mebibyte = 1024 * 1024
    intake = experienced()
    busy = load(free=4, running=4, running_bytes=4 * mebibyte, waiting_bytes=mebibyte)

    assert intake.room(busy, 20, 20 * mebibyte) > 0
    assert intake.room(busy, 21, 21 * mebibyte) == 0


def test_what_is_held_knows_its_bytes() -> None:
    """However often one is added or removed."""
    holding, first, second = Holding(), held(10), held(5)
    holding.add([first, second])
    holding.add([first])
    assert holding.bytes == 15
    holding.remove([first])
    holding.remove([first])
    assert holding.bytes == 5


def test_a_backend_that_settles_slowly_does_not_fill_the_memory(box: Any) -> None:
    """Large jobs end at once, and no more than a part of them is popped until some are settled."""
    megabyte = 1_000_000
    most = 0

    class Slow(MemoryQueue):
        held = 0

        def pop(
            self, queue_name: str, max_messages: int = 1, *, wait: timedelta | None = None
        ) -> list[Message]:
            nonlocal most
            messages = super().pop(queue_name, max_messages, wait=wait)
            self.held += sum(len(message.payload) for message in messages)
            most = max(most, self.held)
            return messages

        def ack(self, *messages: Message) -> None:
            time.sleep(0.1)
            super().ack(*messages)
            self.held -= sum(len(message.payload) for message in messages)

        def release(self, *messages: Message) -> None:
            super().release(*messages)
            self.held -= sum(len(message.payload) for message in messages)

    box.on(Slow())

    @box.jobs.handler("large")
    def handle(job: Note) -> None: ...

    for _ in range(120):
        box.jobs.dispatch_kind("large", Note("x" * megabyte))
    box.drain(concurrency=2)

    assert box.counts() == (0, 0, 0, 0)
    assert most <= 60 * megabyte


@pytest.mark.parametrize("bounded", [True, False])
def test_large_payloads_among_small_ones_do_not_fill_the_memory(box: Any, bounded: bool) -> None:
    """A pop of many small ones can bring large ones; where it has no bound, only once."""

    class Holding(MemoryQueue):
        held = most = 0

        @property
        def guarantees(self) -> Guarantees:
            return replace(super().guarantees, bounded_pops=bounded)

        def pop(self, queue_name: str, max_messages: int = 1, **options: Any) -> list[Message]:
            messages = super().pop(queue_name, max_messages, **options)
            wait = timedelta(0)
            while not bounded and messages and len(messages) < max_messages:
                more = super().pop(queue_name, max_messages - len(messages), wait=wait)
                if not more:
                    break
                messages += more
            self.held += sum(len(message.payload) for message in messages)
            self.most = max(self.most, self.held)
            return messages

        def ack(self, *messages: Message) -> None:
            super().ack(*messages)
            self.held -= sum(len(message.payload) for message in messages)

        def release(self, *messages: Message) -> None:
            super().release(*messages)
            self.held -= sum(len(message.payload) for message in messages)

    box.on(Holding())

    @box.jobs.handler("note")
    def handle(job: Note) -> None: ...

    megabyte = 1_000_000
    box.jobs.queue.push(
        *(box.jobs.message(Note("x")) for _ in range(600)),
        *(box.jobs.message(Note("x" * megabyte)) for _ in range(300)),
    )
    box.drain(concurrency=4)

    assert box.counts() == (0, 0, 0, 0)
    assert box.queue.most < (50 if bounded else 200) * megabyte
