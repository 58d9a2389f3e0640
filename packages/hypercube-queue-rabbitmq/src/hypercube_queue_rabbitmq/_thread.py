"""The thread that does all input and output of a queue object."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class IOThread:
    """An event loop in a thread of its own, to which other threads bring their calls.

    It starts with the first call. A daemon, since an interpreter that ends must not wait for
    a queue that nobody closed.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    @property
    def is_running(self) -> bool:
        """Whether there was a call, in this process and not in the one it was forked from."""
        return self._thread is not None and self._process == os.getpid()

    def call(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        seconds: float,
        *,
        unclaimed: Callable[[T], None] | None = None,
    ) -> T:
        """The result of the coroutine that `make` gives, in this thread.

        Raises TimeoutError after so many seconds. The coroutine runs on when its caller is
        gone, unless there is `unclaimed`: then it is cancelled, and a result that nobody
        takes any more is passed to that, on the loop.
        """
        loop = self._running()
        call = _Call(make, unclaimed)
        loop.call_soon_threadsafe(call.start)
        try:
            return call.outcome.result(seconds)
        except BaseException:
            # An error of the coroutine's own comes here, too, and then there is nothing to leave.
            if call.outcome.cancel() or call.outcome.exception() is None:
                loop.call_soon_threadsafe(call.leave)
            raise

    def post(self, call: Callable[[], object]) -> None:
        """Run this on the loop, if there is one, without waiting for it."""
        if self.is_running and self._loop is not None:
            self._loop.call_soon_threadsafe(call)

    def stop(self, seconds: float) -> None:
        """End the thread; what still runs on it is cancelled."""
        if self.is_running and self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(seconds)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                # The loop of other adapters has no way to watch sockets on Windows.
                self._loop = asyncio.SelectorEventLoop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="hypercube-rabbitmq", daemon=True
                )
                self._thread.start()
            return self._loop


class _Call(Generic[T]):
    """A coroutine on the loop, and a thread that waits for its outcome until it leaves."""

    def __init__(
        self, make: Callable[[], Coroutine[Any, Any, T]], unclaimed: Callable[[T], None] | None
    ) -> None:
        #: Pending until the coroutine has ended, so that cancelling it means having left first.
        self.outcome: Future[T] = Future()
        self._make = make
        self._unclaimed = unclaimed
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        """Run the coroutine."""
        self._task = asyncio.get_running_loop().create_task(self._make())
        self._task.add_done_callback(self._ended)

    def leave(self) -> None:
        """The thread is gone: what it would have got is for somebody else."""
        if self._unclaimed is None or self._task is None:
            return
        if not self._task.done():
            self._task.cancel()
        elif not self._task.cancelled() and self._task.exception() is None:
            self._unclaimed(self._task.result())

    def _ended(self, task: asyncio.Task[T]) -> None:
        error = CancelledError() if task.cancelled() else task.exception()
        if not self.outcome.set_running_or_notify_cancel():
            self.leave()
        elif error is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
