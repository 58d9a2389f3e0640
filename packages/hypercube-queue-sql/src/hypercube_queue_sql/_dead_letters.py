"""Dead messages as callers see them."""

from __future__ import annotations

import re

from hypercube_queue import DeadLetter, InvalidArgument
from hypercube_queue.driver import from_epoch_microseconds, safe_repr
from hypercube_queue_sql._rows import Row, UnreadableRow, message, raw

#: `visible_at` and `seq` of a dead message, neither over what BIGINT holds.
_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")


def dead_letter(row: Row, queue_name: str) -> DeadLetter:
    """What a dead row shows of itself, readable or not (POP-8)."""
    died_at = from_epoch_microseconds(row.visible_at)
    cursor = f"{row.visible_at}.{row.seq}"
    reason = "" if row.reason is None else row.reason.decode(errors="replace")
    try:
        # What was set aside once stays so, even for a release that could read it.
        if not reason:
            return DeadLetter(message(row, queue_name), None, "", died_at, cursor)
    except UnreadableRow as error:
        reason = str(error)
    return DeadLetter(None, raw(row), reason, died_at, cursor)


def checked_cursor(cursor: object) -> tuple[int, int]:
    """The place that the cursor of a DeadLetter names: `visible_at` and `seq`."""
    if isinstance(cursor, str) and (match := _CURSOR.fullmatch(cursor)):
        return int(match[1]), int(match[2])
    raise InvalidArgument(f"before is {safe_repr(cursor)}; it takes the cursor of a DeadLetter")
