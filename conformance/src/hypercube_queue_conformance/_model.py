"""The contract as a model: plain dictionaries, a clock that is set, and no backend."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from hypercube_queue import Message


class State(Enum):
    READY = "ready"
    DELAYED = "delayed"
    IN_FLIGHT = "in_flight"
    DEAD = "dead"


@dataclass(slots=True)
class Stored:
    """A message as the contract sees it."""

    payload: bytes
    extra: bytes
    job_name: str
    namespace: str
    visibility: timedelta
    state: State
    #: When a delay is due or a lease ends.
    until: timedelta
    attempt: int = 0
    #: The number of the delivery that owns it.
    owner: int = 0
    #: The number of its death.
    death: int = 0
    #: Pushed without a delay and not delivered yet, so its place in the order is known.
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivery: whose it is, and what it is of."""

    number: int
    queue_name: str
    id: str
    #: Whether its place in the order was known, and is again when it is released.
    fresh: bool


class Model:
    """What a driver with all promises does. Its methods say what must happen, and do it."""

    def __init__(self) -> None:
        self.now = timedelta(0)
        self._queues: dict[str, dict[str, Stored]] = {}
        self._numbers = 0

    # Time

    def advance(self, duration: timedelta) -> None:
        self.now += duration
        for stored in self._all():
            if stored.state in (State.DELAYED, State.IN_FLIGHT) and stored.until <= self.now:
                stored.state, stored.owner = State.READY, 0

    def next_due(self) -> timedelta | None:
        """When the next lease or delay ends, if any does."""
        due = [
            stored.until
            for stored in self._all()
            if stored.state in (State.DELAYED, State.IN_FLIGHT)
        ]
        return min(due, default=None)

    # Push

    def push(self, message: Message) -> bool:
        """False where the id is retained (PUSH-4)."""
        queue = self._queues.setdefault(message.queue_name, {})
        if message.id in queue:
            return False
        stored = queue[message.id] = Stored(
            bytes(message.payload),
            bytes(message.extra),
            message.job_name,
            message.namespace,
            message.visibility_timeout or timedelta(0),
            State.READY,
            self.now,
            fresh=not message.delay,
        )
        self._make_visible(stored, message.delay)
        return True

    # Pop

    def ready(self, queue_name: str) -> dict[str, Stored]:
        """What a pop may return."""
        queue = self._queues.get(queue_name, {})
        return {id: stored for id, stored in queue.items() if stored.state is State.READY}

    def fresh(self, queue_name: str) -> list[str]:
        """Those of them whose order is promised where there is one (POP-10)."""
        return [id for id, stored in self.ready(queue_name).items() if stored.fresh]

    def deliver(self, queue_name: str, id: str) -> Delivered:
        """A pop has returned this message, which was ready."""
        stored = self._queues[queue_name][id]
        fresh, stored.fresh = stored.fresh, False
        stored.state = State.IN_FLIGHT
        stored.until = self.now + stored.visibility
        stored.attempt += 1
        stored.owner = self._next_number()
        return Delivered(stored.owner, queue_name, id, fresh)

    def owns(self, delivered: Delivered) -> bool:
        """Whether a settlement of this delivery would succeed."""
        return self._owned(delivered) is not None

    # Settlement; each returns False where the delivery is stale (SET-2)

    def ack(self, delivered: Delivered) -> bool:
        if self._owned(delivered) is None:
            return False
        del self._queues[delivered.queue_name][delivered.id]
        return True

    def retry(self, delivered: Delivered, payload: bytes, extra: bytes, delay: timedelta) -> bool:
        stored = self._owned(delivered)
        if stored is None:
            return False
        stored.payload, stored.extra = payload, extra
        self._make_visible(stored, delay)
        return True

    def dead_letter(self, delivered: Delivered, payload: bytes, extra: bytes) -> bool:
        stored = self._owned(delivered)
        if stored is None:
            return False
        stored.payload, stored.extra = payload, extra
        stored.state, stored.owner = State.DEAD, 0
        stored.death = self._next_number()
        return True

    def extend(self, delivered: Delivered, extension: timedelta) -> bool:
        stored = self._owned(delivered)
        if stored is None:
            return False
        stored.until = self.now + extension
        return True

    def release(self, delivered: Delivered) -> bool:
        stored = self._owned(delivered)
        if stored is None:
            return False
        stored.attempt -= 1
        stored.state, stored.owner, stored.fresh = State.READY, 0, delivered.fresh
        return True

    def lose(self, delivered: Delivered) -> None:
        """Its connection ended, on a backend without leases (POP-6)."""
        if stored := self._owned(delivered):
            stored.state, stored.owner = State.READY, 0

    # The dead

    def dead(self, queue_name: str) -> list[tuple[str, Stored]]:
        """Oldest death first."""
        queue = self._queues.get(queue_name, {})
        dead = [(id, stored) for id, stored in queue.items() if stored.state is State.DEAD]
        return sorted(dead, key=lambda entry: entry[1].death)

    def redrive(self, queue_name: str, id: str) -> bool:
        stored = self._queues.get(queue_name, {}).get(id)
        if stored is None or stored.state is not State.DEAD:
            return False
        stored.state, stored.attempt = State.READY, 0
        return True

    def forget(self, queue_name: str, id: str) -> bool:
        stored = self._queues.get(queue_name, {}).get(id)
        if stored is None or stored.state is not State.DEAD:
            return False
        del self._queues[queue_name][id]
        return True

    # Counting

    def counts(self, queue_name: str) -> dict[str, int]:
        """How many messages are in each state."""
        found = Counter(stored.state for stored in self._queues.get(queue_name, {}).values())
        return {state.value: found[state] for state in State}

    def names(self) -> list[str]:
        return sorted(name for name, queue in self._queues.items() if queue)

    # Within

    def _all(self) -> list[Stored]:
        return [stored for queue in self._queues.values() for stored in queue.values()]

    def _owned(self, delivered: Delivered) -> Stored | None:
        stored = self._queues.get(delivered.queue_name, {}).get(delivered.id)
        return stored if stored is not None and stored.owner == delivered.number else None

    def _make_visible(self, stored: Stored, delay: timedelta) -> None:
        stored.owner = 0
        stored.state = State.DELAYED if delay else State.READY
        stored.until = self.now + delay

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers
