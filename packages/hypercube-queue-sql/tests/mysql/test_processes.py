"""Several processes on one server, which may die under them; and what waiting costs it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta

import pytest
from tools.backends import exclusive
from tools.backends.instance import Server
from tools.script import started

from hypercube_queue import BatchError, Message, open_queue
from hypercube_queue_sql import SQLQueue

NOTHING = timedelta(0)
_LIMIT = 120
_PUSHES = 60

#: Pushes until every message is confirmed; what failed is repeated under the same ids.
_PUSH = """
import json, sys, time
from hypercube_queue import AlreadyExists, BackendError, BatchError, Message, open_queue
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
confirmed, uncertain = [], set()
with open_queue(url) as queue:
    for number in range(count):
        left = [Message("work", id=f"{name}-{number}-{part}") for part in range(3)]
        while left:
            failed = {}
            try:
                queue.push(*left)
            except BatchError as error:
                failed = {each.index: each.error for each in error.failed}
                time.sleep(0.05)
            again = []
            for index, message in enumerate(left):
                error = failed.get(index)
                if error is None or isinstance(error, AlreadyExists):
                    confirmed.append(message.id)
                    continue
                assert isinstance(error, BackendError), error
                if error.outcome_unknown:
                    uncertain.add(message.id)
                again.append(message)
            left = again
        if number == count // 4:
            print("pushing", flush=True)
        time.sleep(0.01)
print(json.dumps([confirmed, sorted(uncertain)]))
"""
#: Takes and acknowledges, until nothing has come for a while.
_WORK = """
import json, sys, time
from datetime import timedelta
from hypercube_queue import BackendError, BatchError, NotFound, open_queue
delivered, acked, uncertain, troubles = [], {}, [], 0
with open_queue(sys.argv[1]) as queue:
    quiet = time.monotonic()
    while time.monotonic() - quiet < 5:
        try:
            popped = queue.pop("work", 5, wait=timedelta(seconds=1))
        except BackendError:
            troubles += 1
            quiet = time.monotonic()
            time.sleep(0.05)
            continue
        if not popped:
            continue
        quiet = time.monotonic()
        delivered += [(each.id, quiet) for each in popped]
        failed = {}
        try:
            queue.ack(*popped)
        except BatchError as error:
            failed = {each.index: each.error for each in error.failed}
        for index, each in enumerate(popped):
            error = failed.get(index)
            if error is None:
                acked[each.id] = time.monotonic()
            elif isinstance(error, BackendError) and error.outcome_unknown:
                uncertain.append(each.id)
            else:
                # Its lease may have ended while the server was away.
                assert isinstance(error, (BackendError, NotFound)), error
print(json.dumps([delivered, acked, uncertain, troubles]))
"""


def test_a_server_that_is_killed_loses_and_repeats_nothing(place: Server) -> None:
    """Two push, two work, and it dies without warning in the midst (LIFE-2, SET-7)."""
    with exclusive(place.name) as victim, ExitStack() as stack:
        url = victim.url(
            victim.name,
            table=f"t{time.time_ns()}",
            create_tables="true",
            visibility_timeout=2,
            operation_timeout=10,
        )
        pushers = [stack.enter_context(started(_PUSH, url, name, str(_PUSHES))) for name in "ab"]
        workers = [stack.enter_context(started(_WORK, url)) for _ in range(2)]
        assert [each.line() for each in pushers] == ["pushing"] * 2
        victim.kill()
        time.sleep(1.0)
        victim.start()
        pushed = [json.loads(each.rest(_LIMIT)) for each in pushers]
        worked = [json.loads(each.rest(_LIMIT)) for each in workers]
        with open_queue(url) as queue:
            assert isinstance(queue, SQLQueue)
            assert queue.queues() == []
    expected = {
        f"{name}-{number}-{part}" for name in "ab" for number in range(_PUSHES) for part in range(3)
    }
    confirmed = Counter(each for pusher in pushed for each in pusher[0])
    # One that was stored, and acknowledged before its push was repeated, comes again (PUSH-2).
    repeated = {each for pusher in pushed for each in pusher[1]}
    delivered = [tuple(each) for worker in worked for each in worker[0]]
    acked = {id: at for worker in worked for id, at in worker[1].items()}
    uncertain = {each for worker in worked for each in worker[2]}

    assert confirmed == Counter(expected)
    assert {id for id, _ in delivered} == expected
    assert acked.keys() | uncertain == expected
    late = {id for id, at in delivered if id in acked and at > acked[id]}
    assert late - repeated == set()
    assert sum(worker[3] for worker in worked) > 0  # else nobody noticed


def test_a_pop_that_is_idle_for_long_asks_twice_a_second_at_most(queue: SQLQueue) -> None:
    """One statement each time, on no connection of its own in between (POP-7)."""
    queue.pop("work", wait=timedelta(seconds=2))
    engine = queue._dialect._engine

    def questions() -> int:
        pooled = engine.raw_connection()
        with pooled.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
            [(_, count)] = cursor.fetchall()
        pooled.close()
        return int(count)

    before, begun = questions(), time.monotonic()
    thread = threading.Thread(
        target=queue.pop, args=["work"], kwargs={"wait": timedelta(seconds=2)}
    )
    thread.start()
    held = 0
    for _ in range(20):
        time.sleep(0.08)
        held += engine.pool.checkedout()
    thread.join(20)

    assert engine.pool.checkedin() == 1
    # The first look and the last, and what is asked here.
    assert 3 < questions() - before <= 2 * (time.monotonic() - begun) + 3
    assert held < 10


@pytest.mark.usefixtures("told_only")
def test_queue_objects_of_one_process_wake_each_other(url: str, queue: SQLQueue) -> None:
    """They need not look."""
    with open_queue(url) as waiting:
        came: list[bytes] = []

        def pop() -> None:
            came.extend(each.payload for each in waiting.pop("work", wait=timedelta(seconds=30)))

        thread = threading.Thread(target=pop)
        thread.start()
        time.sleep(0.5)
        queue.push(Message("work", b"0"))
        thread.join(20)
        assert came == [b"0"]


def test_threads_that_push_the_same_ids_never_fail_but_for_them(queue: SQLQueue) -> None:
    """Each id is stored once, and what locks each other out is retried inside."""
    outcomes: Counter[str] = Counter()

    def push(order: int) -> None:
        for start in range(0, 300, 30):
            ids = [str(number) for number in range(start, start + 30)][::order]
            batch = [Message("work", id=each) for each in ids]
            try:
                queue.push(*batch)
                outcomes["stored"] += len(batch)
            except BatchError as error:
                outcomes.update(type(each.error).__name__ for each in error.failed)
                outcomes["stored"] += len(batch) - len(error.failed)

    threads = [threading.Thread(target=push, args=[order]) for order in (1, -1, 1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT)
    assert outcomes == Counter(stored=300, AlreadyExists=900)
    assert queue.stats("work").ready == 300
