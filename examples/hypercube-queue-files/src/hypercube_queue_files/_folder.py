"""One queue as a folder, and the moves between the states of its messages.

lock               held by whoever looks at the queue or changes it
new                the next body, until it is complete
bodies/KEY         a message: the number of its copy, then its envelope
live/../../ENTRY   an empty file: when that message is visible, and whose it is until then
dead/ENTRY         the same for a dead one

The body is the message. Its entry is made before it and removed after it, so a crash leaves at
worst an entry without a body, which the next one to meet it removes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hypercube_queue import BackendError
from hypercube_queue.driver import (
    MAX_POP_BYTES,
    Deadline,
    Envelope,
    PushItem,
    UnreadableEnvelope,
    checked_envelope,
    encode_envelope,
)
from hypercube_queue_files._entry import Entry, key_of, now

_log = logging.getLogger("hypercube_queue_files")

_LOCK_EVERY_SECONDS = 0.001
_FAR = "g"  # behind every hexadecimal digit


class Folder:
    """Every method but `exists` and `retains` runs under the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Names of what was visible at the last look, the oldest at the end.
        self._seen: list[str] = []
        self._changed: set[Path] = set()

    # The folder itself

    def exists(self) -> bool:
        try:
            self.path.stat()  # Path.exists takes a root that is no folder for an empty one
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unusable(error) from error
        return True

    def retains(self) -> bool:
        """Whether there is a message in any state."""
        bodies = self.path / "bodies"
        return bodies.exists() and names_in(bodies) != []

    @contextmanager
    def locked(self, limit: timedelta) -> Iterator[None]:
        """Keep all others out, of this process too. BackendError if it takes longer than that."""
        deadline = Deadline(limit)
        try:
            lock = self._open_lock()
        except OSError as error:
            raise _unusable(error) from error
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if deadline.passed:
                        text = f"{self.path} was locked by others for all of {limit}"
                        raise BackendError(text) from error
                time.sleep(_LOCK_EVERY_SECONDS)
            self._changed.clear()
            yield
        finally:
            # Closing alone would leave it with a child that was forked meanwhile.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _open_lock(self) -> int:
        try:
            return os.open(self.path / "lock", os.O_RDWR)
        except FileNotFoundError:
            for name in ("bodies", "live", "dead"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            for folder in (self.path, self.path.parent):
                _sync(folder)
            return os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)

    def sync(self) -> None:
        """Return when what was changed so far survives a loss of power."""
        for folder in self._changed:
            with suppress(FileNotFoundError):
                _sync(folder)
        self._changed.clear()

    # Push

    def has(self, message_id: str) -> bool:
        return self._body(key_of(message_id)).exists()

    def add(self, items: Sequence[PushItem]) -> None:
        """Store messages whose ids are free."""
        entries = []
        for item in items:
            entry = Entry(now() + item.delay_us, key_of(item.id), secrets.token_hex(4))
            self._file(entry, made=True).touch()
            entries.append(entry)
        self.sync()  # a body without an entry would take its id for ever
        for item, entry in zip(items, entries, strict=True):
            envelope = Envelope(
                item.queue_name,
                item.id,
                item.payload,
                item.extra,
                item.job_name,
                item.namespace,
                item.visibility_us,
            )
            self._write(entry, envelope)
        self.sync()

    # Pop

    def take(self, limit: int, default_visibility_us: int) -> Iterator[tuple[Entry, Envelope]]:
        """Own up to so many messages and MAX_POP_BYTES, for as long as each message says."""
        left, bytes_left = limit, MAX_POP_BYTES
        for entry in self._visible():
            if (envelope := self._readable(entry)) is None:
                continue
            lease_us = envelope.visibility_us or default_visibility_us
            owner = secrets.token_hex(4)
            owned = replace(entry, due=now() + lease_us, attempt=entry.attempt + 1, owner=owner)
            self.move(entry, owned)
            yield owned, envelope
            left -= 1
            bytes_left -= len(envelope.payload) + len(envelope.extra)
            if not left or bytes_left <= 0:
                return

    def _visible(self) -> Iterator[Entry]:
        """What the last look has left, then what there is now; others may have taken some."""
        yield from self._rest()
        self._look()
        yield from self._rest()

    def _rest(self) -> Iterator[Entry]:
        while self._seen:
            entry = Entry.parse(self._seen.pop())
            if self._file(entry).exists():
                yield entry

    def _look(self) -> None:
        stamp = f"{now():016x}"
        found: list[str] = []
        for folder in self._seconds(stamp):
            names = names_in(folder)
            found += [name for name in names if name <= stamp]
            if not names and folder.parent.name + folder.name < stamp[:11]:
                folder.rmdir()
                with suppress(OSError):  # the hour, if this was the last second of it
                    folder.parent.rmdir()
        self._seen = sorted(found, reverse=True)

    def _readable(self, entry: Entry) -> Envelope | None:
        """The message of a visible entry; one that cannot be read is dead from now on."""
        try:
            envelope = self.read(entry)
        except UnreadableEnvelope as error:
            _log.warning("%s/bodies/%s is dead-lettered: %s", self.path, entry.key, error)
            self.move(entry, replace(entry, due=now(), dead=True))
            return None
        if envelope is None:
            self._file(entry).unlink()
        return envelope

    # Settlement; each is for an entry that is owned

    def owns(self, entry: Entry) -> bool:
        return now() < entry.due and self._file(entry).exists()

    def remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._body(entry.key).unlink()
            self._changed.add(self.path / "bodies")
        self.sync()
        for entry in entries:
            self._file(entry).unlink()

    def rewrite(self, entry: Entry, payload: bytes, extra: bytes) -> None:
        if envelope := self.read(entry):  # always, unless somebody removed it by hand
            self._write(entry, replace(envelope, payload=payload, extra=extra))

    def move(self, entry: Entry, to: Entry) -> None:
        self._file(entry).rename(self._file(to, made=True))
        self._changed.add(self.path / entry.folder)

    # The dead

    def dead(self) -> list[Entry]:
        """The oldest death first."""
        return [Entry.parse(name, dead=True) for name in names_in(self.path / "dead")]

    def redrive(self, count: int) -> int:
        """Make dead messages ready, as new; how many surely moved."""
        moved = 0
        try:
            for entry in self.dead():
                if moved == count:
                    break
                with suppress(UnreadableEnvelope):
                    if self.read(entry):
                        self.move(entry, replace(entry, due=now(), attempt=0, dead=False))
                        moved += 1
            self.sync()
        except OSError:
            if not moved:
                raise
        return moved

    # Looking

    def read(self, entry: Entry) -> Envelope | None:
        """The message of an entry, or None if a crash left the entry without one."""
        try:
            blob = self._body(entry.key).read_bytes()
        except FileNotFoundError:
            return None
        envelope = checked_envelope(blob[8:])
        return envelope if blob[:8] == entry.copy.encode() else None

    def live(self) -> Iterator[Entry]:
        for folder in self._seconds(_FAR):
            yield from map(Entry.parse, names_in(folder))

    # Internal

    def _seconds(self, until: str) -> Iterator[Path]:
        """The folders of what is due by then, in order."""
        live = self.path / "live"
        for hour in names_in(live):
            for second in names_in(live / hour) if hour <= until[:8] else ():
                if hour + second <= until[:11]:
                    yield live / hour / second

    def _file(self, entry: Entry, *, made: bool = False) -> Path:
        folder = self.path / entry.folder
        if made:
            folder.mkdir(parents=True, exist_ok=True)
            self._changed |= {folder, folder.parent, folder.parent.parent}
        return folder / entry.name

    def _body(self, key: str) -> Path:
        return self.path / "bodies" / key

    def _write(self, entry: Entry, envelope: Envelope) -> None:
        """Make or replace the body of an entry: at no moment is there half of one."""
        new = self.path / "new"
        with new.open("wb") as file:
            file.write(entry.copy.encode() + encode_envelope(envelope))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._body(entry.key))
        self._changed.add(self.path / "bodies")


def names_in(folder: Path) -> list[str]:
    with os.scandir(folder) as found:
        return sorted(each.name for each in found)


def _unusable(error: OSError) -> BackendError:
    return BackendError(f"the queue's folder cannot be used: {error}", permanent=True)


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
