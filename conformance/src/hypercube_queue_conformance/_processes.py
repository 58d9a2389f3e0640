"""Running functions in fresh interpreters, as workers on other hosts would run.

What runs there lives in this module, because another interpreter must be able to import it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from hypercube_queue import Message, Queue, QueueError

_SPAWN = multiprocessing.get_context("spawn")
#: A child that takes longer than this is stuck.
_LIMIT_SECONDS = 60.0

Opener = Callable[[], Queue]


@contextmanager
def child(function: Callable[..., None], *args: object) -> Iterator[Connection]:
    """`function(connection, *args)` in a process of its own, killed at the end if it still runs."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=function, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.kill()
        process.join(_LIMIT_SECONDS)
        ours.close()


def told(connection: Connection) -> Any:
    """What a child sends next; it must come in time."""
    assert connection.poll(_LIMIT_SECONDS), "the other process sent nothing in time"
    return connection.recv()


def pop_and_ack(connection: Connection, opener: Opener, queue_name: str) -> None:
    """Take and acknowledge what comes, until told to stop and nothing is left; tell the ids."""
    settled: list[str] = []
    with opener() as queue:
        connection.send("ready")
        connection.recv()
        while True:
            deliveries = queue.pop(queue_name, 7, wait=timedelta(milliseconds=100))
            queue.ack(*deliveries)
            settled += [each.id for each in deliveries]
            if not deliveries and connection.poll():
                break
    connection.send(settled)


def push_numbers(connection: Connection, opener: Opener, queue_name: str, numbers: range) -> None:
    """Push a message for each number, then say so."""
    with opener() as queue:
        connection.recv()
        for number in numbers:
            queue.push(Message(queue_name, b"%d" % number, id=str(number)))
    connection.send("pushed")


def pop_and_hold(connection: Connection, opener: Opener, queue_name: str, count: int) -> None:
    """Take deliveries, tell their ids, and settle nothing until the process is killed."""
    queue = opener()
    held = queue.pop(queue_name, count, wait=timedelta(seconds=30))
    connection.send([each.id for each in held])
    connection.recv()


def wait_for_one(connection: Connection, opener: Opener, queue_name: str) -> None:
    """Say when about to wait, and what came."""
    with opener() as queue:
        queue.pop(queue_name, wait=timedelta(0))
        connection.send("waiting")
        connection.send(
            [each.payload for each in queue.pop(queue_name, wait=timedelta(seconds=30))]
        )


def retry_for_ever(connection: Connection, opener: Opener, queue_name: str) -> None:
    """Rewrite and put back one message after the other until the process is killed."""
    queue = opener()
    turn = 0
    while True:
        for delivery in queue.pop(queue_name, 5, wait=timedelta(seconds=1)):
            delivery.extra = b"%d" % turn
            queue.retry(delivery)
            turn += 1
            if turn == 20:
                connection.send("busy")


def in_forked_child(call: Callable[[], object]) -> str:
    """What `call` returned or raised in a fork of this process: its repr, or the error's text."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Forking beside threads is what a preloading server does, and what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            signal.alarm(int(_LIMIT_SECONDS))
            try:
                answer = repr(call())
            except QueueError as error:
                answer = f"{type(error).__name__}: {error}"
            os.write(writing, answer.encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        answer = answers.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the forked child hung, or failed with something other than a QueueError"
    return answer


def processor_share() -> float:
    """What part of a processor this process gets when it takes all that it can."""
    begun, before = time.monotonic(), time.process_time()
    while time.monotonic() - begun < 0.2:
        pass
    return min(1.0, (time.process_time() - before) / (time.monotonic() - begun))
