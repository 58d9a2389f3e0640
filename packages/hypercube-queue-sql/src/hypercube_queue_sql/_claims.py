"""How a pop waits, and how it takes what it finds."""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from datetime import timedelta

from hypercube_queue import Message, QueueError
from hypercube_queue.driver import Deadline, Gate, SettlementBatch, shown
from hypercube_queue_sql._delivery import SQLDelivery
from hypercube_queue_sql._dialect import Dialect
from hypercube_queue_sql._rows import Row, UnreadableRow, message

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

    def pop(
        self, queue_name: str, max_messages: int, waiting: timedelta, operation_timeout: timedelta
    ) -> list[Message]:
        """Wait for up to `waiting` until there is something to take, and take it."""
        dialect = self._dialect
        deadline = Deadline(waiting)
        # One for all looks and the claim, which could take the time limit each (ERR-5).
        end = Deadline(waiting + operation_timeout)
        look = dialect.looks_first
        pause = _PAUSE
        with dialect.wakeups.watch(queue_name) as watch:
            while True:
                self._gate.check()
                seen = watch.changes
                if not look:
                    if taken := self._take(queue_name, max_messages, end):
                        return taken
                    if deadline.passed:
                        return []
                seconds = dialect.next_visible(queue_name, end)
                if seconds is None:
                    seconds = dialect.poll_seconds
                elif seconds <= 0:
                    if look and (taken := self._take(queue_name, max_messages, end)):
                        return taken
                    seconds, pause = pause, 2 * pause
                if deadline.passed:
                    return []
                dialect.listen()
                woken = watch.sleep(
                    seen, min(seconds, dialect.poll_seconds, deadline.seconds_left())
                )
                look = dialect.looks_first or not woken

    def _take(self, queue_name: str, max_messages: int, end: Deadline) -> list[Message]:
        token = secrets.randbits(63)
        taken: list[Message] = []
        while len(taken) < max_messages:
            try:
                faults = self._claim(queue_name, max_messages - len(taken), token, taken, end)
            except QueueError:
                if not taken:
                    raise
                break  # the error waits for the next call (POP-1)
            if not faults:
                break  # all that is ready has come
        if taken and self._gate.closed:
            self._give_back(taken)
            self._gate.check()
        return taken

    def _claim(
        self, queue_name: str, limit: int, token: int, taken: list[Message], end: Deadline
    ) -> list[tuple[int, str]]:
        """Lease once, add the messages to `taken`, and set aside what is none (POP-8)."""
        rows = self._dialect.write(
            lambda cursor: self._dialect.claim(
                cursor, queue_name, limit, self._visibility_us, token
            ),
            end=end,
        )
        faults = []
        for row in rows:
            try:
                taken.append(self._delivered(row, queue_name, token))
            except UnreadableRow as error:
                faults.append((row.seq, str(error)))
        if faults:
            self._dialect.write(
                lambda cursor: self._dialect.set_aside(cursor, faults, token), end=end
            )
        for seq, reason in faults:
            _log.warning(
                "row %d of queue %s cannot be read and is set aside among the dead letters: %s",
                seq,
                shown(queue_name),
                reason,
            )
        return faults

    def _delivered(self, row: Row, queue_name: str, token: int) -> Message:
        delivered = message(row, queue_name)
        delivered.driver_data = SQLDelivery(self._owner, queue_name, delivered.id, row.seq, token)
        return delivered

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
