"""The driver object over a client that answers what it is told to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from struct import pack

import pytest

from hypercube_queue import BackendError, BatchError, Message, QueueError
from hypercube_queue.driver import Deadline, PushBatch
from hypercube_queue_lua import GUARANTEES, Call, LuaQueue, Options, Reply
from hypercube_queue_lua._wire import stored_push


class ScriptedClient:
    """Remembers the calls; `answer` says what comes back."""

    def __init__(self, answer: Callable[[Call], Reply | QueueError]) -> None:
        self._answer = answer
        self.trips: list[list[Call]] = []
        self.closed = 0

    def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
        self.trips.append(list(calls))
        return [self._answer(call) for call in calls]

    def block(self, keys: tuple[bytes, ...], seconds: float, end: Deadline) -> None:
        raise AssertionError("nobody should wait here")

    def in_child(self) -> None:
        raise AssertionError("nobody forks here")

    def close(self) -> None:
        self.closed += 1


def _working(call: Call) -> Reply | QueueError:
    if call.script.name == "register":
        return [0] * (len(call.args) // 2)
    return {"eviction": b"noeviction", "push": [0]}.get(call.script.name, [])


def _queue(answer: Callable[[Call], Reply | QueueError]) -> tuple[LuaQueue, ScriptedClient]:
    client = ScriptedClient(answer)
    return LuaQueue(client, Options(), kind="queue"), client


def test_a_push_is_one_round_trip_of_chunks() -> None:
    """256 messages a script, per queue, all sent together; names are noted before, once."""
    queue, client = _queue(_working)
    queue.push(*(Message(f"q{number % 2}") for number in range(1000)))
    names = [[call.script.name for call in trip] for trip in client.trips]
    assert names == [["eviction"], ["register"], ["push"] * 4]
    queue.push(Message("q0"))
    assert [call.script.name for call in client.trips[-1]] == ["push"]
    assert len(client.trips) == 4


def test_chunks_keep_to_a_size_beside_a_number() -> None:
    """Large bodies go alone or in few."""
    queue, client = _queue(_working)
    queue.push(*(Message("q", bytes(3 * 1024 * 1024)) for _ in range(3)), Message("q"))
    assert [len(call.args[0]) // 13 for call in client.trips[-1]] == [1, 1, 2]


def test_a_name_that_cannot_be_noted_fails_its_messages_before_they_are_sent() -> None:
    """With a known outcome, though that of the note is unknown (STA-3)."""
    refused = BackendError("no answer", outcome_unknown=True)
    queue, client = _queue(
        lambda call: refused if call.script.name == "register" else _working(call)
    )
    with pytest.raises(BatchError) as caught:
        queue.push(Message("q"), Message("q"))
    assert [failure.index for failure in caught.value.failed] == [0, 1]
    for failure in caught.value.failed:
        assert isinstance(failure.error, BackendError)
        assert not failure.error.outcome_unknown
    assert [call.script.name for trip in client.trips for call in trip] == ["eviction", "register"]


def test_a_push_that_is_refused_is_repeated_under_the_next_generation() -> None:
    """In order, and not for ever (STA-3)."""
    refusals = 1
    counts: list[int] = []

    def answer(call: Call) -> Reply | QueueError:
        nonlocal refusals
        if call.script.name == "register":
            return list(call.args[1::2])
        if call.script.name != "push":
            return _working(call)
        counts.append(len(call.args[0]) // 13)
        if refusals:
            refusals -= 1
            return [-1, 7]
        assert call.args[2:] == (7, 1)
        return [0]

    queue, _ = _queue(answer)
    queue.push(*(Message("q") for _ in range(200)))
    assert counts == [200, 200]
    refusals = 100
    with pytest.raises(BatchError) as caught:
        queue.push(Message("q"), Message("q"))
    assert [failure.index for failure in caught.value.failed] == [0, 1]
    assert all("again and again" in str(failure.error) for failure in caught.value.failed)
    assert refusals == 96


def test_one_failed_chunk_fails_its_items_only() -> None:
    """Indexes are the caller's (ERR-1, ERR-2)."""
    pushes = iter(([0], BackendError("no answer"), [0, 2]))
    queue, _ = _queue(lambda call: next(pushes) if call.script.name == "push" else _working(call))
    with pytest.raises(BatchError) as caught:
        queue.push(*(Message("q") for _ in range(520)))
    assert [failure.index for failure in caught.value.failed] == [*range(256, 512), 513]


def test_a_redrive_that_fails_halfway_tells_what_moved() -> None:
    """One that fails at once raises (RED-4)."""
    replies = iter(([256, 256, b"17"], BackendError("no answer"), BackendError("no answer")))
    queue, _ = _queue(lambda call: next(replies))
    assert queue.redrive("q", 1000) == 256
    with pytest.raises(BackendError):
        queue.redrive("q", 1000)


def test_ids_that_were_forgotten_count_although_others_failed() -> None:
    """As in a redrive; where nothing was found, the error is told."""
    replies = iter((256, BackendError("no answer"), BackendError("no answer")))
    queue, _ = _queue(lambda call: next(replies))
    assert queue.forget("q", *map(str, range(300))) == 256
    with pytest.raises(BackendError):
        queue.forget("q", "1")


def test_a_reply_that_no_script_gives_is_an_error() -> None:
    """Something else than a server of this kind may answer; nothing of it is shown."""
    queue, _ = _queue(lambda call: b"s3cret")
    with pytest.raises(BackendError) as caught:
        queue.stats("q")
    assert "s3cret" not in str(caught.value)


def test_a_pop_that_has_something_keeps_an_error_for_later() -> None:
    """What was taken is returned (POP-1)."""
    [item] = PushBatch([Message("q", id="1")], GUARANTEES).items
    id, body, _ = stored_push(item)
    replies = iter(([1, -1, pack(">BII", 1, len(body), 1), id + body], BackendError("no answer")))
    queue, _ = _queue(lambda call: next(replies) if call.script.name == "pop" else _working(call))
    assert [each.id for each in queue.pop("q", 2, wait=timedelta(0))] == ["1"]


def test_each_look_of_a_waiting_pop_has_the_operation_timeout_for_itself() -> None:
    """And no more, however long the pop may still wait (ERR-5)."""

    class IdleClient(ScriptedClient):
        def __init__(self) -> None:
            super().__init__(lambda call: [0, -1, b"", b""] if call.script.name == "pop" else b"")
            self.limits: list[float] = []
            self.blocks: list[float] = []

        def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
            self.limits.append(end.seconds_left())
            return super().run(calls, end)

        def block(self, keys: tuple[bytes, ...], seconds: float, end: Deadline) -> None:
            self.blocks.append(end.seconds_left() - seconds)
            if len(self.blocks) == 3:
                raise BackendError("no answer")

    client = IdleClient()
    queue = LuaQueue(client, Options(operation_timeout=timedelta(seconds=5)), kind="queue")
    with pytest.raises(BackendError, match="no answer"):
        queue.pop("q", wait=timedelta(hours=1))
    assert len(client.limits) == 4
    assert all(0 < each <= 5 for each in client.limits + client.blocks)


def test_the_last_look_ends_with_the_wait_and_the_operation_timeout() -> None:
    """What blocked beyond the wait leaves less for the look that follows (ERR-5)."""

    class SlowClient(ScriptedClient):
        def run(self, calls: Sequence[Call], end: Deadline) -> list[Reply | QueueError]:
            limits.append(end.seconds_left())
            return super().run(calls, end)

        def block(self, keys: tuple[bytes, ...], seconds: float, end: Deadline) -> None:
            time.sleep(1)

    limits: list[float] = []
    client = SlowClient(lambda call: [0, -1, b"", b""] if call.script.name == "pop" else b"")
    queue = LuaQueue(client, Options(operation_timeout=timedelta(seconds=5)), kind="queue")
    assert queue.pop("q", wait=timedelta(milliseconds=1)) == []
    assert limits[-1] < 4.1


def test_closing_closes_the_client_once() -> None:
    """However often."""
    queue, client = _queue(_working)
    queue.close()
    queue.close()
    assert client.closed == 1
