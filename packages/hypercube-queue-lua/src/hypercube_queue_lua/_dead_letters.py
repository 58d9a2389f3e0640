"""The dead as callers see them."""

from __future__ import annotations

from hypercube_queue import DeadLetter, InvalidArgument
from hypercube_queue.driver import from_epoch_microseconds, safe_repr
from hypercube_queue_lua._wire import Buried, Unreadable, message


def dead_letter(buried: Buried, queue_name: str) -> DeadLetter:
    """What is known of one dead message."""
    died_at = from_epoch_microseconds(buried.death)
    cursor = str(buried.death)
    if not buried.reason:
        try:
            found = message(queue_name, buried.id, buried.body, buried.attempt)
        except Unreadable as error:
            return DeadLetter(None, buried.body, str(error), died_at, cursor)
        return DeadLetter(found, None, "", died_at, cursor)
    return DeadLetter(None, buried.body, buried.reason, died_at, cursor)


def checked_cursor(cursor: object) -> int:
    """The death that a cursor stands for."""
    # Longer ones are no microseconds, and a double would not tell them apart.
    if isinstance(cursor, str) and cursor.isascii() and cursor.isdecimal() and len(cursor) <= 16:
        return int(cursor)
    raise InvalidArgument(f"before is {safe_repr(cursor)}; it takes the cursor of a DeadLetter")
