"""One queue's messages and the moves between their states."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from dataclasses import dataclass, field

from hypercube_queue.driver import PushItem
from hypercube_queue_memory._dead_letter_index import DeadLetterIndex
from hypercube_queue_memory._entry import Entry, MemoryDelivery, State

#: A moment that never comes, in microseconds.
NEVER = 1 << 62
#: Below this many, outdated leases are not worth sweeping.
_FEW = 64


@dataclass(slots=True)
class QueueState:
    """Every method runs under the store's lock, with `now` in microseconds of its clock.

    `ready` holds ready entries in order of becoming so, `returned` the released ones, which
    keep their old positions before them. A lease is looked up by deadline in `leases`, where
    outdated ones stay until they surface or outnumber the others.
    """

    changed: threading.Condition
    entries: dict[str, Entry] = field(default_factory=dict)
    ready: deque[Entry] = field(default_factory=deque)
    returned: list[tuple[int, Entry]] = field(default_factory=list)
    delayed: list[tuple[int, int, Entry]] = field(default_factory=list)
    leases: list[tuple[int, int, int, Entry]] = field(default_factory=list)
    dead: DeadLetterIndex = field(default_factory=DeadLetterIndex)
    in_flight: int = 0
    waiting: int = 0
    #: The moment the waiting pops sleep to, unless they are woken.
    sleeping_until: int = NEVER
    _numbers: int = 0

    # Push

    def add(self, item: PushItem, now: int) -> bool:
        """Store a pushed message; False if its id is retained (PUSH-4)."""
        if item.id in self.entries:
            return False
        entry = Entry(
            id=item.id,
            payload=item.payload,
            extra=item.extra,
            job_name=item.job_name,
            namespace=item.namespace,
            visibility_us=item.visibility_us,
            state=State.READY,
        )
        self.entries[item.id] = entry
        self._make_visible(entry, item.delay_us, now)
        return True

    # Pop

    def promote(self, now: int) -> None:
        """Make ready what is due: delayed messages and expired leases, each once."""
        while self.delayed and self.delayed[0][0] <= now:
            self._append(heapq.heappop(self.delayed)[2])
        while self.leases and self.leases[0][0] <= now:
            lease = heapq.heappop(self.leases)
            if self._is_current(lease):
                entry = lease[3]
                self.in_flight -= 1
                self._append(entry)

    def take(self, default_visibility_us: int, now: int) -> Entry | None:
        """Lease the ready message that has been so for longest."""
        if self.returned and (not self.ready or self.returned[0][0] < self.ready[0].position):
            entry = heapq.heappop(self.returned)[1]
        elif self.ready:
            entry = self.ready.popleft()
        else:
            return None
        visibility_us = entry.visibility_us
        if visibility_us is None:
            visibility_us = default_visibility_us
        entry.state = State.IN_FLIGHT
        entry.attempt += 1
        entry.token = self._next_number()
        self.in_flight += 1
        self._lease_until(entry, now + visibility_us)
        return entry

    def next_due(self) -> int:
        """Return the next time at which something becomes ready by itself."""
        while self.leases and not self._is_current(self.leases[0]):
            heapq.heappop(self.leases)
        return min(
            self.delayed[0][0] if self.delayed else NEVER,
            self.leases[0][0] if self.leases else NEVER,
        )

    # Settlement; each is for a delivery that owns its message

    def owns(self, delivery: MemoryDelivery, now: int) -> bool:
        """Tell whether the delivery's lease is alive (SET-2)."""
        entry = delivery.entry
        return _is_leased(entry, delivery.token) and now < entry.visible_at

    def remove(self, entry: Entry) -> None:
        self._end_lease(entry)
        del self.entries[entry.id]

    def put_back(self, entry: Entry, delay_us: int, now: int) -> None:
        self._end_lease(entry)
        self._make_visible(entry, delay_us, now)

    def dead_letter(self, entry: Entry) -> None:
        self._end_lease(entry)
        entry.state = State.DEAD
        self.dead.add(entry)

    def extend(self, entry: Entry, until: int) -> None:
        self._lease_until(entry, until)

    def release(self, entry: Entry) -> None:
        self._end_lease(entry)
        entry.state = State.READY
        entry.attempt -= 1
        heapq.heappush(self.returned, (entry.position, entry))

    # The dead

    def redrive(self, entry: Entry) -> None:
        """Make a dead message ready, as new (RED-3)."""
        self.dead.remove(entry)
        entry.attempt = 0
        self._append(entry)

    def forget(self, entry: Entry) -> None:
        self.dead.remove(entry)
        del self.entries[entry.id]

    # Wake-ups

    def wake(self) -> None:
        """Wake as many waiting pops as there is something for, all if something is due sooner."""
        if not self.waiting:
            return
        if self.next_due() < self.sleeping_until:
            self.changed.notify_all()
        elif ready := len(self.ready) + len(self.returned):
            self.changed.notify(ready)

    # Internal

    def _make_visible(self, entry: Entry, delay_us: int, now: int) -> None:
        if delay_us:
            entry.state = State.DELAYED
            entry.visible_at = now + delay_us
            heapq.heappush(self.delayed, (entry.visible_at, self._next_number(), entry))
        else:
            self._append(entry)

    def _append(self, entry: Entry) -> None:
        entry.state = State.READY
        entry.position = self._next_number()
        self.ready.append(entry)

    def _lease_until(self, entry: Entry, visible_at: int) -> None:
        entry.visible_at = visible_at
        heapq.heappush(self.leases, (visible_at, self._next_number(), entry.token, entry))
        if len(self.leases) > _FEW and len(self.leases) > 2 * self.in_flight:
            self.leases = [lease for lease in self.leases if self._is_current(lease)]
            heapq.heapify(self.leases)

    def _end_lease(self, entry: Entry) -> None:
        entry.token = 0
        self.in_flight -= 1

    def _is_current(self, lease: tuple[int, int, int, Entry]) -> bool:
        visible_at, _number, token, entry = lease
        return _is_leased(entry, token) and entry.visible_at == visible_at

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers


def _is_leased(entry: Entry, token: int) -> bool:
    return entry.token == token and entry.state is State.IN_FLIGHT
