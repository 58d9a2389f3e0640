"""How long a failed job waits before its next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from hypercube_queue import InvalidArgument
from hypercube_queue.checks import checked_delay, safe_repr
from hypercube_queue.times import from_microseconds, to_microseconds

#: Takes the number of the failure, from 1, and gives the delay before the attempt after it.
Backoff: TypeAlias = Callable[[int], timedelta]

_LONGEST = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Constant:
    """Always `delay`.

    `jitter`, from 0 to 1, is the part of each delay that is up to chance: with 0.2 it is
    between 80 and 100 % of `delay`, so that jobs which failed together do not return together.
    """

    delay: timedelta
    jitter: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        _check_duration("delay", self.delay)
        _check_jitter(self.jitter)

    def __call__(self, _attempt: int) -> timedelta:
        return _with_jitter(self.delay, self.jitter)


@dataclass(frozen=True, slots=True)
class Exponential:
    """`base`, then twice that, four times that and so on, at most `cap`, by default one hour.

    `jitter` as in `Constant`.
    """

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = field(default=_LONGEST, kw_only=True)
    jitter: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        _check_duration("base", self.base)
        _check_duration("cap", self.cap)
        _check_jitter(self.jitter)

    def __call__(self, attempt: int) -> timedelta:
        # Beyond 64 doublings even a microsecond is over any cap.
        doubled = to_microseconds(self.base) << min(max(attempt, 1) - 1, 64)
        return _with_jitter(from_microseconds(min(doubled, to_microseconds(self.cap))), self.jitter)


def checked_backoff(value: object) -> Backoff:
    """`value` if it can be called with the number of a failure."""
    if not callable(value):
        raise InvalidArgument(
            f"backoff is Constant(...), Exponential(...) or a function from the number of the "
            f"failure to a timedelta, not {type(value).__name__}"
        )
    return value


def longest_delay(backoff: Backoff) -> timedelta:
    """The longest delay that `backoff` comes to; zero if it is a function, which nobody knows."""
    if isinstance(backoff, Constant):
        return backoff.delay
    return backoff.cap if isinstance(backoff, Exponential) else timedelta(0)


def to_wire(backoff: Constant | Exponential) -> dict[str, int | float]:
    """`backoff` as it travels with a job."""
    wire: dict[str, int | float]
    if isinstance(backoff, Constant):
        wire = {"constant": to_microseconds(backoff.delay)}
    else:
        wire = {
            "exponential": to_microseconds(backoff.base),
            "cap": to_microseconds(backoff.cap),
        }
    if backoff.jitter:
        wire["jitter"] = backoff.jitter
    return wire


def from_wire(value: object) -> Backoff | None:
    """The inverse of `to_wire`; None for anything else."""
    if not isinstance(value, dict):
        return None
    try:
        jitter = value.get("jitter", 0.0)
        if "constant" in value:
            return Constant(timedelta(microseconds=value["constant"]), jitter=jitter)
        return Exponential(
            timedelta(microseconds=value["exponential"]),
            cap=timedelta(microseconds=value["cap"]),
            jitter=jitter,
        )
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def _with_jitter(delay: timedelta, jitter: float) -> timedelta:
    if not jitter:
        return delay
    return delay * (1 - jitter * random.random())  # noqa: S311  # spreads load, guards nothing


def _check_duration(name: str, value: object) -> None:
    try:
        checked_delay(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"backoff: {str(error).replace('delay', name, 1)}") from None


def _check_jitter(value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise InvalidArgument(f"backoff: jitter is {safe_repr(value)}; it is a number from 0 to 1")
