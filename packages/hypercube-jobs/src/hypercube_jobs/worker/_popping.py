"""Getting deliveries from several queues, the first ones first."""

from __future__ import annotations

import threading
from collections import deque
from datetime import timedelta
from queue import SimpleQueue

from hypercube_jobs.worker._bell import Bell
from hypercube_queue import Message, Queue, QueueError

_AT_ONCE = timedelta(0)


class Popping:
    """Sweeps the queues in their order without waiting, and waits at all of them at once.

    `wait` is how long a waiting pop waits.
    """

    def __init__(self, queue: Queue, names: tuple[str, ...], wait: timedelta, bell: Bell) -> None:
        self._queue = queue
        self._names = names
        self._wait = wait
        self._bell = bell
        self._waiters: list[_Waiter] = []

    def sweep(self, room: int, wait: timedelta = _AT_ONCE) -> list[Message]:
        """Up to `room` deliveries, asking each queue in turn. Raises QueueError."""
        found: list[Message] = []
        for name in self._names:
            try:
                found += self._queue.pop(name, room - len(found), wait=wait)
            except QueueError:
                if not found:
                    raise
                break  # what was found must not be lost; the error comes again
            if len(found) >= room:
                break
        return found

    def take(self, room: int) -> list[Message]:
        """Up to `room` deliveries as soon as one is ready, or none. Raises QueueError.

        Of several queues, deliveries of pops that are still waiting come later, by `arrived`,
        and may be more than there is room for.
        """
        if len(self._names) == 1:
            return self._queue.pop(self._names[0], room, wait=self._wait)
        if found := self.sweep(room):
            return found
        if not self._waiters:
            self._waiters = [
                _Waiter(self._queue, name, self._wait, self._bell) for name in self._names
            ]
        for waiter in self._waiters:
            waiter.wait_for(room)
        self._bell.wait()
        return self.arrived()

    @property
    def waiting(self) -> bool:
        """Whether `arrived` has deliveries, or pops are waiting that may yet bring some."""
        return any(waiter.busy or waiter.found for waiter in self._waiters)

    def arrived(self) -> list[Message]:
        """What the waiting pops have brought. Raises the QueueError that one of them met."""
        found: list[Message] = []
        for waiter in self._waiters:
            found += waiter.take()
        if not found:
            for waiter in self._waiters:
                waiter.raise_error()
        return found

    def close(self) -> None:
        """Wait no more, once the pops that are under way have ended."""
        for waiter in self._waiters:
            waiter.close()


class _Waiter:
    """A thread that waits at one queue, once each time it is told to."""

    def __init__(self, queue: Queue, name: str, wait: timedelta, bell: Bell) -> None:
        self.busy = False
        self._queue = queue
        self._name = name
        self._wait = wait
        self._bell = bell
        self._rooms: SimpleQueue[int | None] = SimpleQueue()
        self.found: deque[Message] = deque()
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="hypercube-pop", daemon=True).start()

    def wait_for(self, room: int) -> None:
        if not self.busy:
            self.busy = True
            self._rooms.put(room)

    def take(self) -> list[Message]:
        # A pop may add to it meanwhile.
        return [self.found.popleft() for _ in range(len(self.found))]

    def raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        self._rooms.put(None)

    def _run(self) -> None:
        while (room := self._rooms.get()) is not None:
            try:
                self.found.extend(self._queue.pop(self._name, room, wait=self._wait))
            except BaseException as error:  # noqa: BLE001  # it is raised where it is asked for
                self._error = error
            self.busy = False
            self._bell.ring()
