"""How large a message may be: as the server's max_allowed_packet says."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from hypercube_queue import BatchError, Message, MessageTooLarge
from hypercube_queue.driver import HEADROOM_BYTES
from hypercube_queue_sql import SQLQueue

#: What servers are set to here, in the eyes of the driver: more only takes more time to send.
_PACKET = 2 * 1024 * 1024


@pytest.fixture
def limit(queue: SQLQueue) -> int:
    """The most that payload and extra may have together."""
    queue._dialect._sql["server"] = f"SELECT version(), {_PACKET}, database()"
    queue._dialect._tables.seen = False
    queue.queues()
    return (_PACKET - 2 * 1024 - 4 * 2 * 255 - 256) // 2 - HEADROOM_BYTES


def _failed(error: BatchError) -> list[tuple[int, type]]:
    return [(failure.index, type(failure.error)) for failure in error.failed]


def test_only_what_is_too_large_fails(queue: SQLQueue, limit: int, engine: Engine) -> None:
    """With its index, before anything is sent; payload and extra count together (PUSH-7)."""
    for push in (queue.push, lambda *batch: _push_within(queue, engine, *batch)):
        with pytest.raises(BatchError) as caught:
            push(
                Message("work", b"0"),
                Message("work", bytes(limit + 1)),
                Message("work", bytes(limit), extra=b"x"),
                Message("work", bytes(limit)),
                Message("work", b"4"),
            )
        assert _failed(caught.value) == [(1, MessageTooLarge), (2, MessageTooLarge)]
        assert f"takes at most {limit}" in str(caught.value)
        popped = queue.pop("work", 10)
        assert sorted(len(each.payload) for each in popped) == [1, 1, limit]
        queue.ack(*popped)


def _push_within(queue: SQLQueue, engine: Engine, *batch: Message) -> None:
    with engine.connect() as connection:
        try:
            queue.push_within(connection, *batch)
        finally:
            connection.commit()


def test_a_failure_record_always_fits(queue: SQLQueue, limit: int) -> None:
    """PUSH-8: into the largest message as into any; what is larger still is owned."""
    for settle in (queue.retry, queue.dead_letter):
        queue.push(Message("work", bytes(limit)), Message("work", b"1"))
        large, small = queue.pop("work", 2)
        large.extra = bytes(HEADROOM_BYTES + 1)
        with pytest.raises(BatchError) as caught:
            settle(large, small)
        assert _failed(caught.value) == [(0, MessageTooLarge)]
        large.extra = b"\xff" * HEADROOM_BYTES
        settle(large)
        if settle == queue.dead_letter:
            assert queue.redrive("work", 2) == 2
        popped = queue.pop("work", 2)
        assert sorted((len(each.payload), len(each.extra)) for each in popped) == [
            (1, 0),
            (limit, HEADROOM_BYTES),
        ]
        queue.ack(*popped)


def test_no_statement_is_longer_than_the_server_takes(queue: SQLQueue, limit: int) -> None:
    """A batch of any size goes through, in as many statements as it takes."""
    longest = 0
    connections = queue._dialect._connections
    client = connections._client

    class Measuring(type(client)):  # type: ignore[misc]  # whatever it is
        def begin(self, connection):
            cursor = super().begin(connection)
            query = cursor._query

            def measured(statement: str) -> int:
                nonlocal longest
                longest = max(longest, len(statement.encode(errors="surrogateescape")))
                return query(statement)

            cursor._query = measured
            return cursor

    connections._client = Measuring(owned=True)
    name = "\u00e9" * 127
    batch = [Message(name, bytes(limit // 3), name, name, f"{n:0255}") for n in range(12)]
    batch += [Message(name, b"", name, name, f"{n:0255}") for n in range(12, 1500)]
    queue.push(*batch)
    with pytest.raises(BatchError) as caught:
        queue.push(*batch)
    assert len(caught.value.failed) == 1500
    popped = queue.pop(name, 1500)
    assert [each.id for each in popped] == [each.id for each in batch]
    queue.retry(*popped)
    queue.dead_letter(*queue.pop(name, 1500))
    assert queue.redrive(name, 1500) == 1500
    queue.ack(*queue.pop(name, 1500))
    assert queue.queues() == []
    assert _PACKET // 2 < longest < _PACKET
