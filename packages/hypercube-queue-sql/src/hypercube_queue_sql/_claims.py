"""How a pop waits, and how it takes what it finds."""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from datetime import timedelta

from hypercube_queue import Message, QueueError
from hypercube_queue.driver import MAX_POP_BYTES, Deadline, Gate, SettlementBatch, safe_repr
from hypercube_queue_sql._delivery import SQLDelivery
from hypercube_queue_sql._dialect import Claim, Dialect
from hypercube_queue_sql._pace import Pace
from hypercube_queue_sql._rows import Row, UnreadableRow, message, size_of

_log = logging.getLogger("hypercube_queue_sql")

#: The first pause when messages are visible and others are about to take them, in seconds.
_PAUSE = 0.005


class Claims:
    """The pops of one queue object, its `owner`."""

    def __init__(self, dialect: Dialect, gate: Gate, owner: object, visibility_us: int) -> None:
        self._dialect = dialect
        self._gate = gate
        self._owner = owner
        self._visibility_us = visibility_us
        self._pace = Pace()

    def pop(
        self, queue_name: str, max_messages: int, waiting: timedelta, operation_timeout: timedelta
    ) -> list[Message]:
        """Wait for up to `waiting` until there is something to take, and take it."""
        dialect = self._dialect
        deadline = Deadline(waiting)
        # One for all looks and the claim, which could take the time limit each (ERR-5).
        end = Deadline(waiting + operation_timeout)
        pause = _PAUSE
        with dialect.wakeups.watch(queue_name) as watch:
            while True:
                self._gate.check()
                seen = watch.changes
                taken, seconds = self._take(queue_name, max_messages, end)
                if taken:
                    self._pace.came(queue_name)
                    return taken
                longest = dialect.poll_seconds
                if not dialect.hears:
                    longest = self._pace.seconds(queue_name, watch.watchers, longest)
                if seconds is None:
                    seconds = longest
                elif seconds <= 0:
                    seconds, pause = pause, 2 * pause
                seconds = min(seconds, longest)
                left = deadline.seconds_left()
                if not left:
                    return []
                dialect.listen()
                woken = watch.sleep(seen, min(seconds, left))
                if not woken and left < seconds and dialect.hears:
                    self._gate.check()
                    return []  # what a last look would find has been told

    def _take(
        self, queue_name: str, max_messages: int, end: Deadline
    ) -> tuple[list[Message], float | None]:
        """What there is, and if there is nothing, when to look again, as in `Dialect.take`."""
        token = secrets.randbits(63)
        taken: list[Message] = []
        seconds: float | None = None
        bytes_left = MAX_POP_BYTES
        while len(taken) < max_messages and bytes_left > 0:
            try:
                limit = max_messages - len(taken)
                claim = Claim(queue_name, limit, bytes_left, self._visibility_us, token)
                rows, seconds = self._dialect.take(claim, end)
                bytes_left -= size_of(rows)
                faults = self._delivered(rows, queue_name, token, taken)
                self._set_aside(faults, queue_name, token, end)
            except QueueError:
                if not taken:
                    raise
                break  # the error waits for the next call (POP-1)
            if not faults:
                break  # all that is ready has come
        if taken and self._gate.closed:
            self._give_back(taken)
            self._gate.check()
        return taken, seconds

    def _delivered(
        self, rows: list[Row], queue_name: str, token: int, taken: list[Message]
    ) -> list[tuple[int, str]]:
        """Add the messages in the rows to `taken`; return what is none: `seq` and reason."""
        faults = []
        for row in rows:
            try:
                delivered = message(row, queue_name)
            except UnreadableRow as error:
                faults.append((row.seq, str(error)))
                continue
            delivered.driver_data = SQLDelivery(
                self._owner, queue_name, delivered.id, row.seq, token
            )
            taken.append(delivered)
        return faults

    def _set_aside(
        self, faults: list[tuple[int, str]], queue_name: str, token: int, end: Deadline
    ) -> None:
        """What is no message never comes again (POP-8)."""
        if not faults:
            return
        self._dialect.write(lambda cursor: self._dialect.set_aside(cursor, faults, token), end=end)
        for seq, reason in faults:
            _log.warning(
                "row %d of queue %s cannot be read and is set aside among the dead letters: %s",
                seq,
                safe_repr(queue_name),
                reason,
            )

    def _give_back(self, taken: list[Message]) -> None:
        """Nobody can settle what a closed queue hands out (LIFE-1)."""
        batch = SettlementBatch(
            "release", taken, SQLDelivery, self._owner, self._dialect.guarantees
        )
        # Where it fails, the leases end.
        with suppress(QueueError):
            self._dialect.write(
                lambda cursor: self._dialect.release(cursor, batch.items), items=batch.items
            )
