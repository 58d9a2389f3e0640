"""The queues and their messages."""

from __future__ import annotations

import base64
import binascii
import hashlib
import heapq
import itertools
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.strict_sqs.errors import Refused, invalid
from tools.strict_sqs.faults import Faults
from tools.strict_sqs.limits import ATTRIBUTES, LONGEST_VISIBILITY

#: Parts that a queue is spread over; a short poll looks at some of them.
_SERVERS = 4


@dataclass(slots=True, eq=False)
class Stored:
    """One message."""

    body: str
    attributes: Mapping[str, Any]
    sent_at: float
    visible_at: float
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    receives: int = 0
    first_received_at: float = 0.0
    received_at: float = 0.0
    #: Raised whenever `visible_at` is set, so that older entries of the heap are known.
    turn: int = 0
    deleted: bool = False

    @property
    def handle(self) -> str:
        """What identifies its present delivery."""
        return base64.b64encode(f"{self.id} {self.receives}".encode()).decode()


class Queue:
    """A Standard queue."""

    def __init__(self, name: str, url: str, attributes: Mapping[str, str], faults: Faults) -> None:
        self.name = name
        self.url = url
        self.attributes = dict(attributes)
        self.deleted = False
        #: How many messages may be in flight.
        self.most_in_flight = 120_000
        self._faults = faults
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._messages: dict[str, Stored] = {}
        self._ready: deque[Stored] = deque()
        self._later: list[tuple[float, int, int, Stored]] = []
        self._in_flight: set[Stored] = set()

    def setting(self, name: str) -> int:
        """An attribute that is a number, or its default."""
        return int(self.attributes.get(name, ATTRIBUTES[name][0]))

    def counts(self) -> dict[str, int]:
        """How many messages are ready, in flight and delayed."""
        with self._changed:
            self._promote()
            ready = sum(not each.deleted for each in self._ready)
            hidden = len(self._in_flight)
            return {
                "ApproximateNumberOfMessages": ready,
                "ApproximateNumberOfMessagesNotVisible": hidden,
                "ApproximateNumberOfMessagesDelayed": len(self._messages) - ready - hidden,
            }

    def send(self, body: str, attributes: Mapping[str, Any], delay: int) -> Stored:
        """Store a message."""
        now = time.monotonic()
        stored = Stored(body, attributes, now, now + delay)
        with self._changed:
            self._messages[stored.id] = stored
            self._schedule(stored, now + delay)
            self._changed.notify_all()
        return stored

    def receive(self, most: int, visibility: int, wait: int) -> list[tuple[Stored, str, int]]:
        """Messages with the handle and the count of this delivery, waiting for the first."""
        end = time.monotonic() + wait * self._faults.poll_second
        with self._changed:
            while True:
                self._promote()
                if len(self._in_flight) >= self.most_in_flight:
                    if not wait:
                        raise Refused("OverLimit", "Too many messages in flight.", status=403)
                elif taken := self._take(most, visibility, sampled=not wait):
                    return taken
                left = end - time.monotonic()
                if left <= 0 or self.deleted:
                    return []
                if self._later:
                    left = min(left, max(0.0, self._later[0][0] - time.monotonic()) + 0.001)
                self._changed.wait(left)

    def delete(self, handle: str) -> None:
        """Remove the message, if this is the handle of its last delivery; else do nothing."""
        with self._changed:
            stored, receives = self._find(handle)
            if stored is None or stored.receives != receives or self._faults.takes_resurrection():
                return
            stored.deleted = True
            self._in_flight.discard(stored)
            del self._messages[stored.id]

    def change_visibility(self, handle: str, seconds: int) -> None:
        """Move the end of a delivery, if it has not ended."""
        with self._changed:
            stored, receives = self._find(handle)
            if stored is None or stored.receives != receives:
                raise invalid(
                    "ReceiptHandle",
                    handle,
                    "Message does not exist or is not available for visibility timeout change",
                )
            now = time.monotonic()
            if stored.visible_at <= now or stored not in self._in_flight:
                raise Refused("MessageNotInflight", "The message referred to isn't in flight.")
            if now + seconds - stored.received_at > LONGEST_VISIBILITY:
                raise invalid(
                    "VisibilityTimeout",
                    seconds,
                    "Total VisibilityTimeout for the message is beyond the limit "
                    f"[{LONGEST_VISIBILITY} seconds]",
                )
            self._schedule(stored, now + seconds)
            self._changed.notify_all()

    def purge(self) -> None:
        """Remove everything."""
        with self._changed:
            for each in self._messages.values():
                each.deleted = True
            self._messages.clear()
            self._ready.clear()
            self._later.clear()
            self._in_flight.clear()

    def close(self) -> None:
        """It was deleted: end the polls."""
        with self._changed:
            self.deleted = True
            self._changed.notify_all()

    # Within, with the lock held

    def _find(self, handle: str) -> tuple[Stored | None, int]:
        try:
            id, receives = base64.b64decode(handle, validate=True).decode().split(" ")
            return self._messages.get(id), int(receives)
        except (binascii.Error, ValueError):
            raise Refused(
                "ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not valid.'
            ) from None

    def _schedule(self, stored: Stored, at: float) -> None:
        stored.visible_at = at
        stored.turn += 1
        heapq.heappush(self._later, (at, next(self._order), stored.turn, stored))

    def _promote(self) -> None:
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            _, _, turn, stored = heapq.heappop(self._later)
            if turn == stored.turn and not stored.deleted:
                self._in_flight.discard(stored)
                self._ready.append(stored)

    def _take(self, most: int, visibility: int, *, sampled: bool) -> list[tuple[Stored, str, int]]:
        now = time.monotonic()
        retention = self.setting("MessageRetentionPeriod")
        asked = set(range(_SERVERS))
        if sampled and self._faults.sampling:
            asked = set(random.sample(sorted(asked), _SERVERS // 2))
        taken: list[tuple[Stored, str, int]] = []
        elsewhere: list[Stored] = []
        while self._ready and len(taken) < most:
            stored = self._ready.popleft()
            if stored.deleted:
                continue
            if stored.sent_at + retention <= now:
                stored.deleted = True
                self._messages.pop(stored.id, None)
                continue
            if int(stored.id[:2], 16) % _SERVERS not in asked:
                elsewhere.append(stored)
                continue
            stored.receives += 1
            stored.received_at = now
            stored.first_received_at = stored.first_received_at or now
            self._in_flight.add(stored)
            self._schedule(stored, now + visibility)
            taken.append((stored, stored.handle, stored.receives))
            if self._faults.takes_duplicate():
                self._ready.append(stored)
                break
        self._ready.extendleft(reversed(elsewhere))
        return taken


def md5(text: str) -> str:
    """What the service says of a text it received."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
