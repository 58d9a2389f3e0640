"""Several worker processes under one that starts, watches and ends them.

They are fresh interpreters and no forks: no lock, connection or thread is inherited. Each has
a line to the supervisor, on which it says that it works and why it ends, and on which signals
are passed on. That a process has ended is told by the system: others may hold the line open.
"""

from __future__ import annotations

import logging
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from hypercube_jobs.worker._held import NEVER
from hypercube_jobs.worker._supervised import DONE, MAX_JOBS, READY, REPLACE

_log = logging.getLogger("hypercube_jobs.worker")

#: How long a process that crashed is missed before the next one starts, in seconds: at first,
#: and at most.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
#: Who worked for as long as this, in seconds, has not crashed at the start.
_HEALTHY = 30.0
#: How long a process may take to end once it has said that it does, in seconds.
_LEAVE = 10.0
#: The number of the signal that ends all at once.
_LAST = 3


@dataclass(slots=True)
class _Place:
    """One of the processes, and whoever follows it."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    line: socket.socket | None = None
    start_at: float = 0.0
    pause: float = 0.0
    ready: bool = False
    ready_at: float = NEVER
    #: Another one is wanted at once, or none at all.
    replace: bool = False
    done: bool = False
    #: When the process is to have ended at the latest.
    leave_by: float = NEVER


class Supervisor:
    """Keeps a process for each of `commands` running.

    Each gets the number of its line as one more argument. A process that says so is replaced
    at once. One that crashes is replaced after a pause, which doubles up to half a minute as
    long as crashes follow each other. One that has had no more to do, or with
    `end_after_max_jobs` has run `max_jobs`, is not replaced, and its exit code counts. The first
    process has to be ready before the others start: an application that cannot be loaded ends
    all of this with its exit code.

    SIGTERM and SIGINT are passed on, the third of them ends the processes at once.
    """

    def __init__(
        self, commands: Sequence[Sequence[str]], *, end_after_max_jobs: bool = False
    ) -> None:
        self._commands = commands
        self._end_after_max_jobs = end_after_max_jobs
        self._places = [_Place(number) for number in range(len(commands))]
        self._selector = selectors.DefaultSelector()
        self._exit_code = 0
        self._loaded = False
        #: Signals that came, and how many of them have been passed on.
        self._signals: list[int] = []
        self._passed_on = 0

    def run(self) -> int:
        """Return the exit code once all processes have ended for good. In the main thread."""
        with self._woken_by_signals():
            while self._open():
                self._pass_on()
                self._start_due()
                for key, _ in self._selector.select(self._pause()):
                    if isinstance(key.data, _Place):
                        self._hear(key.data)
                    else:
                        key.data()
                self._reap()
                self._kill_late()
        return self._exit_code

    def _open(self) -> bool:
        if any(place.process for place in self._places):
            return True
        return not self._signals and any(place.start_at < NEVER for place in self._places)

    # Starting

    def _start_due(self) -> None:
        for place in self._places:
            if self._may_start(place) and place.start_at <= time.monotonic():
                self._start(place)

    def _may_start(self, place: _Place) -> bool:
        if self._signals or place.process is not None:
            return False
        return self._loaded or place is self._places[0]

    def _pause(self) -> float | None:
        moments = [place.start_at for place in self._places if self._may_start(place)]
        moments += [place.leave_by for place in self._places if place.process is not None]
        first = min(moments, default=NEVER)
        return None if first == NEVER else max(0.0, first - time.monotonic())

    def _start(self, place: _Place) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            try:
                place.process = subprocess.Popen(  # noqa: S603  # what the caller says
                    [*self._commands[place.number], str(number)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(number,),
                    # Ctrl-C is for the supervisor, who passes it on; twice would be too much.
                    process_group=0,
                )
            except OSError as error:
                ours.close()
                _log.warning("worker %d cannot be started: %s", place.number + 1, error)
                self._wait(place)
                return
        ours.setblocking(False)
        place.line = ours
        place.ready_at = NEVER
        place.ready = place.replace = place.done = False
        place.leave_by = NEVER
        self._selector.register(ours, selectors.EVENT_READ, place)

    def _wait(self, place: _Place) -> None:
        place.pause = min(place.pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
        place.start_at = time.monotonic() + place.pause

    # Watching

    def _hear(self, place: _Place) -> None:
        if place.line is None:
            return
        try:
            words = place.line.recv(16)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        if not words:
            self._close_line(place)
        if READY in words:
            place.ready = self._loaded = True
            place.ready_at = time.monotonic()
        if DONE in words or (MAX_JOBS in words and self._end_after_max_jobs):
            place.done = True
        elif REPLACE in words or MAX_JOBS in words:
            place.replace = True
        if place.done or place.replace:
            place.leave_by = min(place.leave_by, time.monotonic() + _LEAVE)

    def _close_line(self, place: _Place) -> None:
        line, place.line = place.line, None
        if line is not None:
            self._selector.unregister(line)
            line.close()

    def _reap(self) -> None:
        for place in self._places:
            code = None if place.process is None else place.process.poll()
            if code is not None:
                self._hear(place)  # its last words
                self._close_line(place)
                place.process = None
                self._ended(place, code)

    def _kill_late(self) -> None:
        for place in self._places:
            if place.process is not None and place.leave_by <= time.monotonic():
                place.leave_by = NEVER
                place.process.kill()
                _log.warning(
                    "worker %d has stopped, but its process does not end: a thread or an exit "
                    "handler of the application keeps it; it is killed",
                    place.number + 1,
                )

    def _ended(self, place: _Place, code: int) -> None:
        now = time.monotonic()
        if self._signals:
            place.start_at = NEVER
            if code and place.ready:  # one that was still starting has lost nothing
                self._exit_code = 1
        elif not self._loaded:
            self._exit_code = max(code, 1)
            for each in self._places:
                each.start_at = NEVER
            if code <= 0:  # else it has said why itself
                _log.error("the first worker %s before it was ready", _how(code))
        elif place.replace:
            place.start_at = now
            _log.info("worker %d has ended its process; another one starts", place.number + 1)
        elif place.done:
            place.start_at = NEVER
            self._exit_code = max(self._exit_code, code)
        else:
            # To load a large application on a busy machine takes longer than that by itself.
            if now - place.ready_at >= _HEALTHY:
                place.pause = 0.0
            self._wait(place)
            _log.warning(
                "worker %d %s; another process starts in %g s",
                place.number + 1,
                _how(code),
                place.pause,
            )

    # Ending

    def _pass_on(self) -> None:
        for number in self._signals[self._passed_on :]:
            self._passed_on += 1
            for place in self._places:
                if place.process is None:
                    continue
                if self._passed_on >= _LAST:
                    place.process.kill()
                elif not self._tell(place, number) or not place.ready:
                    # It may not listen yet.
                    place.process.terminate()

    def _tell(self, place: _Place, number: int) -> bool:
        """Pass a signal on by the line; False if that is closed.

        There it cannot be mistaken for one that is sent to all processes of a service at once.
        """
        if place.line is None:
            return False
        try:
            place.line.send(bytes([number]))
        except OSError:
            return False
        return True

    @contextmanager
    def _woken_by_signals(self) -> Iterator[None]:
        woken, waker = socket.socketpair()
        woken.setblocking(False)
        waker.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(64))
        former_fd = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        former: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            former[number] = signal.signal(number, self._on_signal)
        # It has to have a handler to wake the selector.
        former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, former)
        try:
            yield
        finally:
            for each, handler in former.items():
                signal.signal(each, handler)
            signal.set_wakeup_fd(former_fd)
            self._selector.close()
            woken.close()
            waker.close()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)
        if len(self._places) == 1:
            return  # the worker says it, in the log that the application has set up
        if len(self._signals) == 1:
            _log.info(
                "%s: stopping once what runs has ended; another signal interrupts it",
                signal.Signals(number).name,
            )
        elif len(self._signals) < _LAST:
            _log.warning("stopping now: interrupting what runs")


def _how(code: int) -> str:
    """How a process has ended, by what `Popen` says of it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


#: Whether processes can be supervised here; Windows passes no sockets on.
AVAILABLE = sys.platform != "win32"
