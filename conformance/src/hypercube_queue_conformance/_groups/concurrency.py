"""Many threads and several processes, and exact counts afterwards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from hypercube_queue import Message, Queue
from hypercube_queue_conformance._marks import needs, rule, when
from hypercube_queue_conformance._processes import (
    child,
    pop_and_ack,
    pop_and_hold,
    push_numbers,
    retry_for_ever,
    told,
    wait_for_one,
)
from hypercube_queue_conformance._trial import NOTHING, QUEUE, Trial, failed

_THREADS = 8


class Concurrency:
    @rule("POP-5", "LIFE-1")
    @when(exclusive_delivery=True)
    def test_pop_5_threads_share_a_queue_without_sharing_a_message(self, trial: Trial) -> None:
        """Popped at once by many threads through two objects, each message comes once."""
        trial.push(400)

        def drain(queue: Queue) -> Callable[[], list[str]]:
            def run() -> list[str]:
                taken: list[str] = []
                while len(taken) <= 400 and (deliveries := queue.pop(QUEUE, 3, wait=NOTHING)):
                    taken += [each.id for each in deliveries]
                return taken

            return run

        queues = [trial.queue, trial.other] * (_THREADS // 2)
        taken = trial.start_together(*(drain(queue) for queue in queues))
        counts = Counter(id for ids in taken for id in ids)
        assert len(counts) == 400
        assert set(counts.values()) == {1}

    @rule("POP-5")
    @when(exclusive_delivery=False)
    def test_pop_5_rare_duplicates_lose_nothing(self, trial: Trial) -> None:
        """Where a message may be delivered twice, every one is delivered at least once."""
        ids = {each.id for each in trial.push(200)}

        def drain() -> set[str]:
            taken: set[str] = set()
            end = time.monotonic() + trial.patience.total_seconds()
            while time.monotonic() < end:
                deliveries = trial.queue.pop(QUEUE, 3, wait=trial.moment)
                if not deliveries:
                    break
                taken |= {each.id for each in deliveries}
            return taken

        taken = set().union(*trial.start_together(*[drain] * _THREADS))
        missing = ids - taken
        assert {each.id for each in trial.receive(len(missing))} == missing

    @rule("LIFE-1", "SET-1")
    def test_life_1_threads_push_pop_and_settle_through_one_object(self, trial: Trial) -> None:
        """Pushing and working at once, with retries and dead letters, the counts are exact."""
        each_pushes = 60
        total = _THREADS // 2 * each_pushes

        def produce(number: int) -> Callable[[], Counter[str]]:
            def run() -> Counter[str]:
                for n in range(0, each_pushes, 5):
                    batch = [Message(QUEUE, id=f"{number}.{n + k}") for k in range(5)]
                    trial.queue.push(*batch)
                return Counter()

            return run

        outcomes: Counter[str] = Counter()

        def work() -> Counter[str]:
            end = time.monotonic() + trial.patience.total_seconds()
            done: Counter[str] = Counter()
            while outcomes["ack"] + outcomes["dead"] < total and time.monotonic() < end:
                for delivery in trial.queue.pop(QUEUE, 4, wait=trial.moment):
                    last = int(delivery.id.rpartition(".")[2])
                    if last % 3 == 0 and delivery.attempt == 1:
                        trial.queue.retry(delivery)
                        done["retry"] += 1
                    elif last % 3 == 1:
                        trial.queue.dead_letter(delivery)
                        done["dead"] += 1
                        outcomes["dead"] += 1
                    else:
                        trial.queue.ack(delivery)
                        done["ack"] += 1
                        outcomes["ack"] += 1
            return done

        producers = [produce(number) for number in range(_THREADS // 2)]
        counts = sum(
            trial.start_together(*producers, *[work] * (_THREADS // 2)), start=Counter[str]()
        )
        thirds = total // 3
        if trial.guarantees.exclusive_delivery and trial.guarantees.exact_attempts:
            assert counts == Counter(ack=2 * thirds, dead=thirds, retry=thirds)
        assert trial.visible() == []

    @rule("POP-5", "SET-1")
    @needs("opener")
    def test_pop_5_processes_share_a_queue_without_sharing_a_message(self, trial: Trial) -> None:
        """Three processes drain a queue while two fill it; each message is acked once."""
        opener = trial.harness.opener()
        trial.queue.push(*(Message(QUEUE, id=str(n)) for n in range(150)))
        with ExitStack() as stack:
            workers = [stack.enter_context(child(pop_and_ack, opener, QUEUE)) for _ in range(3)]
            producers = [
                stack.enter_context(child(push_numbers, opener, QUEUE, range(start, start + 75)))
                for start in (150, 225)
            ]
            assert [told(worker) for worker in workers] == ["ready"] * 3
            for process in (*producers, *workers):
                process.send("go")
            assert [told(producer) for producer in producers] == ["pushed"] * 2
            for worker in workers:
                worker.send("stop")
            counts = Counter(id for worker in workers for id in told(worker))
        assert set(counts) == {str(n) for n in range(300)}
        if trial.guarantees.exclusive_delivery:
            assert counts.total() == 300
        assert trial.visible() == []

    @rule("POP-6", "POP-2")
    @needs("opener")
    def test_pop_6_what_a_killed_process_held_comes_back(self, trial: Trial) -> None:
        """Every message of it, once, with the next attempt number."""
        trial.queue.push(
            *(Message(QUEUE, id=str(n), visibility_timeout=4 * trial.lease) for n in range(5))
        )
        with child(pop_and_hold, trial.harness.opener(), QUEUE, 5) as worker:
            held = told(worker)
        assert held
        trial.let_pass(4 * trial.lease)
        received = {each.id: each.attempt for each in trial.receive(5)}
        assert sorted(received) == [str(n) for n in range(5)]
        if trial.guarantees.exact_attempts:
            assert received == {str(n): 2 if str(n) in held else 1 for n in range(5)}

    @rule("POP-7")
    @needs("opener")
    def test_pop_7_a_waiting_pop_of_another_process_notices_a_push(self, trial: Trial) -> None:
        """Within a second or so, wherever the pop waits."""
        with child(wait_for_one, trial.harness.opener(), QUEUE) as worker:
            assert told(worker) == "waiting"
            time.sleep(trial.moment.total_seconds())
            begun = time.monotonic()
            trial.push(1)
            assert told(worker) == [b"0"]
            assert time.monotonic() - begun <= 2.0 * trial.harness.pace

    @rule("POP-7")
    @needs("opener")
    def test_pop_7_a_waiter_that_is_killed_takes_no_wake_up_with_it(self, trial: Trial) -> None:
        """A message pushed beside a dead waiter reaches the one that is alive."""
        with child(wait_for_one, trial.harness.opener(), QUEUE) as worker:
            assert told(worker) == "waiting"
            time.sleep(trial.moment.total_seconds())
        popping = trial.start_pop()
        trial.push(1)
        assert [each.payload for each in trial.result(popping)] == [b"0"]

    @rule("SET-6", "SET-7")
    @needs("opener")
    def test_set_6_a_process_killed_while_it_retries_loses_nothing(self, trial: Trial) -> None:
        """Whenever the kill comes, every message is there afterwards."""
        ids = {str(n) for n in range(10)}
        trial.queue.push(*(Message(QUEUE, id=id, visibility_timeout=4 * trial.lease) for id in ids))
        with child(retry_for_ever, trial.harness.opener(), QUEUE) as worker:
            assert told(worker) == "busy"
        trial.let_pass(4 * trial.lease)
        received = [each.id for each in trial.receive(10)]
        if trial.guarantees.unique_ids == "backend":
            assert sorted(received) == sorted(ids)
            assert trial.visible() == []
        else:
            rest = {each.id for each in trial.queue.pop(QUEUE, 10, wait=NOTHING)}
            assert set(received) | rest == ids

    @rule("LIFE-1", "SET-2")
    def test_life_1_settlements_that_run_during_a_close_finish(self, trial: Trial) -> None:
        """Each either did its work or raised; what it says is what happened."""
        queue = trial.open()
        deliveries = trial.deliver(60, queue=queue)
        acked: list[str] = []

        def settle() -> None:
            for delivery in deliveries:
                queue.ack(delivery)
                acked.append(delivery.id)

        settling = trial.start(settle)
        while len(acked) < 5 and not settling.done():
            time.sleep(0.0005)
        queue.close()
        error = settling.exception(trial.patience.total_seconds())
        assert error is None or type(error).__name__ == "QueueClosed"
        if trial.guarantees.unique_ids == "none":
            retained = [each.id for each in trial.receive(len(deliveries) - len(acked))]
        else:
            retained = [each.id for each in deliveries if _is_retained(trial, each)]
        assert sorted([*retained, *acked]) == sorted(each.id for each in deliveries)


def _is_retained(trial: Trial, delivery: Message) -> bool:
    """Whether the id is still taken, seen through another driver object."""
    return bool(failed(trial.other.push, Message(QUEUE, id=delivery.id)))
