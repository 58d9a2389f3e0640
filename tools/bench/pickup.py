"""How soon a pop that waits in another process has what was pushed."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import Connection

from hypercube_queue import Message, Queue, open_queue

_QUEUE = "pickup"
#: Seconds that the other process has to start, or to find a message.
_PATIENCE = 30
#: So long a pop has waited before it gets something, in seconds: random, because some look at
#: regular intervals, and long enough that no driver holds a wake-up back.
_SHORTEST, _LONGEST = 0.3, 0.6


def pickup_seconds(queue: Queue, url: str, count: int) -> Iterator[float]:
    """From the call of each push until the message is there."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_pop, args=(url, count + 1, sender), daemon=True)
    process.start()
    sender.close()  # so that its end is noticed here
    _receive(receiver)
    for number in range(count + 1):
        time.sleep(random.uniform(_SHORTEST, _LONGEST))  # noqa: S311 - no secret
        start = time.monotonic()
        queue.push(Message(_QUEUE, b""))
        seconds = _receive(receiver) - start
        if number:  # the first one warms up both sides
            yield seconds
    process.join(_PATIENCE)


def _receive(receiver: Connection) -> float:
    if not receiver.poll(_PATIENCE):
        raise TimeoutError(f"the other process has found nothing for {_PATIENCE} s")
    moment: float = receiver.recv()
    return moment


def _pop(url: str, count: int, sender: Connection) -> None:
    """In the other process: the monotonic clock is the same for both."""
    with open_queue(url) as queue:
        queue.pop(_QUEUE, wait=timedelta(0))
        sender.send(time.monotonic())
        while count:
            popped = queue.pop(_QUEUE, wait=timedelta(seconds=5))
            if popped:
                sender.send(time.monotonic())
                queue.ack(*popped)
                count -= 1
