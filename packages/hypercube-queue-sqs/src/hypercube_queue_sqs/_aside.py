"""Setting aside what cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from hypercube_queue import QueueError
from hypercube_queue.driver import Deadline, chunked, safe_repr
from hypercube_queue_sqs._directory import Directory
from hypercube_queue_sqs._place import Place
from hypercube_queue_sqs._service import Service
from hypercube_queue_sqs._wire import MAX_ENTRIES, MAX_REQUEST_BYTES, entry_bytes, set_aside

_log = logging.getLogger("hypercube_queue_sqs")

#: Seconds for which a message is held that cannot be set aside.
_HELD_FOR = 3600


class Aside:
    """Puts messages among the dead letters as they came, with the reason (POP-8)."""

    def __init__(self, service: Service, directory: Directory) -> None:
        self._service = service
        self._directory = directory

    def put(
        self,
        queue_name: str,
        place: Place,
        unreadable: Sequence[tuple[dict[str, Any], str]],
        end: Deadline,
    ) -> None:
        """Move them; one that cannot be moved is held, so that nobody spins on it."""
        prepared = [(each, set_aside(each, reason), reason) for each, reason in unreadable]
        for chunk in chunked(
            prepared,
            MAX_ENTRIES,
            max_bytes=MAX_REQUEST_BYTES,
            size=lambda each: entry_bytes(each[1]),
        ):
            fates: Sequence[QueueError | None]
            try:
                dead = self._directory.dead(queue_name, end)
                fates = self._service.send(dead, [entry for _, entry, _ in chunk], end)
            except QueueError as error:
                fates = [error] * len(chunk)
            moved: list[str] = []
            held: list[str] = []
            for (received, _, reason), fate in zip(chunk, fates, strict=True):
                (moved if fate is None else held).append(received["ReceiptHandle"])
                _report(queue_name, reason, fate)
            if moved:
                self._service.delete(place.url, moved, end)
            if held:
                self._service.change_visibility(
                    place.url, [(handle, _HELD_FOR) for handle in held], end
                )


def _report(queue_name: str, reason: str, fate: QueueError | None) -> None:
    if fate is None:
        _log.warning(
            "a message of queue %s cannot be read and is set aside among the dead letters: %s",
            safe_repr(queue_name),
            reason,
        )
    else:
        _log.error(
            "a message of queue %s cannot be read (%s) and cannot be set aside; it is held for "
            "%d s: %s",
            safe_repr(queue_name),
            reason,
            _HELD_FOR,
            fate,
        )
