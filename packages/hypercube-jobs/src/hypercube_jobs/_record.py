"""What travels with a job beside its payload: the JSON object in a message's `extra`.

    v              1, the version of this layout
    retries        how often it may be tried again
    timeout        microseconds that an attempt may take
    backoff        only if the dispatch named one
    dispatched_at  microseconds since 1970
    left           microseconds to wait after the delay of the message is over
    due            when all of the delay is over, in microseconds since 1970
    deliveries     how many there had been when this was written: more than one since is a loss
    free           deliveries that cost no attempt (ATT-1)
    quarantined    true once a delivery was lost: the next one is run alone (ATT-3)
    lost           lone runs that were lost
    interrupted    shutdowns in a row that ended an attempt
    failures       attempts that failed, since the job was dispatched or redriven
    failure        the last of them: type, text, traceback, attempt, at
    trace          the trace context, for whoever traces
    former         what another producer had in `extra`, in base64

Absent keys mean the handler's defaults, or zero. Keys that are not named here survive.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from pydantic_core import from_json

from hypercube_jobs import _backoff, _failure
from hypercube_jobs._backoff import Backoff, Constant, Exponential
from hypercube_jobs._clock import Clock, to_epoch_microseconds
from hypercube_jobs._failure import Failure
from hypercube_jobs._policy import MAX_RETRIES
from hypercube_queue import MAX_DURATION
from hypercube_queue.times import from_epoch_microseconds, from_microseconds, to_microseconds

VERSION = 1

_NOTHING = timedelta(0)
_encode = json.JSONEncoder(separators=(",", ":")).encode
_LONGEST_US = to_microseconds(MAX_DURATION)
#: Counters are at most this; anything more is no count of ours.
_MANY = 1 << 53
#: How far the clocks of hosts may differ before a delay in steps could end early.
_CLOCK_DIFFERENCE_US = to_microseconds(timedelta(seconds=30))
_NO_TRACE: Mapping[str, str] = MappingProxyType({})


class Record:
    """The record of one message.

    Reading never fails: a value that makes no sense counts as absent, and bytes that are no
    record at all are kept in `former`.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields

    @classmethod
    def new(
        cls,
        *,
        retries: int,
        timeout: timedelta,
        backoff: Backoff | None,
        dispatched_at: datetime,
        trace: Mapping[str, str] | None = None,
    ) -> Record:
        """The record of a job that is being dispatched."""
        fields: dict[str, object] = {
            "v": VERSION,
            "retries": retries,
            "timeout": to_microseconds(timeout),
            "dispatched_at": to_epoch_microseconds(dispatched_at),
        }
        if isinstance(backoff, Constant | Exponential):
            fields["backoff"] = _backoff.to_wire(backoff)
        if trace:
            fields["trace"] = dict(trace)
        return cls(fields)

    @classmethod
    def read(cls, extra: bytes) -> Record:
        """The record in `extra`, whoever wrote it."""
        if not extra:
            return cls({"v": VERSION})
        try:
            fields = _decode(extra)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict) and _whole(fields.get("v"), _MANY) is not None:
            return cls(fields)
        return cls({"v": VERSION, "former": base64.b64encode(extra).decode()})

    def to_bytes(self, limit: int | None = None) -> bytes | None:
        """The record as `extra`, in at most `limit` bytes; None if it cannot be done.

        What does not fit is left out, the least needed first: the traceback, the failure's
        text, the failure, the former bytes, everything that this version does not know.
        """
        for fields in self._shrinking():
            try:
                encoded = _encode(fields).encode()
            except (ValueError, RecursionError):
                continue
            if limit is None or len(encoded) <= limit:
                return encoded
        return None

    def essentials(self) -> bytes:
        """As much of the record as it takes to go on counting."""
        return _encode(self._essentials()).encode()

    def _essentials(self) -> dict[str, object]:
        return {
            key: value
            for key, value in self._fields.items()
            if key in _ESSENTIAL and (key == "backoff" or isinstance(value, int))
        }

    def _shrinking(self) -> Iterator[dict[str, object]]:
        full = self._fields
        yield full
        if (failure := self.failure) is not None:
            at_us = to_epoch_microseconds(failure.at)
            short = _failure.to_wire(failure.without_traceback(), at_us)
            yield full | {"failure": short}
            yield full | {"failure": short | {"text": failure.text[:100]}}
        bare = {key: value for key, value in full.items() if key != "failure"}
        yield bare
        yield {key: value for key, value in bare.items() if key != "former"}
        yield self._essentials()

    # The policy that the job was dispatched with

    @property
    def retries(self) -> int | None:
        return _whole(self._fields.get("retries"), MAX_RETRIES)

    @property
    def timeout(self) -> timedelta | None:
        microseconds = _whole(self._fields.get("timeout"), _LONGEST_US)
        return from_microseconds(microseconds) if microseconds else None

    @property
    def timeout_seconds(self) -> float | None:
        microseconds = _whole(self._fields.get("timeout"), _LONGEST_US)
        return microseconds / 1_000_000 if microseconds else None

    @property
    def backoff(self) -> Backoff | None:
        return _backoff.from_wire(self._fields.get("backoff"))

    @property
    def dispatched_at(self) -> datetime | None:
        microseconds = _whole(self._fields.get("dispatched_at"), _MANY)
        return None if microseconds is None else from_epoch_microseconds(microseconds)

    @property
    def trace(self) -> Mapping[str, str]:
        """What the dispatch gave along for whoever traces."""
        value = self._fields.get("trace")
        if value is None or not isinstance(value, dict):
            return _NO_TRACE
        return {key: text for key, text in value.items() if isinstance(text, str)}

    # What a middleware notes before a dispatch

    def note_trace(self, trace: Mapping[str, str]) -> None:
        """Give this along."""
        self._fields["trace"] = {str(key): str(text) for key, text in trace.items()}

    # A delay that is longer than the backend's longest, which passes in steps

    def start_delay(self, delay: timedelta, longest: timedelta, now: datetime) -> timedelta:
        """Begin to wait for `delay`, and forget any delay before; the delay of the first step.

        A backend that has no delays at all (`longest` is zero) waits for none.
        """
        self._end_delay()
        if delay > longest > _NOTHING:
            self._fields["due"] = to_epoch_microseconds(now) + to_microseconds(delay)
            self._fields["left"] = to_microseconds(delay - longest)
        return min(delay, longest)

    def next_step(self, longest: timedelta, clock: Clock) -> timedelta:
        """Take the next step of a delay; zero if the job is due.

        Steps add up to the delay, whatever clocks say. Where they came late, `due` ends it
        sooner, with an allowance for the difference of two clocks.
        """
        left = self.delay_left
        if not left:
            return _NOTHING
        due = _whole(self._fields.get("due"), _MANY)
        if due is not None:
            remaining = due - to_epoch_microseconds(clock()) + _CLOCK_DIFFERENCE_US
            left = min(left, from_microseconds(max(0, remaining)))
        step = min(left, longest)
        if left > step:
            self._fields["left"] = to_microseconds(left - step)
        else:
            self._end_delay()
        return step

    @property
    def delay_left(self) -> timedelta:
        """How long it waits after the message's present delay."""
        microseconds = _whole(self._fields.get("left"), _LONGEST_US)
        return from_microseconds(microseconds) if microseconds else _NOTHING

    def _end_delay(self) -> None:
        self._fields.pop("left", None)
        self._fields.pop("due", None)

    # What happened to it

    @property
    def is_new(self) -> bool:
        """Whether nothing has happened to it that is counted."""
        return "free" not in self._fields and "failures" not in self._fields

    @property
    def deliveries(self) -> int:
        """How many deliveries there had been when a worker last wrote the record."""
        return _whole(self._fields.get("deliveries"), _MANY) or 0

    @property
    def quarantined(self) -> bool:
        """Whether the delivery after those is to run while its process holds no other job."""
        return self._fields.get("quarantined") is True

    @property
    def lost(self) -> int:
        """Lone runs whose process, or lease, ended before they did."""
        return _whole(self._fields.get("lost"), _MANY) or 0

    @property
    def free(self) -> int:
        return _whole(self._fields.get("free"), _MANY) or 0

    @property
    def interrupted(self) -> int:
        return _whole(self._fields.get("interrupted"), _MANY) or 0

    @property
    def failures(self) -> int:
        return _whole(self._fields.get("failures"), _MANY) or 0

    @property
    def failure(self) -> Failure | None:
        return _failure.from_wire(self._fields.get("failure"))

    @property
    def former(self) -> bytes | None:
        """The bytes that another producer had put in `extra`."""
        value = self._fields.get("former")
        if not isinstance(value, str):
            return None
        try:
            return base64.b64decode(value, validate=True)
        except (ValueError, binascii.Error):
            return None

    # What the worker notes before it gives a delivery back

    def note_free(self) -> None:
        """A delivery that was not run, and costs no attempt (ATT-1)."""
        self._fields["free"] = self.free + 1

    def note_deliveries(self, count: int) -> None:
        """There have been so many; a worker that writes the record has seen them all."""
        self._fields["deliveries"] = count
        if self.free > count:
            self._fields["free"] = count  # whoever wrote that did not count

    def note_quarantine(self, lost: int) -> None:
        """The next delivery runs alone; `lost` such runs have been lost (ATT-3)."""
        self.note_free()
        self._fields["quarantined"] = True
        if lost:
            self._fields["lost"] = lost

    def end_quarantine(self) -> None:
        """The attempt came to an end of its own, so the job may run among others again."""
        self._fields.pop("quarantined", None)

    def note_interruption(self) -> None:
        """A shutdown ended the attempt, at no cost (ATT-1)."""
        self.note_free()
        self._fields["interrupted"] = self.interrupted + 1

    def note_failure(self, failure: Failure) -> None:
        """An attempt failed."""
        self._fields["failures"] = self.failures + 1
        self._fields["failure"] = _failure.to_wire(failure, to_epoch_microseconds(failure.at))

    def end_interruptions(self) -> None:
        """The attempt ended by itself, so the next interruption is the first in a row."""
        self._fields.pop("interrupted", None)

    def start_anew(self) -> None:
        """Set the counters to zero before the dead letters: redriven, it is at 1 (ATT-2)."""
        for counter in ("deliveries", "free", "quarantined", "lost", "failures", "interrupted"):
            self._fields.pop(counter, None)
        self._end_delay()


#: Enough to go on counting.
_ESSENTIAL = frozenset(
    {
        *("v", "retries", "timeout", "backoff", "dispatched_at", "left", "due"),
        *("deliveries", "free", "quarantined", "lost", "interrupted", "failures"),
    }
)


def _decode(extra: bytes) -> object:
    try:
        return from_json(extra, cache_strings="keys")
    except ValueError:
        # It refuses half of a surrogate pair, which the text of an error may have.
        return json.loads(extra.decode())


def _whole(value: object, largest: int) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest:
        return value
    return None
